"""Each process of a machine takes a GPU of its own."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pate._networks.teachers.executors import make_trainer
from pate.teachers import VoteJob, VoteStore
from tests.networks.teachers.test_training import partitions, plan, records, train


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
