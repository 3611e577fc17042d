"""A fault of the machine ends a command in one line, whatever it was doing, and the same command
goes on."""

import errno
import os
import re
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pate import cli
from pate._core.validation import explain_os_error
from pate._labeling.commands.table import commands
from pate._labeling.runs.run import LABEL, STUDENT, TEACHERS_FIT, TEACHERS_VOTE, Run, Stage
from tests.conftest import make_arrays
from tests.faults import full_disk, read_only
from tests.lab.silos.exchanges import Hospitals
from tests.networks.conftest import finished as finished, recipe

AGGREGATOR = "--aggregator StableTopK --aggregator.scale_gap 39 --aggregator.sigma_test 60 --aggregator.delta_test 1e-9"
PANEL = "--num_teachers 800 --num_labels 20"
TARGET = "--target_epsilon 1 --delta 1e-5"
FIT = "teachers fit --config recipe/data.yaml --config recipe/teachers.yaml --run"
LABELS = "label --config recipe/label.yaml --run"


@dataclass(frozen=True)
class Case:
    """A command, the stages of the run that it does again, and its status in the end."""

    words: str
    again: tuple[Stage, ...] = ()
    status: int = 0


CASES = (
    Case("run recipe --run new"),
    Case("run recipe --run run", (TEACHERS_FIT, TEACHERS_VOTE, LABEL, STUDENT)),
    Case("plugin new Mine"),
    Case("init mine --kind npz"),
    Case("init mine --kind python"),
    Case(f"{FIT} new"),
    Case(f"{FIT} run", (TEACHERS_FIT,)),
    Case(f"{FIT} new --workers 2"),
    Case("teachers fit --config recipe/data.yaml --fit closed_form --num_teachers 10 --run new"),
    Case("teachers vote --run run", (TEACHERS_VOTE,)),
    Case("teachers vote --run run --workers 2", (TEACHERS_VOTE,)),
    Case(f"{LABELS} run --num_queries 40 --overwrite"),
    Case(f"{LABELS} new --votes votes.npz --num_queries 20"),
    Case(
        "label --silos meeting --teachers.north 30 --teachers.south 30 --public_keys hospitals/keys --signing_key"
        f" hospitals/server/silo.pem --config recipe/data.yaml {TARGET} --run new --wait 0"
    ),
    Case("silo key new/silo.pem keys/new.pub"),
    Case(
        "silo hospitals/exchange --name north --votes hospitals/north/votes.npz --state north --signing_key"
        " hospitals/north/silo.pem --public_keys hospitals/keys --max_epsilon 50 --delta 1e-6 --wait 0"
    ),
    Case("student fit --run run --config recipe/student.yaml", (STUDENT,)),
    Case("student fit --run run --config recipe/student.yaml --optimize macro_f1 --overwrite"),
    Case(
        "student fit --run run --model.network pate.models.MLP --trainer.max_epochs 1", (STUDENT,)
    ),
    Case("student test --run run"),
    Case("predict run/public/student/model data.npz --output answers.csv"),
    Case("predict run/public/student/model data.npz --output answers.npz"),
    Case("export run/public/student/model --format torch.export --output student.pt2"),
    Case("export run/public/student/model --format onnx --output student.onnx"),
    Case("report read"),
    Case("verify read"),
    Case("fit data.npz --epsilon 1e5 --run new"),
    Case(f"account --aggregator StableTopK --num_queries 180 {TARGET} {PANEL}"),
    Case(f"account {AGGREGATOR} --num_queries 600 --delta 1e-6 {PANEL}"),
    Case("ledger show run/ledger.sqlite"),
    Case("verify run/ledger.sqlite"),
    Case("study --mechanisms [Peeling] --k [3] --epsilons [1] --counts [counts.npy] --seeds 2"),
    # so few canaries show nothing
    Case("audit recipe --output audited --canaries 16", status=3),
)
QUICK = ("init mine --kind npz", "predict run/public/student/model data.npz --output answers.csv")


