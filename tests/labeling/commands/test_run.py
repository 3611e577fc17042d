"""The whole path, on data that takes seconds."""

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import LabelSettings, Partial, VoteShape, cli
from pate._core.accounting.charges import account
from pate._core.accounting.cost import format_epsilon
from pate._core.validation import MOST_VOTERS
from pate._labeling.release.label_settings import resolve_settings
from pate.accounting import Ledger, NeighboringRelation, Statement, read_ledger
from pate.aggregators import Moments, ScoreVotes
from tests.conftest import copy_run, make_arrays, recipe
from tests.statements import RECORDS


def current_umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def everything(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_what_a_run_leaves(finished: Path) -> None:
    assert stat.S_IMODE((finished / "private").stat().st_mode) == 0o700
    assert {p.name for p in (finished / "public").iterdir()} == {
        *("label.yaml", "labels.npz", "privacy.json", "privacy.txt", "student", "student_fit.yaml")
    }
    with np.load(finished / "public" / "labels.npz") as released:
        assert released["labels"].shape == released["mask"].shape == (80, 4)
        assert (released["labels"][~released["mask"]] == 0).all()
    metrics = json.loads((finished / "public" / "student" / "metrics.json").read_text())
    assert metrics["student"]["macro_f1"] > metrics["all_majority"]["macro_f1"] + 0.2
    assert set(metrics["student"]["per_label"]) == {"a", "b", "c", "d"}


def test_all_private_folders_are_closed_to_others(finished: Path) -> None:
    """After each stage of `pate run`."""
    folders = {
        path: stat.S_IMODE(path.stat().st_mode)
        for path in (finished / "private").rglob("*")
        if path.is_dir()
    }
    assert {path.name for path in folders} >= {"teachers", "votes"} and set(folders.values()) == {
        0o700
    }
    assert stat.S_IMODE((finished / "public").stat().st_mode) == 0o777 & ~current_umask()


def test_the_statement_can_be_computed_again(finished: Path) -> None:
    statement = json.loads((finished / "public" / "privacy.json").read_text())
    assert statement["private"] is False  # the noise was seeded
    assert statement["num_queries"] == 80
    ledger, labels = finished.parent / "data.ledger.sqlite", finished / "public" / "labels.npz"
    Statement.from_json(statement).verify(ledger=ledger, released=labels)
    entries = read_ledger(ledger).entries
    assert [(entry.count, entry.settled, entry.seeded) for entry in entries] == [(80, True, True)]
    text = (finished / "public" / "privacy.txt").read_text()
    assert text.startswith("NOT PRIVATE")
    assert format_epsilon(statement["guarantees"]["replace_record"]["epsilon"]) in text


def test_a_ledger_that_cannot_pay_is_found_before_the_first_stage(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is no hindrance for a run that has paid."""
    copied, data = copy_run(finished, tmp_path / "copied"), tmp_path / "data.npz"
    np.savez(data, **make_arrays())  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", data)
    (folder / "label.yaml").write_text(
        "aggregator: ScoreVotes\ndelta: 0.001\ntarget_epsilon: 3\nmax_epsilon: 4\n"
    )
    words = ["run", str(folder), "--dry_run", "--ledger", str(tmp_path / "ledger.sqlite"), "--run"]
    assert (
        cli.main([*words, str(tmp_path / "new")]) == 0 and not (tmp_path / "ledger.sqlite").exists()
    )
    settings = LabelSettings(Partial(ScoreVotes), delta=1e-3, target_epsilon=3, max_epsilon=4)
    shape = VoteShape(MOST_VOTERS, 4)
    complete = resolve_settings(settings, shape, 100, Moments)
    paid: dict[str, Any] = {
        "count": 100,
        "run": "other",
        "description": "",
        "seeded": False,
        "budget": settings.budget,
        "privacy_unit": RECORDS,
    }
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.reserve(complete.mechanism.events(shape), **paid)
    capsys.readouterr()
    assert cli.main([*words, str(tmp_path / "new")]) == 2
    said = capsys.readouterr()
    assert (
        f"The ledger {tmp_path / 'ledger.sqlite'} counts the earlier releases of runs on these private"
        in said.err
    )
    assert "[1/" not in said.out and not (tmp_path / "new").exists() and len(ledger.entries()) == 1
    # what is reserved with a seed that is kept goes on, and what is released is not paid for again
    (tmp_path / "new" / "private" / "label").mkdir(parents=True)
    (tmp_path / "new" / "private" / "label" / "seed.json").touch()
    assert cli.main([*words, str(tmp_path / "new")]) == 0
    shutil.copy(tmp_path / "ledger.sqlite", copied / "ledger.sqlite")
    again = ["run", str(folder), "--dry_run", "--run", str(copied)]
    shutil.copy(finished.parent / "recipe" / "label.yaml", folder / "label.yaml")
    assert (
        cli.main(
            [
                *again,
                f"--data.init_args.path={finished.parent / 'data.npz'}",
                "--label.noise_seed=3",
            ]
        )
        == 0
    )


def test_labelling_again_adds_up(copied: Path) -> None:
    config = ["--config", str(copied / "public" / "label.yaml"), "--run", str(copied)]
    once = json.loads((copied / "public" / "privacy.json").read_text())
    assert cli.main(["label", *config, "--num_queries=20", "--noise_seed=null", "--overwrite"]) == 0
    twice = json.loads((copied / "public" / "privacy.json").read_text())
    assert [release["count"] for release in twice["releases"]] == [80, 20]
    assert twice["private"] is False  # the first release still counts, and was seeded
    for relation in NeighboringRelation:
        name = relation.value
        assert twice["guarantees"][name]["epsilon"] > once["guarantees"][name]["epsilon"]


def bad(name: str, message: str, *words: str, **changes: np.ndarray) -> object:
    return pytest.param(changes, words, message, id=name)


ARRAYS = make_arrays()
OVERLAP = ARRAYS["ids"].copy()
OVERLAP[450] = "r0007"
SCORES = ("--label.target_epsilon=null", "--label.aggregator=ScoreVotes")
MULTIPLIER = "--label.aggregator.init_args.multiplier_scores"


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        bad("label 2", "labels among", Y=np.where(ARRAYS["X"][:, :4] > 2, 2, ARRAYS["Y"])),
        bad("nan", "finite features", X=np.where(ARRAYS["X"] > 2, np.nan, ARRAYS["X"])),
        bad("overlap", "ids of data.npz that occur once", ids=OVERLAP),
        bad("one teacher", "num_teachers >= 2, got num_teachers=1", "--teachers.num_teachers=1"),
        bad("no noise", "multiplier_scores > 0", *SCORES, f"{MULTIPLIER}=0"),
        bad("over budget", "epsilon", *SCORES, f"{MULTIPLIER}=1", "--label.max_epsilon=1"),
        bad("unknown stage", "overrides such as", "--labels.num_queries=3"),
        bad("bits of records", "Expected no --votes of teachers in closed form", "--votes=bits"),
    ],
)
def test_bad_input_costs_one_line_and_nothing_else(
    changes: dict[str, np.ndarray],
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    arrays = dict(ARRAYS)
    np.savez(tmp_path / "data.npz", **(arrays | changes))  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz")
    try:
        code: object = cli.main(["run", str(folder), "--run", str(tmp_path / "run"), *words])
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    error = capfd.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "data.ledger.sqlite").exists() and not (tmp_path / "run").exists()


def test_what_private_records_hold_is_told_to_their_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = make_arrays()["label_names"]
    absent = np.where(names == "c", 0, make_arrays()["Y"])
    np.savez(tmp_path / "data.npz", **(make_arrays() | {"Y": absent}))  # type: ignore[arg-type]
    folder, root = recipe(tmp_path / "recipe", tmp_path / "data.npz"), tmp_path / "run"
    words = ["run", str(folder), "--run", str(root), "--label.target_epsilon=0.5"]
    assert cli.main(words) == 0
    assert "no private record" not in "".join(capsys.readouterr())
    told = (root / "private" / "notes.txt").read_text()
    assert "no private record has c: nothing can be learned" in told
    words[3] = str(tmp_path / "other")
    assert cli.main([*words, "--dry_run", "--owner"]) == 0
    said = capsys.readouterr()
    assert "PRIVATE: no private record has c" in said.err
    # the price of one more, with what the ledger holds
    charges = read_ledger(tmp_path / "data.ledger.sqlite").charges(1)
    both = account([*charges, *charges], NeighboringRelation.REPLACE_RECORD).get_epsilon(delta=1e-3)
    head = "All releases of these data, with 1 of the ledger:\n"
    assert said.out.partition(head)[2].startswith(f"    epsilon = {format_epsilon(both)} at")
    assert (root / "private" / "notes.txt").read_text() == told
