"""Stages that are killed at each of their file operations, and end where an unbroken one ends."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from pate.accounting import read_ledger
from tests.conftest import make_arrays
from tests.processes import kill_at, run_here

FIT = "network: pate.models.Linear\nnum_teachers: 6\nnum_steps: 2\nbatch_size: 4\nchunk_size: 3\n"
PLANS = {"networks": FIT, "closed form": "fit: closed_form\n"}
Files = dict[str, object]


_CHANCE = re.compile(
    r'\d{4}-\d\d-\d\dT[\d:+]+|"digest": "[0-9a-f]{32}"|\b[0-9a-f]{32}\b|rows?": \d+'
)


def files(place: Path) -> Files:
    """Return all files of a place, without times and digests of them; of ledgers, what they
    hold."""
    found: Files = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if path.suffix == ".sqlite":
            found[name] = _CHANCE.sub(
                "", json.dumps([entry.to_dict() for entry in read_ledger(path).entries])
            )
        elif path.is_file() and path.suffix != ".ckpt":  # which Lightning never writes twice alike
            text = path.suffix in (".json", ".txt", ".yaml")
            found[name] = _CHANCE.sub("", path.read_text()) if text else path.read_bytes()
    return found


def different(made: Files, expected: Files, but: str) -> list[str]:
    """Return the names of files that are not what they should be."""
    names = made.keys() | expected.keys()
    return sorted(
        name for name in names if made.get(name) != expected.get(name) and not re.match(but, name)
    )


def every_kill(
    place: Path, before: Path, words: list[str], *, first: int = 0, step: int = 1, but: str = "-"
) -> int:
    """Kill a command at each of its changes, run it again, and compare the end; return how many there are.

    Args:
        place: the folder that the command works in, so that all paths are the same each time.
        before: what the folder holds before it.
        words: the command.
        first: the number of the first change that it is killed at.
        step: 1 for each change, 2 for every other one.
        but: a pattern of names of files that may differ.
    """
    number, expected = first, Files()
    while True:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(before, place)
        if number == first:
            assert not kill_at(1 << 30, *words, folder=place)
            expected = files(place)
            shutil.rmtree(place)
            shutil.copytree(before, place)
        if not kill_at(number, *words, folder=place):
            assert not different(files(place), expected, but)
            return number
        assert not kill_at(1 << 30, *words, folder=place), number
        assert not different(files(place), expected, but), number
        number += step


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """Data, settings of teachers, and votes, before anything is done with them."""
    folder = tmp_path / "before"
    folder.mkdir()
    arrays = make_arrays(150)
    arrays["group"] = np.char.mod("g%03d", np.arange(150) // 3)
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    (folder / "data.yaml").write_text(
        "data:\n  class_path: Arrays\n  init_args:\n    path: data.npz\n"
    )
    ballots = np.random.default_rng(0).integers(0, 2, (12, 20, 3)).astype(np.uint8)
    ids, names = np.array([f"s{row}" for row in range(12)]), np.array(list("abc"))
    np.savez(folder / "votes.npz", ids=ids, label_names=names, ballots=ballots)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_teachers_that_are_killed_know_the_place_of_their_ledger(
    before: Path, tmp_path: Path, plan: str
) -> None:
    (before / "teachers.yaml").write_text(PLANS[plan])
    words = ["teachers", "fit", "--config=data.yaml", "--config=teachers.yaml", "--run=run"]
    place = tmp_path / "place"
    assert every_kill(place, before, words) > 20
    state = json.loads((place / "run" / "private" / "teachers_fit.json").read_text())
    assert state["finished"] and state["beside"] == str(place / "data.ledger.sqlite")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(7))  # parts that together try each change
def test_two_releases_of_one_run_that_is_killed_pay_twice_and_no_more(
    before: Path, tmp_path: Path, first: int
) -> None:
    (before / "teachers.yaml").write_text("fit: closed_form\nstart_from: first\nnum_teachers: 9\n")
    label = "aggregator: NoisyVotes\ntarget_epsilon: 20\nnum_queries: 5\ndelta: 1.0e-3\n"
    (before / "label.yaml").write_text(label + "noise_seed: 1\n")
    (before / "student.yaml").write_text("model:\n  network: pate.models.Linear\n")
    for run in ("run", "run/first"):
        (before / run / "private").mkdir(parents=True, mode=0o700)
        (before / run / "private" / "partition.json").write_text(json.dumps({"key": "5e" * 32}))
    place, words = tmp_path / "place", ["run", ".", "--run=run"]
    # labels that are there are stated on all that the ledger holds by now
    restated = "run/first/public/(student/model/)?privacy"
    assert every_kill(place, before, words, first=first, step=7, but=restated) > 100
    entries = read_ledger(place / "data.ledger.sqlite").entries
    assert [entry.description for entry in entries] == ["ScoreVotes", "NoisyVotes"]
    statement = json.loads((place / "run" / "public" / "privacy.json").read_text())
    assert len(statement["releases"]) == 2
    verify = ["verify", "run/public/privacy.json", "--ledger=data.ledger.sqlite"]
    assert run_here(*verify, folder=place).code == 0
