"""A run that is killed at any moment goes on, and ends where an unbroken one ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pate.accounting.ledger import Ledger
from tests.conftest import make_arrays, recipe


def start(folder: Path, root: Path) -> subprocess.Popen[bytes]:
    words = ["run", str(folder), "--run", str(root), "--label.noise_seed=3"]
    return subprocess.Popen([sys.executable, "-m", "pate.cli", *words], stdout=subprocess.DEVNULL)


def wait_for(root: Path, sign: str, process: subprocess.Popen[bytes]) -> bool:
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