@pytest.fixture
def place(finished: Path, copied: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, the one of the test, with a run to be written, one to be read, and whatever else
    the commands read."""
    place = copied.parent
    shutil.copytree(finished, place / "read")
    np.savez(place / "data.npz", **make_arrays())  # type: ignore[arg-type]
    recipe(place / "recipe", place / "data.npz")
    np.save(place / "counts.npy", 50 * np.arange(30))
    ballots = np.random.default_rng(0).integers(0, 2, (40, 25, 4)).astype(np.uint8)
    ids = np.array([f"s{i}" for i in range(40)])
    np.savez(place / "votes.npz", ballots=ballots, ids=ids, label_names=np.array(list("abcd")))
    Hospitals(place / "hospitals")
    monkeypatch.chdir(place)
    return place


def run(words: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """Return the status of a command, and what it printed of errors."""
    capsys.readouterr()
    try:
        code: object = cli.main(words.split())
    except SystemExit as stopped:
        code = stopped.code
    return code, capsys.readouterr().err


FAULTS: dict[str, Callable[[Path], AbstractContextManager[None]]] = {
    "full": lambda place: full_disk(0),
    "nearly full": lambda place: full_disk(1 << 13),
    "read-only": read_only,
}


def survives(case: Case, fault: str, place: Path, capsys: pytest.CaptureFixture[str]) -> object:
    """Run a command under a fault, and again without it; return the first status."""
    for stage in case.again:
        Run(place / "run").clear(stage)
    with FAULTS[fault](place):
        code, error = run(case.words, capsys)
    assert code in (case.status, 2), error
    if code == 2:
        lines = error.splitlines()
        assert len(lines) == 1 and re.match("pate .*: Expected ", lines[0]), error
        assert "amaged" not in error
    code_again, error = run(case.words, capsys)
    assert code_again == case.status, error
    assert not list(place.rglob(".*"))
    return code


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words[:50])
def test_every_command_survives(
    case: Case, fault: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    survives(case, fault, place, capsys)


@pytest.mark.parametrize("fault", FAULTS)
def test_commands_that_take_no_time_survive(
    fault: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for case in CASES:
        if case.words.startswith(QUICK) and not case.words.endswith(".json"):
            assert survives(case, fault, place, capsys) == 2 or fault == "nearly full"


def test_no_command_is_left_out() -> None:
    tried = {next(name for name in commands() if case.words.startswith(name)) for case in CASES}
    assert commands().keys() == tried


def _behind(cause: BaseException) -> ValueError:
    """Return an error that was raised while another was handled, which it does not name."""
    try:
        try:
            raise cause
        except BaseException:
            raise ValueError(
                "Expected a chunk of teachers, got a damaged file: delete it"
            ) from None
    except ValueError as error:
        return error


FULL = OSError(errno.ENOSPC, "No space left on device", "run/votes.npy")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FULL, "Expected room on the disk of run/votes.npy, got: No space left on device"),
        (OSError(errno.EFBIG, "File too large"), "Expected room on the disk, got: File too large"),
        (sqlite3.OperationalError("database or disk is full"), "Expected room on the disk, got: d"),
        (shutil.Error([("a", "b", str(FULL))]), "Expected room on the disk, got: [Errno 28] No sp"),
        (MemoryError(), "Expected more memory than is free, got: none"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Expected more memory"),
        (RuntimeError("can't start new thread"), "Expected more memory"),
        (
            RuntimeError("unable to mmap 8 bytes from file <a.pt>: Cannot allocate memory (12)"),
            "Expected more memory",
        ),
    ],
)
def test_a_fault_is_told_with_what_to_do_wherever_it_is_found(error: Exception, line: str) -> None:
    for stop in (error, _behind(error)):
        text = explain_os_error(stop)
        assert text is not None and text.startswith(line)
        assert (
            "Nothing that was finished is lost: free some" in text
            and "the same command goes on" in text
        )


@pytest.mark.parametrize(
    "words",
    [
        "label --run loop --config recipe/label.yaml",
        "report loop",
        "label --votes votes.npz --run new --config recipe/label.yaml --ledger loop",
        "predict read/public/student/model pipe.npz",
        "verify pipe.json",
    ],
)
def test_links_to_themselves_and_pipes_are_refused_in_one_line(
    words: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("loop", "loop.csv"):
        (place / name).symlink_to(name)
    for name in ("pipe.npz", "pipe.json"):
        os.mkfifo(place / name)
    code, error = run(words, capsys)
    assert code == 2 and ": Expected " in error and len(error.splitlines()) == 1


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a terminal: a suite in the background ignores it.

    The command leaves all handlers as they were.
    """
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGALRM
    surroundings = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = [signal.getsignal(number) for number in numbers]
    yield
    after = [signal.getsignal(number) for number in numbers]
    signal.signal(signal.SIGINT, surroundings)
    assert after == before and signal.getitimer(signal.ITIMER_REAL) == (0, 0)


INTERRUPTS = pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)


@INTERRUPTS
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_that_comes_out_as_another_error_is_one(
    number: signal.Signals,
    status: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An import that is cut short raises what it likes: numpy's says that it is installed badly."""

    def cut_short(*arguments: object) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        raise ImportError("PLEASE READ THIS")

    monkeypatch.setattr("pate._labeling.commands.check.show", cut_short)
    code, error = run("ledger show", capsys)
    assert (code, len(error.splitlines())) == (
        status,
        1,
    ) and "the same command resumes from here" in error


def dropped_by_a_library(number: signal.Signals) -> None:
    with suppress(KeyboardInterrupt):
        signal.raise_signal(number)


@INTERRUPTS
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_that_was_dropped_comes_again_and_lets_the_command_clean_up(
    number: signal.Signals,
    status: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Schedulers terminate a command once, and kill it some time after."""
    cleaned: list[bool] = []

    def command(*arguments: object) -> None:
        dropped_by_a_library(number)
        try:
            for _ in range(1000):
                time.sleep(0.01)
        finally:
            for _ in range(30):  # longer than what is dropped stays away
                time.sleep(0.01)
            signal.raise_signal(signal.SIGTERM)
            cleaned.append(True)

    monkeypatch.setattr("pate._labeling.commands.check.show", command)
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)
    code, error = run("ledger show", capsys)
    assert (code, len(error.splitlines()), cleaned) == (status, 1, [True])
