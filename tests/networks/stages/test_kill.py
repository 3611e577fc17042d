"""Processes that are killed or ended: their work goes on, and ends where an unbroken one ends."""

import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from pate import cli
from pate.accounting import Ledger
from tests.conftest import make_arrays
from tests.networks.conftest import recipe
from tests.processes import Command, Start


def run_words(folder: Path, root: Path, *more: str) -> list[str]:
    return [
        "run",
        str(folder),
        "--run",
        str(root),
        "--label.noise_seed=3",
        f"--ledger={root}/ledger.sqlite",
        *more,
    ]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed, with enough steps to be caught in, made by this process, which
    was not forked."""
    place = tmp_path_factory.mktemp("unbroken")
    np.savez(place / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(place / "recipe", place / "data.npz", steps=100, chunk_size=2)
    assert cli.main(run_words(folder, place / "run")) == 0
    return place


def terminate(command: Command) -> None:
    """End the command alone, as `timeout` and schedulers do: its workers are its own affair."""
    command.send(signal.SIGTERM)


def interrupt(command: Command) -> None:
    """Send what Ctrl-C sends, which reaches the workers too."""
    command.send(signal.SIGINT, group=True)


ENDS = {"interrupted": (interrupt, 130), "terminated": (terminate, 143)}


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("executor", ["serial", "loky", "ray"])
def test_ended_and_started_again(
    executor: str, how: str, unbroken: Path, tmp_path: Path, start: Start
) -> None:
    end, code = ENDS[how]
    if executor == "ray":
        pytest.importorskip("ray")
    root = tmp_path / "run"
    (root / "private").mkdir(parents=True)
    shutil.copy(unbroken / "run" / "private" / "partition.json", root / "private")
    configs = [f"--config={unbroken / 'recipe' / name}.yaml" for name in ("data", "teachers")]
    where = [f"--executor={executor}", "--workers=2"] if executor != "serial" else []
    words = ["teachers", "fit", *configs, "--run", str(root), *where]
    # workers import the main module again: that of a new interpreter
    ended = start(*words, fresh=executor != "serial")
    assert ended.wait_for(root, "private/teachers/*.ckpt")
    end(ended)
    assert ended.wait() == code, ended.err
    deadline = time.monotonic() + 20
    while ended.has_processes():
        assert time.monotonic() < deadline, "workers outlive the command"
        time.sleep(0.01)
    assert ended.err.endswith(f"pate teachers fit: {how}; the same command resumes from here\n")
    assert "Traceback" not in ended.err
    done = list((root / "private" / "teachers").glob("*.pt"))
    assert len(done) < 5, "it was not interrupted in the middle"
    again = start(*words, fresh=executor != "serial")
    assert again.wait() == 0, again.err
    for path in (unbroken / "run" / "private" / "teachers").glob("teachers_*"):
        assert (root / "private" / "teachers" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_two_commands_on_one_run_pay_once(unbroken: Path, tmp_path: Path, start: Start) -> None:
    root = tmp_path / "run"
    pair = [start(*run_words(unbroken / "recipe", root)) for _ in range(2)]
    codes = [command.wait() for command in pair]
    assert sorted(codes) == [0, 2], [command.err for command in pair]
    refused = pair[codes.index(2)].err
    winner = pair[codes.index(0)].pid
    assert (
        f"Expected a run that no other process writes, got {root} in use by process {winner} on "
        in refused
    )
    assert len(refused.splitlines()) == 1
    assert len(Ledger(root / "ledger.sqlite").entries()) == 1
    assert not (root / ".lock").exists()
