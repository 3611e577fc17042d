"""How many teachers are trained at once is found on random data of the public shape."""

import multiprocessing
import re
import resource
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models import MLP, ConvNet, Linear, SmallCNN
from pate._core.files.writing import require_disk
from pate._labeling.data.records import as_features
from pate._networks.teachers.executors import make_trainer
from pate._networks.teachers.stage import chunk_bytes, disk_bytes, fitting_size
from pate.data import Records
from pate.teachers import (
    Execution,
    PartitionedRecords,
    TeacherPlan,
    TrainJob,
    VoteJob,
    VoteStore,
    run_jobs,
)
from tests.networks.teachers.test_training import partitions, plan, records, train

PLENTY = 10**12


def test_memory_of_a_linear_head_by_hand() -> None:
    settings = plan(batch_size=32)
    weights, batch = 50 * (512 * 20 + 20) * 4, 50 * 32 * 512 * 4
    # the layer takes a copy of the batch, and one of the weights, whose gradient comes beside
    needed = 5 * weights + 2 * batch
    assert needed <= chunk_bytes(settings, (512,), 20, 50) <= 1.5 * needed


def resnet(shape: tuple[int, ...], num_labels: int) -> torch.nn.Module:
    from torchvision.models import resnet18

    return resnet18(num_classes=num_labels)


# networks, shape, labels, teachers, records of a batch
SIZES: dict[str, tuple[Any, tuple[int, ...], int, int, int]] = {
    "linear": (Linear, (4096,), 20, 100, 64),
    "pictures": (partial(SmallCNN, widths=(16, 32, 64)), (3, 32, 32), 4, 40, 24),
    "one": (partial(ConvNet, widths=(32, 64)), (3, 64, 64), 5, 1, 96),
    "wide": (partial(MLP, hidden=(1200,)), (700,), 30, 24, 200),
    # no constant of the estimate was fitted on these
    "deep": (partial(MLP, hidden=(300, 300, 300)), (500,), 12, 60, 32),
    "resnet": (resnet, (3, 64, 64), 8, 3, 32),
}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_of(name: str, folder: Path) -> int:
    """Return the bytes that training takes at most, and voting on 288 samples afterwards."""
    network, shape, num_labels, chunk, batch = SIZES[name]

    def train(settings: TeacherPlan, shape: tuple[int, ...]) -> None:
        (folder / str(shape)).mkdir()
        labels = np.zeros((400, num_labels), dtype=np.uint8)
        features: Any = np.zeros((400, *shape), dtype=np.float32)
        records = Records(features=features, labels=labels, ids=np.arange(400).astype(str))
        data = PartitionedRecords.by_key(records, settings, bytes(16))
        job = TrainJob(plan=settings, data=data, folder=folder / str(shape))
        run_jobs(job, [range(chunk)], Execution(), lambda steps: None)

    small = plan(network=Linear, num_teachers=max(2, chunk), num_steps=2, chunk_size=chunk)
    train(small, (2,))  # what Lightning keeps is there from here on
    samples, before = np.zeros((288, *shape), dtype=np.float32), resident()
    settings = replace(small, network=network, batch_size=batch)
    train(settings, shape)
    store = VoteStore(folder / "votes")
    store.folder.mkdir()
    VoteJob(
        plan=settings,
        teachers_folder=folder / str(shape),
        samples=as_features(samples),
        num_labels=num_labels,
        store=store,
    ).work(range(chunk), lambda steps: None)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="reads the memory of Linux")
@pytest.mark.parametrize("name", SIZES)
def test_the_estimate_is_near_the_peak_of_training_and_voting(name: str, tmp_path: Path) -> None:
    network, shape, num_labels, chunk, batch = SIZES[name]
    settings = plan(network=network, batch_size=batch)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        peak = pool.submit(peak_of, name, tmp_path).result()
    said = chunk_bytes(settings, shape, num_labels, chunk)
    assert peak / 1.3 < said < peak * 1.3, f"{said / 1e6:.0f} MB said, {peak / 1e6:.0f} MB taken"


def test_a_chunk_is_halved_until_it_fits(capsys: pytest.CaptureFixture[str]) -> None:
    settings = plan(chunk_size=48, num_teachers=100)
    available = chunk_bytes(settings, (6,), 4, 13)
    assert fitting_size(settings, (6,), 4, available=available) == 12
    message = capsys.readouterr().out
    assert "A chunk of 48 teachers needs about" in message and "halved to 12" in message
    assert fitting_size(settings, (6,), 4, available=0) == 1
    capsys.readouterr()
    assert fitting_size(settings, (6,), 4, available=PLENTY) == 48
    assert not capsys.readouterr().out


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
