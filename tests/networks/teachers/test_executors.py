"""Wherever chunks are worked on, and whoever dies on the way, they leave the same files."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import create_autospec

import numpy as np
import pytest
import torch
from torch import Tensor

from models import MLP, Linear
from pate._labeling.teachers import Kind
from pate._networks.teachers import executors
from pate._networks.teachers.executors import Report, local_rank
from pate.data import ArrayFeatures, Records
from pate.teachers import (
    ChunkJob,
    Execution,
    PartitionedRecords,
    TeacherPlan,
    TrainJob,
    VoteJob,
    VoteStore,
    run_jobs,
)
from tests.conftest import make_arrays

NUM_TEACHERS = 6
PARTITIONS = [np.arange(t, 120, NUM_TEACHERS) for t in range(NUM_TEACHERS)]


class KilledOnce(Linear):
    """Kills its process in the middle of training, if nobody did before and it is not
    ``spared``."""

    def __init__(self, shape: Sequence[int], num_labels: int, *, flag: Path, spared: int) -> None:
        super().__init__(shape, num_labels)
        self.flag, self.spared, self.calls = flag, spared, 0

    def forward(self, features: Tensor) -> Tensor:
        self.calls += 1
        if (
            self.calls == 8
            and self.training
            and os.getpid() != self.spared
            and not self.flag.exists()
        ):
            self.flag.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        logits: Tensor = super().forward(features)  # type: ignore[no-untyped-call]
        return logits


def records() -> Records:
    arrays = make_arrays(120)
    ids = np.char.mod("%04d", np.arange(120))
    return Records(features=ArrayFeatures(arrays["X"]), labels=arrays["Y"], ids=ids, groups=ids)


def plan(**changes: Any) -> TeacherPlan:
    settings: dict[str, Any] = {
        "network": partial(MLP, hidden=(5,), dropout=0.3),
        "optimizer": partial(torch.optim.Adam, lr=0.05),
        "num_teachers": NUM_TEACHERS,
        "num_steps": 12,
        "batch_size": 8,
        "chunk_size": 2,
        "checkpoint_steps": 5,
        "accelerator": "cpu",
    }
    return TeacherPlan(**settings | changes)


@dataclass(frozen=True, kw_only=True)
class NumberedJob(TrainJob):
    """Leaves the name and the number of the process that a chunk was trained in."""

    names: Path

    def work(self, teachers: range, report: Report) -> None:
        said = f"{os.getpid()} {multiprocessing.current_process().name} {local_rank()}"
        (self.names / str(teachers.start)).write_text(said)
        super().work(teachers, report)


class SentVoteJob(VoteJob):
    """Votes in the processes that trained: loky starts others for arrays that may lie in files."""

    public: ClassVar[bool] = False


@dataclass(frozen=True)
class BareJob(ChunkJob):
    """Calls a function for each chunk of which there is no file."""

    done: Callable[[range], object]
    folder: Path

    num_steps = 7

    def file(self, teachers: range) -> Path:
        return self.folder / str(teachers.start)

    def work(self, teachers: range, report: Report) -> None:
        self.done(teachers)


def train_and_vote(
    plan: TeacherPlan, execution: Execution, folder: Path
) -> tuple[dict[str, bytes], int]:
    """Return the files of teachers and votes by name, and how many steps were reported."""
    data = PartitionedRecords(records(), dict(enumerate(PARTITIONS)))
    told: list[int] = []
    names = folder.with_name(f"{folder.name}_processes")
    names.mkdir()
    run_jobs(
        NumberedJob(plan=plan, data=data, folder=folder, names=names),
        plan.chunks(),
        execution,
        told.append,
    )
    store, samples = VoteStore(folder / "votes"), data.records.features
    vote = SentVoteJob(
        plan=plan, teachers_folder=folder, samples=samples, num_labels=4, store=store
    )
    run_jobs(vote, plan.chunks(), execution, told.append)
    # a worker that is killed with another one may leave a draft, which the next command on the run clears
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name != "flag" and path.name[0] != "."
    ]
    return {path.name: path.read_bytes() for path in files}, sum(told)


@pytest.mark.parametrize("kind", ["loky", "ray"])
@pytest.mark.slow
def test_two_workers_leave_the_files_of_one_process(kind: Kind, tmp_path: Path) -> None:
    serial, steps = train_and_vote(plan(), Execution(), tmp_path / "a")
    assert len(serial) == 9  # weights, votes and what the votes were made from
    assert steps == 3 * 12 + 3
    several, told = train_and_vote(plan(), Execution(executor=kind, workers=2), tmp_path / "b")
    assert several == serial
    assert told == steps
    said = [path.read_text().split() for path in (tmp_path / "b_processes").iterdir()]
    assert len(said) == 3 and str(os.getpid()) not in [pid for pid, _, _ in said]
    if kind == "loky":  # by which each takes a GPU of its own
        assert all(name == f"LokyProcess-{int(number) + 1}" for _, name, number in said)


def test_a_worker_is_sent_the_records_of_its_teachers_and_no_others(tmp_path: Path) -> None:
    whole = PartitionedRecords(records(), dict(enumerate(PARTITIONS)))
    sent = TrainJob(plan=plan(), data=whole, folder=tmp_path).only(range(2, 4))
    assert set(sent.data.rows) == {2, 3} and sum(sent.data.sizes) == 40
    assert sorted(sent.data.records.ids) == sorted(
        whole.records.ids[np.concatenate(PARTITIONS[2:4])]
    )


class _EndedError(Exception):
    pass


def test_a_worker_ends_with_its_parent_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    job = create_autospec(ChunkJob, instance=True)
    job.work.side_effect = lambda teachers, report: report(1)

    def end(status: int) -> None:
        raise _EndedError

    monkeypatch.setattr(executors, "_set_up_process", lambda threads: None)
    monkeypatch.setattr(os, "_exit", end)
    for parent in (None, os.getppid()):
        assert executors._work(job, range(2), 1, parent) == range(2)
    with pytest.raises(_EndedError):
        executors._work(job, range(2), 1, -1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loky", "ray"])
def test_a_worker_that_is_killed_is_replaced(kind: Kind, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    settings = plan(network=partial(KilledOnce, flag=flag, spared=os.getpid()), chunk_size=1)
    serial, _ = train_and_vote(settings, Execution(), tmp_path / "a")
    assert not flag.exists()
    several, told = train_and_vote(settings, Execution(executor=kind, workers=2), tmp_path / "b")
    assert int(flag.read_text()) != os.getpid()
    assert several == serial
    assert told == 6 * 12 + 6


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    done: list[range] = []
    told: list[int] = []
    (tmp_path / "2").touch()
    chunks = [range(2), range(2, 4), range(4, 5)]
    run_jobs(BareJob(done.append, tmp_path), chunks, Execution(), told.append)
    assert done == [range(2), range(4, 5)]
    assert sum(told) == 7
