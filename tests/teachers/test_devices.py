"""Each process of a machine takes a GPU of its own."""

import multiprocessing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from models import Linear
from pate.teachers.devices import available_bytes, local_rank, make_trainer, root_device
from pate.teachers.executors import Executor, run_jobs
from pate.teachers.tally import Report
from pate.teachers.training import TeacherPlan, chunk_file, train_chunk
from pate.teachers.voting import vote_chunk
from pate.vote_store import VoteStore
from tests.teachers.test_training import partitions, records


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "number"),
    [({}, 0), ({"LOCAL_RANK": "3"}, 3), ({"SLURM_LOCALID": "2"}, 2), ({"LOCAL_RANK": "1", "SLURM_LOCALID": "0"}, 1)],
)
def test_the_number_of_a_process(variables: dict[str, str], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert local_rank() == number


def _write_number(folder: Path, own: None, teachers: range, report: Report) -> None:
    (folder / str(teachers.start)).write_text(f"{multiprocessing.current_process().name} {local_rank()}")


def test_workers_of_loky_are_numbered(tmp_path: Path) -> None:
    run_jobs(
        _write_number,
        [range(number, number + 1) for number in range(4)],
        executor=Executor(kind="loky", workers=2),
        shared=tmp_path,
        pack=lambda teachers: None,
        is_done=lambda teachers: (tmp_path / str(teachers.start)).is_file(),
        report=lambda steps: None,
        steps=1,
    )
    said = [path.read_text().split() for path in tmp_path.iterdir()]
    assert len(said) == 4
    for name, number in said:
        assert name == f"LokyProcess-{int(number) + 1}"


@pytest.mark.parametrize(
    ("accelerator", "gpus", "expected"),
    [("auto", 0, 1), ("auto", 1, 1), ("auto", 4, [2]), ("gpu", 8, [6]), ("cuda", 4, [2]), ("cpu", 4, 1)],
)
def test_a_process_takes_the_gpu_of_its_number(
    accelerator: str, gpus: int, expected: int | list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    monkeypatch.setenv("LOCAL_RANK", "6")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr("pate.teachers.devices.pl.Trainer", lambda **settings: taken.append(settings["devices"]))
    make_trainer(accelerator)
    assert taken == [expected]


def test_teachers_vote_on_the_device_that_they_are_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = TeacherPlan(
        network=Linear,
        optimizer=partial(torch.optim.SGD, lr=0.1),
        num_teachers=2,
        num_steps=2,
        batch_size=4,
        chunk_size=2,
        accelerator="cpu",
    )
    train_chunk(plan, range(2), records(), partitions([30, 30]), tmp_path, lambda steps: None)
    assert chunk_file(tmp_path, range(2)).is_file()
    monkeypatch.setattr("pate.teachers.voting.root_device", lambda accelerator: torch.device("meta"))
    with pytest.raises(NotImplementedError, match="meta"):  # it computes nothing, and says so
        vote_chunk(plan, range(2), records().features, 4, tmp_path, VoteStore(tmp_path))


def test_the_processor_has_memory() -> None:
    assert root_device("cpu") == torch.device("cpu")
    assert 0 < available_bytes(torch.device("cpu")) < 2**50
