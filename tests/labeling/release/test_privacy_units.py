"""Whom the releases of runs protect, by whole commands: records, groups, teachers of partitions."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import cli
from pate._core.accounting.history import EACH
from pate._labeling.data.records import parts_of_groups
from pate.accounting import read_ledger
from tests.conftest import make_arrays

Captured = pytest.CaptureFixture[str]
GROUPS = np.char.mod("g%02d", np.arange(600) % 40)


def test_a_part_of_a_group_depends_on_its_own_record_alone() -> None:
    ids, groups = np.char.mod("r%d", np.arange(300)), np.char.mod("g%d", np.arange(300) // 30)
    parts = parts_of_groups(ids, groups, 4, key=bytes(16))
    for group in np.unique(groups):
        assert len(np.unique(parts[groups == group])) <= 4
    # where a record leaves, all others stay where they are: one ballot moves. A rule that keeps the
    # first four of each group brings in another record, and moves two
    kept = np.arange(300) != 7
    assert (parts_of_groups(ids[kept], groups[kept], 4, key=bytes(16)) == parts[kept]).all()
    order = np.argsort([hash_of(name) for name in ids])

    def first_four(rows: np.ndarray) -> set[str]:
        return {
            name
            for group in np.unique(groups)
            for name in ids[[i for i in order if rows[i] and groups[i] == group][:4]].tolist()
        }

    leaving = next(i for i, name in enumerate(ids) if name in first_four(np.ones(300, bool)))
    left = np.arange(300) != leaving
    assert len(first_four(np.ones(300, bool)) ^ first_four(left)) == 2


def hash_of(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), key=bytes(16)).digest()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", **(make_arrays() | {"group": GROUPS}))  # type: ignore[arg-type]
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    settings = {
        "data": "data:\n  class_path: Arrays\n  init_args:\n    path: data.npz\n",
        "teachers": "fit: closed_form\n",
        "label": "target_epsilon: 1.0\ndelta: 1.0e-5\n",
        "student": "model:\n  network: pate.models.Linear\n",
    }
    for part, text in settings.items():
        (recipe / f"{part}.yaml").write_text(text)
    return recipe


def run(recipe: Path, name: str, *words: str) -> int:
    return cli.main(["run", str(recipe), "--run", name, *words])


def statement(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(name, "public", "privacy.json").read_text())
    return content


def test_a_run_by_groups_after_one_by_records(data: Path, capsys: Captured) -> None:
    budget = ("--label.max_epsilon=1.5",)
    assert run(data, "one", *budget) == 0
    assert run(data, "two", "--teachers.unit=group") == 0
    capsys.readouterr()
    guarantee = statement("two")["guarantees"]["replace_record"]
    assert (guarantee["unit"], guarantee["epsilon"], guarantee["fixed_by"]) == (
        "record",
        1.5,
        "budget",
    )
    assert (
        "There is no total for one group by `group` under REPLACE_RECORD: release 1"
        in Path("two/public/privacy.txt").read_text()
    )
    assert cli.main(["verify", "data.ledger.sqlite"]) == 0
    assert "There is no total for one group by `group`" in capsys.readouterr().out


def test_groups_add_up_with_records_of_a_bound(data: Path) -> None:
    assert run(data, "one", "--teachers.max_teachers_per_group=3") == 0
    assert run(data, "two", "--teachers.unit=group") == 0
    first, second = read_ledger(Path("data.ledger.sqlite")).entries
    assert first.privacy_unit.max_teachers_per_group == 3
    assert first.privacy_unit.partition != EACH
    assert first.privacy_unit.grouping == second.privacy_unit.grouping is not None
    guarantee = statement("two")["guarantees"]["replace_record"]
    # three voters of a group: the first release costs it as three records, not three times as much
    assert guarantee["unit"] == "group"
    assert guarantee["mu"] ** 2 == pytest.approx(
        10 * statement("one")["guarantees"]["replace_record"]["mu"] ** 2
    )


@pytest.mark.parametrize("changed", [pytest.param("group", marks=pytest.mark.slow), "ids"])
def test_teachers_of_a_run_that_is_overwritten_are_others(data: Path, changed: str) -> None:
    word = "group" if changed == "group" else "record"
    unit = ("--teachers.num_teachers=30", f"--teachers.unit={word}")
    assert run(data, "one", *unit) == 0
    arrays = make_arrays() | {"group": GROUPS}
    if changed == "group":
        arrays["group"] = np.roll(GROUPS, 7)
    else:
        arrays["ids"] = np.char.add("other", arrays["ids"].astype(np.str_))
    np.savez("data.npz", **arrays)  # type: ignore[arg-type]
    assert run(data, "one", *unit, "--overwrite") == 0
    first, second = read_ledger(Path("data.ledger.sqlite")).entries
    assert first.privacy_unit.partition != second.privacy_unit.partition
    assert statement("one")["guarantees"]["add_remove_teacher"]["unit"] is None
    # other labels of the same teachers
    assert run(data, "one", *unit, "--label.target_epsilon=0.5", "--overwrite") == 0
    *_, third = read_ledger(Path("data.ledger.sqlite")).entries
    assert third.privacy_unit == second.privacy_unit


def test_teachers_of_votes_that_replace_others_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["label", "--votes=v.npz", "--run=one", "--target_epsilon=1", "--delta=1e-5"]
    for number in (20, 30):
        rng = np.random.default_rng(number)
        np.savez(
            "v.npz",
            ids=np.array([f"p{i}" for i in range(8)]),
            label_names=np.array(["a", "b"]),
            ballots=rng.integers(0, 2, (8, number, 2), dtype=np.uint8),
            features=np.eye(8, 3, dtype=np.float32),
        )
        assert cli.main([*words, "--overwrite"]) == 0
    guarantees = statement("one")["guarantees"]
    assert [g["unit"] for g in guarantees.values()] == ["record", None]


def test_groups_add_up_by_their_name_alone_and_the_statement_prints_the_promise(data: Path) -> None:
    """No record decides which totals are printed: the owner's name for the groups does."""
    arrays = make_arrays()
    split = np.array(["private", "public", "test"])[arrays["split"]]
    names = [f"x{i}" for i in range(arrays["X"].shape[1])]
    labels = [f"y{i}" for i in range(arrays["Y"].shape[1])]
    rows = zip(arrays["ids"], split, GROUPS, arrays["X"], arrays["Y"], strict=True)
    lines = [",".join(map(str, (*start, *x, *y))) for *start, x, y in rows]
    texts = []
    for name, column in (("one", "patient"), ("two", "patient"), ("three", "ward")):
        head = ",".join(["id", "split", column, *names, *labels])
        Path("data.csv").write_text("\n".join([head, *lines]))
        source = {"path": "data.csv", "labels": labels, "names": {"group": column}}
        content = {"data": {"class_path": "NumberTable", "init_args": source}}
        (data / "data.yaml").write_text(json.dumps(content))
        assert run(data, name, "--teachers.unit=group") == 0
        texts.append(Path(name, "public", "privacy.txt").read_text().replace("\n", " "))
    assert "one group by `patient` (a record has one `patient` in all these releases)" in " ".join(
        texts[1].split()
    )
    third = " ".join(texts[2].split())
    assert "no total for one group by `ward` under REPLACE_RECORD" in third
    assert "releases 1, 2 are priced for one group by `patient`, by other groups" in third


