"""Stages that are killed at each of their file operations, and end where an unbroken one ends."""

import json
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from pate import cli
from pate.accounting import read_ledger
from tests.conftest import make_arrays
from tests.injection import Injector, injector
from tests.processes import run_here

FIT = "network: pate.models.Linear\nnum_teachers: 6\nnum_steps: 2\nbatch_size: 4\nchunk_size: 3\n"
PLANS = {"networks": FIT, "closed form": "fit: closed_form\n"}
STEPS = {"networks": 3, "closed form": 1}
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
    run: Injector, place: Path, before: Path, words: list[str], *, step: int = 1, but: str = "-"
) -> int:
    """Kill a command at its changes, run it again, and compare the end; return how many there are.

    Args:
        run: the server of commands.
        place: the folder that the command works in, so that all paths are the same each time.
        before: what the folder holds before it.
        words: the command.
        step: 1 for each change, 2 for every other one.
        but: a pattern of names of files that may differ.
    """

    def begin() -> None:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(before, place)

    begin()
    whole = run(words, folder=place)
    expected = files(place)
    for number in range(0, whole.operations, step):
        begin()
        assert run(words, folder=place, number=number, mode="kill").code == -signal.SIGKILL
        again = run(words, folder=place)
        assert again.code == 0, (number, again)
        assert not different(files(place), expected, but), number
    return whole.operations


def make_closed_form(folder: Path) -> None:
    """Fit teachers in closed form, for what it imports."""
    write_data(folder)
    with chdir(folder):
        words = ["teachers", "fit", "--config=data.yaml", "--fit=closed_form", "--run=run"]
        assert cli.main(words) == 0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    with injector(tmp_path_factory.mktemp("injector"), f"{__name__}:make_closed_form") as server:
        yield server


def write_data(folder: Path) -> None:
    arrays = make_arrays(150)
    arrays["group"] = np.char.mod("g%03d", np.arange(150) // 3)
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]
    (folder / "data.yaml").write_text(
        "data:\n  class_path: Arrays\n  init_args:\n    path: data.npz\n"
    )


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """Data, before anything is done with them."""
    folder = tmp_path / "before"
    folder.mkdir()
    write_data(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_teachers_that_are_killed_know_the_place_of_their_ledger(
    run: Injector, before: Path, tmp_path: Path, plan: str
) -> None:
    (before / "teachers.yaml").write_text(PLANS[plan])
    words = ["teachers", "fit", "--config=data.yaml", "--config=teachers.yaml", "--run=run"]
    place = tmp_path / "place"
    assert every_kill(run, place, before, words, step=STEPS[plan]) > 20
    state = json.loads((place / "run" / "private" / "teachers_fit.json").read_text())
    assert state["finished"] and state["beside"] == str(place / "data.ledger.sqlite")


@pytest.mark.slow
def test_two_releases_of_one_run_that_is_killed_pay_twice_and_no_more(
    run: Injector, before: Path, tmp_path: Path
) -> None:
    (before / "teachers.yaml").write_text("fit: closed_form\nstart_from: first\nnum_teachers: 9\n")
    label = "aggregator: NoisyVotes\ntarget_epsilon: 20\nnum_queries: 5\ndelta: 1.0e-3\n"
    (before / "label.yaml").write_text(label + "noise_seed: 1\n")
    (before / "student.yaml").write_text("model:\n  network: pate.models.Linear\n")
    place, words = tmp_path / "place", ["run", ".", "--run=run"]
    # labels that are there are stated on all that the ledger holds by now
    restated = "run/first/public/(student/model/)?privacy"
    assert every_kill(run, place, before, words, step=11, but=restated) > 100
    entries = read_ledger(place / "data.ledger.sqlite").entries
    assert [entry.description for entry in entries] == ["ScoreVotes", "NoisyVotes"]
    statement = json.loads((place / "run" / "public" / "privacy.json").read_text())
    assert len(statement["releases"]) == 2
    verify = ["verify", "run/public/privacy.json", "--ledger=data.ledger.sqlite"]
    assert run_here(*verify, folder=place).code == 0
