"""How many teachers are trained at once is found on random data of the public shape."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from models import Linear
from pate._core.files.writing import require_disk
from pate._networks.teachers.executors import make_trainer
from pate._networks.teachers.stage import choose_size, chunk_bytes, disk_bytes
from pate.teachers import VoteJob, VoteStore
from tests.networks.teachers.test_training import partitions, plan, records, train

PLENTY = 10**12


def test_memory_of_a_linear_head_by_hand() -> None:
    settings = plan(batch_size=32)
    found = chunk_bytes(settings, (512,), 20, 50)
    weights = 50 * (512 * 20 + 20) * 4
    # the batch and the logits are needed by backward
    needed = 4 * weights + 50 * 32 * (512 + 20) * 4
    assert needed <= found <= 1.5 * needed


def test_a_chunk_is_halved_until_it_fits() -> None:
    settings = plan(chunk_size=48, num_teachers=100)
    available = chunk_bytes(settings, (6,), 4, 13)
    size, (message,) = choose_size(settings, (6,), 4, available=available)
    assert size == 12
    assert "A chunk of 48 teachers needs about" in message and "halved to 12" in message
    assert choose_size(settings, (6,), 4, available=0)[0] == 1
    assert choose_size(settings, (6,), 4, available=PLENTY) == (48, [])


def test_the_disk_that_teachers_take_is_there_before_they_train(tmp_path: Path) -> None:
    settings = plan(network=Linear)
    assert disk_bytes(settings, (6,), 4, 100) == 100 * (6 * 4 + 4) * 4
    require_disk(1000, tmp_path / "new" / "teachers", "teachers")
    needed = f"{10**18 / 1e9:.3g}"
    with pytest.raises(
        ValueError,
        match=rf"^Expected {re.escape(needed)} GB of free disk for the teachers in .*, got free_gb=",
    ):
        require_disk(10**18, tmp_path / "new" / "teachers", "teachers")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("accelerator", "gpus", "expected"),
    [
        ("auto", 0, 1),
        ("auto", 1, 1),
        ("auto", 4, [2]),
        ("gpu", 8, [6]),
        ("cuda", 4, [2]),
        ("cpu", 4, 1),
    ],
)
def test_a_process_takes_the_gpu_of_its_number(
    accelerator: str, gpus: int, expected: int | list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    monkeypatch.setenv("LOCAL_RANK", "6")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(
        "pate._networks.teachers.executors.pl.Trainer",
        lambda **settings: taken.append(settings["devices"]),
    )
    make_trainer(accelerator)
    assert taken == [expected]


def test_teachers_vote_on_the_device_that_they_are_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = plan(num_steps=2)
    train(settings, records(), partitions([30, 30, 30, 30]), tmp_path)
    samples, store = records().features, VoteStore(tmp_path)
    job = VoteJob(
        plan=settings, teachers_folder=tmp_path, samples=samples, num_labels=4, store=store
    )
    monkeypatch.setattr(
        "pate._networks.teachers.training.root_device", lambda accelerator: torch.device("meta")
    )
    with pytest.raises(NotImplementedError, match="meta"):  # it computes nothing, and says so
        job.work(range(4), lambda steps: None)
