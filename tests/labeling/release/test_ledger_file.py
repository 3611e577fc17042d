"""Where a run's ledger lies: beside the private data, so that their budget is one, whoever asks."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from pate import cli
from pate._labeling.release.between_runs import ledger_scope, open_run
from pate._labeling.runs.run import TEACHERS_FIT, Run
from pate.accounting import read_ledger, verify_ledger
from pate.data import Arrays, CelebA, DataSource, Records, Role
from tests.conftest import make_arrays, recipe

Captured = pytest.CaptureFixture[str]


def furnish(folder: Path) -> Path:
    """Write data and a recipe into ``folder``."""
    (folder / "data").mkdir()
    np.savez(folder / "data" / "faces.npz", **make_arrays())  # type: ignore[arg-type]
    recipe(folder / "recipe", Path("data/faces.npz"))
    release = {"class_path": "ScoreVotes", "init_args": {"multiplier_scores": 5.0}}
    settings = {"aggregator": release, "num_queries": 80, "delta": 1e-3, "max_epsilon": None}
    (folder / "recipe" / "label.yaml").write_text(yaml.safe_dump(settings))
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with data and a recipe."""
    monkeypatch.chdir(tmp_path)
    return furnish(tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A working directory whose run has teachers and their votes, and a copy of it that nobody
    changes."""
    folder = furnish(tmp_path_factory.mktemp("taught"))
    copy = tmp_path_factory.mktemp("kept") / "copy"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert teach("runs/one") == 0
    shutil.copytree(folder, copy)
    return folder, copy


@pytest.fixture
def taught(kept: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory in which ``runs/one`` has voted, always the same one: paths are written
    into its files."""
    folder, copy = kept
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    monkeypatch.chdir(folder)
    return folder


def teach(root: str, *words: str) -> int:
    configs = [f"--config=recipe/{name}.yaml" for name in ("data", "teachers")]
    if cli.main(["teachers", "fit", *configs, "--run", root, *words]):
        return 2
    again = [word for word in words if word == "--overwrite"]
    return cli.main(["teachers", "vote", "--run", root, *again])


def label(root: str, *words: str) -> int:
    return cli.main(["label", "--config=recipe/label.yaml", "--run", root, *words])


@pytest.mark.slow
def test_two_runs_without_any_option_share_one_budget(place: Path, capsys: Captured) -> None:
    """What both released together is stated, and what the budget has left is what the second may
    spend."""
    options = ["--label.num_queries=60", "--label.max_epsilon=8"]
    assert cli.main(["run", "recipe", "--run", "runs/one", *options]) == 0
    out = capsys.readouterr().out
    text = (place / "runs" / "one" / "public" / "privacy.txt").read_text()
    assert "The ledger of the private data holds 1 release(s) of 60 queries" in text
    assert (
        out.splitlines()[-2] == "ledger:            data/faces.ledger.sqlite (of the private data)"
    )
    assert cli.main(["run", "recipe", "--run", "runs/two", "--label.num_queries=80"]) == 2
    shutil.rmtree("runs")  # what was released stays released
    assert cli.main(["run", "recipe", "--run", "runs/one", "--label.num_queries=80"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "Expected epsilon <= 8 " in error and "with all earlier releases" in error
    assert f"The ledger {place}/data/faces.ledger.sqlite counts" in error and "(one)" in error
    assert "take other data" in error and "delete it to begin anew" in error
    entries = read_ledger(place / "data" / "faces.ledger.sqlite").entries
    assert [(entry.run, entry.count) for entry in entries] == [("one", 60)]
    # enough for some to be answered
    assert cli.main(["run", "recipe", "--run", "runs/one", "--label.num_queries=20"]) == 0
    statement = json.loads((place / "runs" / "one" / "public" / "privacy.json").read_text())
    assert [release["count"] for release in statement["releases"]] == [60, 20]
    assert statement["ledger"]["counts"] == "private data"
    verify_ledger(place / "data" / "faces.ledger.sqlite")


def test_the_ledger_is_recorded_and_found_from_anywhere(
    taught: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = yaml.safe_load((taught / "runs" / "one" / "data.yaml").read_text())["ledger"]
    assert recorded == str(taught / "data" / "faces.ledger.sqlite")
    (taught / "elsewhere").mkdir()
    monkeypatch.chdir(taught / "elsewhere")
    words = ["--config", str(taught / "recipe" / "label.yaml"), "--run", "../runs/one"]
    assert cli.main(["label", *words, "--num_queries=5"]) == 0
    assert len(read_ledger(Path(recorded)).entries) == 1
    assert not os.listdir(taught / "elsewhere")


def test_a_ledger_is_that_of_the_private_data_only_where_theirs_lies(taught: Path) -> None:
    run = Run(Path("runs/one"), ledger=taught / "data" / "faces.ledger.sqlite")
    assert ledger_scope(run) == "private data"
    run.finish(TEACHERS_FIT, ledger_beside=taught / "data" / "others.sqlite")
    assert ledger_scope(run) == "named"
    run.finish(TEACHERS_FIT)
    assert ledger_scope(run) == "named"
    assert ledger_scope(Run(Path("runs/one"))) == "run"


class Nowhere(DataSource):
    """A source without a place."""

    label_names = ("a",)

    def load(self, role: Role) -> Records:
        raise NotImplementedError


def test_the_place_of_a_new_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, data = tmp_path / "run", Arrays(tmp_path / "a.b.npz")
    assert open_run(root, data).ledger == tmp_path / "a.b.ledger.sqlite"
    assert open_run(root, CelebA(tmp_path)).ledger == tmp_path / "ledger.sqlite"
    assert open_run(root, CelebA(tmp_path / "missing")).ledger is None
    assert open_run(root, Nowhere()).ledger is None
    assert open_run(root, data, ledger=tmp_path / "all.sqlite").ledger == tmp_path / "all.sqlite"
    assert not os.listdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert open_run(root, data).ledger is None
    # one that is there is never passed over for a new one
    (tmp_path / "a.b.ledger.sqlite").touch()
    with pytest.raises(
        ValueError, match="a writable ledger of the private data; `ledger` names another"
    ):
        open_run(root, data)


@pytest.mark.slow
def test_other_records_are_not_booked_where_the_first_ones_are(
    taught: Path, capsys: Captured
) -> None:
    """A run that is done again on other data spends their budget, or none."""
    np.savez(taught / "data" / "more.npz", **make_arrays(seed=1))  # type: ignore[arg-type]
    assert label("runs/one", "--num_queries=5") == 0
    other = "--data.init_args.path=data/more.npz"
    assert teach("runs/one", "--overwrite", other) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "the private records that runs/one was begun with" in error and "--ledger" in error
    again = [
        "--config=recipe/data.yaml",
        "--config=recipe/teachers.yaml",
        "--run=runs/one",
        "--overwrite",
        other,
    ]
    assert cli.main(["teachers", "fit", *again, "--ledger=data/more.ledger.sqlite"]) == 0
    assert cli.main(["teachers", "vote", "--run=runs/one", "--overwrite"]) == 0
    assert label("runs/one", "--num_queries=5", "--overwrite") == 0
    counts = [
        len(read_ledger(taught / "data" / f"{name}.ledger.sqlite").entries)
        for name in ("faces", "more")
    ]
    assert counts == [1, 1]
    # the same records stay where they are counted, with other settings too
    assert teach("runs/two", "--ledger=all.sqlite") == 0
    configs = [f"--config=recipe/{name}.yaml" for name in ("data", "teachers")]
    assert (
        cli.main(["teachers", "fit", *configs, "--run=runs/two", "--num_teachers=9", "--overwrite"])
        == 0
    )
    assert yaml.safe_load(Path("runs/two/data.yaml").read_text())["ledger"] == str(
        taught / "all.sqlite"
    )


def test_a_link_to_the_data_leads_to_their_ledger(place: Path) -> None:
    os.symlink("data/faces.npz", "link.npz")
    os.symlink("data", "linked")
    for path in ("link.npz", "linked/faces.npz"):
        assert (
            open_run(place / "run", Arrays(Path(path))).ledger
            == place / "data" / "faces.ledger.sqlite"
        )
    assert (
        open_run(place / "run", CelebA(Path("linked"))).ledger == place / "data" / "ledger.sqlite"
    )


@pytest.mark.parametrize(
    "damage",
    [
        "missing",
        *(
            pytest.param(text, marks=pytest.mark.slow)
            for text in ("no ledger", "", "[]", "data: [")
        ),
    ],
)
def test_a_run_that_lost_where_its_ledger_is_begins_no_new_one(
    damage: str, taught: Path, capsys: Captured
) -> None:
    data = taught / "runs" / "one" / "data.yaml"
    intact = data.read_text()
    if damage == "missing":
        data.unlink()
    else:
        kept = "".join(line for line in intact.splitlines(True) if "ledger" not in line)
        data.write_text(kept if damage == "no ledger" else damage)
    assert label("runs/one", "--num_queries=5") == 2
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1 or "votes: 100%" in error[-2]
    assert "puts it back" in error[-1] or "name its place by `ledger:`" in error[-1]
    assert not (taught / "runs" / "one" / "ledger.sqlite").exists()
    data.unlink(missing_ok=True)
    assert teach("runs/one") == 0
    assert data.read_text() == intact
    assert label("runs/one", "--num_queries=5") == 0
    assert len(read_ledger(taught / "data" / "faces.ledger.sqlite").entries) == 1
