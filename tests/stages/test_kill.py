"""A run that is killed at any moment goes on, and ends where an unbroken one ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.accounting.ledger import Ledger
from tests.conftest import copy_run, make_arrays, recipe


def start(folder: Path, root: Path, *more: str, **how: Any) -> subprocess.Popen[Any]:
    ledger = f"--ledger={root}/ledger.sqlite"
    words = ["run", str(folder), "--run", str(root), "--label.noise_seed=3", ledger, *more]
    return subprocess.Popen([sys.executable, "-m", "pate.cli", *words], stdout=subprocess.DEVNULL, **how)


def wait_for(root: Path, sign: str, process: subprocess.Popen[Any]) -> bool:
    """Wait until ``sign`` exists in the run's folder; False if the run ended before."""
    while not list(root.glob(sign)):
        if process.poll() is not None:
            return bool(list(root.glob(sign)))
        time.sleep(0.002)
    return True


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed, with enough steps to be caught in."""
    place = tmp_path_factory.mktemp("unbroken")
    np.savez(place / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(place / "recipe", place / "data.npz", steps=100, chunk_size=2)
    assert start(folder, place / "run").wait() == 0
    return place


SIGNS = {
    "teachers fit": "private/teachers/teachers_00002.pt",
    "between checkpoints": "private/teachers/*.ckpt",
    "teachers vote": "private/teachers_vote.json",
    "label": "public/.labels.npz.*",
    "label written": "public/labels.npz",
    "student fit": "public/student/last.ckpt",
}


FAST = ("between checkpoints", "label")


@pytest.mark.parametrize(
    "stage", [stage if stage in FAST else pytest.param(stage, marks=pytest.mark.slow) for stage in SIGNS]
)
def test_killed_and_started_again(stage: str, unbroken: Path, tmp_path: Path) -> None:
    root = tmp_path / "run"
    (root / "private").mkdir(parents=True)
    shutil.copy(unbroken / "run" / "private" / "partition.json", root / "private")
    process = start(unbroken / "recipe", root)
    assert wait_for(root, SIGNS[stage], process)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert start(unbroken / "recipe", root).wait() == 0
    for name in ("teachers_00000.pt", "teachers_00008.pt"):
        name = f"private/teachers/{name}"
        assert (root / name).read_bytes() == (unbroken / "run" / name).read_bytes()
    for path in (unbroken / "run" / "private" / "votes").glob("*.npy"):
        assert (root / "private" / "votes" / path.name).read_bytes() == path.read_bytes()
    entries = Ledger(root / "ledger.sqlite").entries()
    assert entries[-1].settled
    if len(entries) == 1:  # killed after the reservation and before the labels, a second release is paid for
        for name in ("labels.npz", "student/metrics.json"):
            assert (root / "public" / name).read_bytes() == (unbroken / "run" / "public" / name).read_bytes()
    statement = json.loads((root / "public" / "privacy.json").read_text())
    assert len(statement["releases"]) == len(entries)


def fit(place: Path, root: Path, *where: str) -> subprocess.Popen[str]:
    configs = [f"--config={place / 'recipe' / name}.yaml" for name in ("data", "teachers")]
    words = ["teachers", "fit", *configs, "--run", str(root), "--num_steps=400", "--checkpoint_steps=40", *where]
    # in a session of its own, with the signals of a terminal, where Ctrl-C reaches the workers too
    return subprocess.Popen(
        [sys.executable, "-m", "pate.cli", *words],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
    )


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def terminate(process: subprocess.Popen[Any]) -> None:
    """End the command alone, as `timeout` and schedulers do: its workers are its own affair."""
    process.send_signal(signal.SIGTERM)


def interrupt(process: subprocess.Popen[Any]) -> None:
    os.killpg(process.pid, signal.SIGINT)


ENDS = {"interrupted": (interrupt, 130), "terminated": (terminate, 143)}


@pytest.mark.parametrize("how", list(ENDS))
@pytest.mark.parametrize(
    "executor", ["serial", pytest.param("loky", marks=pytest.mark.slow), pytest.param("ray", marks=pytest.mark.slow)]
)
def test_ended_and_started_again(executor: str, how: str, unbroken: Path, tmp_path: Path) -> None:
    end, code = ENDS[how]
    if executor == "ray":
        pytest.importorskip("ray")
    roots = tmp_path / "unbroken", tmp_path / "interrupted"
    assert fit(unbroken, roots[0]).wait() == 0
    (roots[1] / "private").mkdir(parents=True)
    shutil.copy(roots[0] / "private" / "partition.json", roots[1] / "private")
    where = [f"--executor={executor}", "--workers=2"] if executor != "serial" else []
    process = fit(unbroken, roots[1], *where)
    assert wait_for(roots[1], SIGNS["between checkpoints"], process)
    end(process)
    said = process.communicate()[1]
    assert process.returncode == code, said
    assert said.endswith(f"pate teachers fit: {how}; the same command goes on from here\n")
    assert "Traceback" not in said
    deadline = time.monotonic() + 20
    while is_alive(process.pid):
        assert time.monotonic() < deadline, "workers outlive the command"
        time.sleep(0.1)
    done = list((roots[1] / "private" / "teachers").glob("*.pt"))
    assert len(done) < 5, "it was not interrupted in the middle"
    assert fit(unbroken, roots[1], *where).wait() == 0
    for path in (roots[0] / "private" / "teachers").glob("teachers_*"):
        assert (roots[1] / "private" / "teachers" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_a_student_that_is_terminated_goes_on(unbroken: Path, tmp_path: Path) -> None:
    root = tmp_path / "run"
    copy_run(unbroken / "run", root)
    for name in ("public/student", "private/student_fit.json"):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    more = "--student.trainer.max_epochs=300"
    process = start(unbroken / "recipe", root, more, stderr=subprocess.PIPE, text=True)
    assert wait_for(root, SIGNS["student fit"], process)
    terminate(process)
    said = process.communicate()[1]
    assert process.returncode == 143, said
    assert said.endswith("pate run: terminated; the same command goes on from here\n")
    assert "Traceback" not in said
    assert not json.loads((root / "private" / "student_fit.json").read_text())["finished"]
    assert start(unbroken / "recipe", root, more).wait() == 0
    assert json.loads((root / "private" / "student_fit.json").read_text())["finished"]
    assert len(Ledger(root / "ledger.sqlite").entries()) == 1


def test_two_commands_on_one_run_pay_once(unbroken: Path, tmp_path: Path) -> None:
    root = tmp_path / "run"
    pair = [start(unbroken / "recipe", root, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in pair]
    codes = [process.returncode for process in pair]
    assert sorted(codes) == [0, 2], said
    refused = said[codes.index(2)]
    winner = pair[codes.index(0)].pid
    assert f"Expected a run that nobody else is writing, got {root} in use by process {winner} (pate run " in refused
    assert len(refused.splitlines()) == 1
    assert len(Ledger(root / "ledger.sqlite").entries()) == 1
    assert not (root / ".lock").exists()