def test_a_budget_for_groups_pays_for_records_of_a_bound(data: Path, capsys: Captured) -> None:
    assert run(data, "one", "--teachers.unit=group", "--label.max_epsilon=8") == 0
    # other records are refused before anything is done
    capsys.readouterr()
    assert run(data, "two") == 2
    assert "Expected release 2 priced for one group" in capsys.readouterr().err
    assert not Path("two").exists()
    assert run(data, "two", "--teachers.max_teachers_per_group=3") == 0
    guarantee = statement("two")["guarantees"]["replace_record"]
    assert (guarantee["unit"], guarantee["fixed_by"]) == ("record", "budget")


def test_a_warm_run_has_a_total_for_a_record_and_none_for_teachers(data: Path) -> None:
    words = (
        "--teachers.start_from=first",
        "--teachers.num_teachers=20",
        "--label.aggregator=StableTopK",
        "--label.target_epsilon=20",
        "--label.num_queries=4",
    )
    assert run(data, "warm", *words) == 0
    guarantees = statement("warm")["guarantees"]
    assert guarantees["replace_record"]["unit"] == "record"
    assert guarantees["replace_record"]["epsilon"] <= 20
    assert guarantees["add_remove_teacher"]["unit"] is None
    assert (
        "There is no total for one teacher under ADD_REMOVE"
        in Path("warm/public/privacy.txt").read_text()
    )
