"""Wherever chunks are worked on, and whoever dies on the way, they leave the same files."""

import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from models import MLP, Linear
from pate.data.records import ArrayFeatures, Records
from pate.teachers.batches import own_records
from pate.teachers.executors import Executor, Kind, run_jobs, share_of
from pate.teachers.tally import Report
from pate.teachers.training import TeacherPlan, chunk_file, train_chunk
from pate.teachers.voting import vote_chunk
from pate.vote_store import VoteStore
from tests.conftest import make_arrays

NUM_TEACHERS = 6
PARTITIONS = [np.arange(t, 120, NUM_TEACHERS) for t in range(NUM_TEACHERS)]


class KilledOnce(Linear):
    """Kills its process in the middle of training, if nobody did before and it is not ``spared``."""

    def __init__(self, shape: Sequence[int], num_labels: int, *, flag: Path, spared: int) -> None:
        super().__init__(shape, num_labels)
        self.flag, self.spared, self.calls = flag, spared, 0

    def forward(self, features: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 8 and self.training and os.getpid() != self.spared and not self.flag.exists():
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


def _train(shared: Any, own: Any, teachers: range, report: Report) -> None:
    data, parts = own
    train_chunk(shared[0], teachers, data, parts, shared[1], report)


def _progress_file(folder: Path, teachers: range) -> Path:
    return folder / f"{teachers.start}.steps"


def _vote(shared: Any, own: None, teachers: range, report: Report) -> None:
    plan, folder, features, store = shared
    vote_chunk(plan, teachers, features, 4, folder, store)
    report(1)


def train_and_vote(plan: TeacherPlan, executor: Executor, folder: Path) -> tuple[dict[str, bytes], int]:
    """Return the files of teachers and votes by name, and how many steps were reported."""
    data = records()
    told: list[int] = []
    run_jobs(
        _train,
        plan.chunks(),
        executor=executor,
        shared=(plan, folder),
        pack=lambda teachers: own_records(data, PARTITIONS[teachers.start : teachers.stop]),
        is_done=lambda teachers: chunk_file(folder, teachers).is_file(),
        report=told.append,
        steps=plan.num_steps,
        progress=partial(_progress_file, folder),
    )
    store = VoteStore(folder / "votes")
    run_jobs(
        _vote,
        plan.chunks(),
        executor=executor,
        shared=(plan, folder, data.features, store),
        pack=lambda teachers: None,
        is_done=lambda teachers: store.chunk_file(teachers).is_file(),
        report=told.append,
        steps=1,
        public=True,
    )
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "flag"]
    return {path.name: path.read_bytes() for path in files}, sum(told)


@pytest.mark.parametrize("kind", ["loky", pytest.param("ray", marks=pytest.mark.slow)])
def test_two_workers_leave_the_files_of_one_process(kind: Kind, tmp_path: Path) -> None:
    serial, steps = train_and_vote(plan(), Executor(), tmp_path / "a")
    assert len(serial) == 9  # weights, votes and what the votes were made from
    assert steps == 3 * 12 + 3
    several, told = train_and_vote(plan(), Executor(kind=kind, workers=2), tmp_path / "b")
    assert several == serial
    assert told == steps


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["loky", "ray"])
def test_a_worker_that_is_killed_is_replaced(kind: Kind, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    settings = plan(network=partial(KilledOnce, flag=flag, spared=os.getpid()), chunk_size=1)
    serial, _ = train_and_vote(settings, Executor(), tmp_path / "a")
    assert not flag.exists()
    several, told = train_and_vote(settings, Executor(kind=kind, workers=2), tmp_path / "b")
    assert int(flag.read_text()) != os.getpid()
    assert several == serial
    assert told == 6 * 12 + 6


def _die(shared: None, own: None, teachers: range, report: Report) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_workers_that_always_die_are_given_up(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="Expected workers that live"):
        run_jobs(
            _die,
            [range(2)],
            executor=Executor(kind="loky", workers=2),
            shared=None,
            pack=lambda teachers: None,
            is_done=lambda teachers: False,
            report=lambda steps: None,
            steps=1,
        )


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    done: list[range] = []
    told: list[int] = []
    run_jobs(
        lambda shared, own, teachers, report: done.append(teachers),
        [range(2), range(2, 4), range(4, 5)],
        executor=Executor(),
        shared=None,
        pack=lambda teachers: None,
        is_done=lambda teachers: teachers.start == 2,
        report=told.append,
        steps=7,
    )
    assert done == [range(2), range(4, 5)]
    assert sum(told) == 7


def test_shares_make_up_the_whole() -> None:
    chunks = plan(num_teachers=23).chunks()
    shares = [share_of(chunks, f"{i}/5") for i in range(5)]
    assert sorted(t.start for share in shares for t in share) == [t.start for t in chunks]
    assert share_of(chunks, None) == chunks


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "1", "WORLD_SIZE": "3"},
        {"SLURM_ARRAY_TASK_ID": "11", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "10"},
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "3"},
    ],
)
def test_a_share_by_rank(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = plan().chunks()
    with pytest.raises(ValueError, match="got neither"):
        share_of(chunks, "rank")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert share_of(chunks, "rank") == chunks[1::3]


@pytest.mark.parametrize("share", ["4/4", "1", "a/b", "-1/2", "1/0", ""])
def test_bad_shares(share: str) -> None:
    with pytest.raises(ValueError, match="share i/n with 0 <= i < n"):
        share_of(plan().chunks(), share)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "dask"}, "executor in serial, loky, ray, got executor='dask'"),
        ({"workers": 0}, "workers >= 1"),
        ({"workers": 2}, "executor loky or ray for several workers"),
        ({"kind": "loky", "gpus": 0.5}, "gpus >= 0, with ray alone, got gpus=0.5"),
    ],
)
def test_bad_executors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Executor(**settings)
