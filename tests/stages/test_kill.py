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
from tests.conftest import make_arrays, recipe


def start(folder: Path, root: Path) -> subprocess.Popen[bytes]:
    words = ["run", str(folder), "--run", str(root), "--label.noise_seed=3"]
    return subprocess.Popen([sys.executable, "-m", "pate.cli", *words], stdout=subprocess.DEVNULL)


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
    "label": "ledger.sqlite",
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


@pytest.mark.parametrize(
    "executor", ["serial", pytest.param("loky", marks=pytest.mark.slow), pytest.param("ray", marks=pytest.mark.slow)]
)
def test_interrupted_and_started_again(executor: str, unbroken: Path, tmp_path: Path) -> None:
    if executor == "ray":
        pytest.importorskip("ray")
    roots = tmp_path / "unbroken", tmp_path / "interrupted"
    assert fit(unbroken, roots[0]).wait() == 0
    (roots[1] / "private").mkdir(parents=True)
    shutil.copy(roots[0] / "private" / "partition.json", roots[1] / "private")
    where = [f"--executor={executor}", "--workers=2"] if executor != "serial" else []
    process = fit(unbroken, roots[1], *where)
    assert wait_for(roots[1], SIGNS["between checkpoints"], process)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 130, said
    assert said.endswith("pate teachers fit: interrupted; the same command goes on from here\n")
    deadline = time.monotonic() + 20
    while is_alive(process.pid):
        assert time.monotonic() < deadline, "workers outlive the command"
        time.sleep(0.1)
    done = list((roots[1] / "private" / "teachers").glob("*.pt"))
    assert len(done) < 5, "it was not interrupted in the middle"
    assert fit(unbroken, roots[1], *where).wait() == 0
    for path in (roots[0] / "private" / "teachers").glob("teachers_*"):
        assert (roots[1] / "private" / "teachers" / path.name).read_bytes() == path.read_bytes()
