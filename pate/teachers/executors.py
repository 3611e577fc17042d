"""Where chunks of teachers are worked on: in this process, on local workers, on Ray, or as one share of many.

The work on a chunk is an idempotent job that leaves a file: one that was lost with its worker is done again, from its
last checkpoint, and nothing is done twice where the file is there.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import BrokenProcessPool

from pate.teachers.tally import ProgressFile, Report, Tally, telling
from pate.validation import expect, expect_count

Kind = Literal["serial", "loky", "ray"]
Pack = Callable[[range], Any]

# how often in a row all workers may be lost before a single chunk is done
_PATIENCE = 3
# glibc's malloc.h; larger blocks than this are given back to the system
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30


class Job(Protocol):
    """Work on a chunk. It must be picklable, and do nothing where its file is there."""

    def __call__(self, shared: Any, own: Any, teachers: range, report: Report, /) -> None:
        """Work on ``teachers`` with what all jobs share and what is packed for this one."""


@dataclass(frozen=True, kw_only=True)
class Executor:
    """Where jobs run.

    Args:
        kind: ``serial`` in this process, ``loky`` on local worker processes, ``ray`` on a Ray cluster or, where none is
            named by ``RAY_ADDRESS``, on one that is started on this machine. Workers read and write the run's folder.
        workers: how many jobs run at a time; on a Ray cluster its resources say how many.
        threads: processor threads of a job.
        gpus: share of a GPU that a job on Ray asks for.
    """

    kind: Kind = "serial"
    workers: int = 1
    threads: int = 1
    gpus: float = 0.0

    def __post_init__(self) -> None:
        expect(self.kind in ("serial", "loky", "ray"), "executor in serial, loky, ray", executor=self.kind)
        expect_count(1, workers=self.workers, threads=self.threads)
        alone = self.workers == 1
        expect(self.kind != "serial" or alone, "executor loky or ray for several workers", executor=self.kind)
        expect(self.gpus >= 0 and (not self.gpus or self.kind == "ray"), "gpus >= 0, with ray alone", gpus=self.gpus)


def run_jobs(
    job: Job,
    chunks: Sequence[range],
    *,
    executor: Executor,
    shared: Any,
    pack: Pack,
    is_done: Callable[[range], bool],
    report: Report,
    steps: int,
    progress: ProgressFile | None = None,
    public: bool = False,
) -> None:
    """Do ``job`` for every chunk that is not done.

    Args:
        job: what is done.
        chunks: the teachers of each chunk.
        executor: where.
        shared: what every job is given, sent to a worker process once or as a memory map.
        pack: makes what a chunk's job is given, when its turn has come.
        is_done: whether a chunk's file is there.
        report: is told of steps as they are done.
        steps: how many steps a job reports in all.
        progress: where a job in another process tells its steps while it works; at its end alone where None.
        public: whether large arrays may be memory-mapped, in files that the workers share, rather than sent.

    Raises ``RuntimeError`` where workers are lost again and again.
    """
    missing = [teachers for teachers in chunks if not is_done(teachers)]
    report(steps * (len(chunks) - len(missing)))
    if progress is not None:
        for teachers in missing:  # of a command that was killed
            progress(teachers).unlink(missing_ok=True)
    if executor.kind == "serial":
        _set_up_process(executor.threads)
        for teachers in missing:
            job(shared, pack(teachers), teachers, report)
        return
    with Tally(report, missing, steps, progress) as tally:
        if executor.kind == "loky":
            _run_on_loky(job, missing, executor, shared, pack, is_done, tally, progress, public)
        else:
            _run_on_ray(job, missing, executor, shared, pack, tally, progress)


def share_of(chunks: Sequence[range], share: str | None) -> list[range]:
    """Return the chunks of a share ``i/n`` with ``0 <= i < n``, all of them for None.

    ``rank`` is the share of a process started by torchrun or of a task of a SLURM array or job. Raises ``ValueError``
    on anything else.
    """
    if share is None:
        return list(chunks)
    if share == "rank":
        share = _rank_share()
    number, _, total = share.partition("/")
    expect(number.isdigit() and total.isdigit() and int(number) < int(total), "share i/n with 0 <= i < n", share=share)
    return list(chunks[int(number) :: int(total)])


def _rank_share() -> str:
    pairs = [
        ("RANK", "WORLD_SIZE", ""),
        ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"),
        ("SLURM_PROCID", "SLURM_NTASKS", ""),
    ]
    for number, total, first in pairs:
        if number in os.environ and total in os.environ:
            return f"{int(os.environ[number]) - int(os.environ.get(first, 0))}/{os.environ[total]}"
    raise ValueError("Expected RANK and WORLD_SIZE, or SLURM's task variables, for share='rank', got neither")


def _run_on_loky(
    job: Job,
    missing: list[range],
    executor: Executor,
    shared: Any,
    pack: Pack,
    is_done: Callable[[range], bool],
    tally: Tally,
    progress: ProgressFile | None,
    public: bool,
) -> None:
    lost = 0
    while missing:
        pool = Parallel(
            n_jobs=executor.workers,
            backend="loky",
            return_as="generator_unordered",
            batch_size=1,
            pre_dispatch="2*n_jobs",
            max_nbytes="1M" if public else None,
        )
        calls = (
            delayed(_work)(job, shared, pack(teachers), teachers, executor.threads, progress, os.getpid())
            for teachers in missing
        )
        try:
            with warnings.catch_warnings():
                # loky replaces workers whose memory grew; the jobs are not lost
                warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")
                for teachers in pool(calls):
                    tally.finish(teachers)
        except BrokenProcessPool:
            left = []
            for teachers in missing:
                if is_done(teachers):
                    tally.finish(teachers)
                else:
                    left.append(teachers)
            lost = 0 if len(left) < len(missing) else lost + 1
            if lost == _PATIENCE:
                raise RuntimeError(
                    f"Expected workers that live, got none: they were killed {_PATIENCE} times in a row, perhaps for"
                    f" want of memory, on {len(left)} chunks from teacher {left[0].start} on"
                ) from None
            missing = left
        else:
            return


def _run_on_ray(
    job: Job,
    missing: list[range],
    executor: Executor,
    shared: Any,
    pack: Pack,
    tally: Tally,
    progress: ProgressFile | None,
) -> None:
    try:
        import ray
    except ImportError:
        raise ValueError("Expected the package ray for executor='ray', got none: pip install 'pate[ray]'") from None
    if started := not ray.is_initialized():
        ray.init(
            num_cpus=None if os.environ.get("RAY_ADDRESS") else executor.workers * executor.threads,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={
                "env_vars": {"OMP_NUM_THREADS": str(executor.threads), "PYTHONPATH": os.pathsep.join(sys.path)}
            },
        )
    try:
        # a lost worker's job is submitted again; an error of the job itself is not
        work = ray.remote(num_cpus=executor.threads, num_gpus=executor.gpus, max_retries=_PATIENCE)(_work)
        common = ray.put(shared)
        cpus: float = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call, unused-ignore]
        slots = 2 * max(executor.workers, int(cpus // executor.threads))
        waiting = list(reversed(missing))
        running: list[Any] = []
        while waiting or running:
            while waiting and len(running) < slots:
                teachers = waiting.pop()
                running.append(work.remote(job, common, pack(teachers), teachers, executor.threads, progress, None))
            finished, running = ray.wait(running)
            for teachers in ray.get(finished):
                tally.finish(teachers)
    finally:
        if started:
            ray.shutdown()


def _work(
    job: Job,
    shared: Any,
    own: Any,
    teachers: range,
    threads: int,
    progress: ProgressFile | None,
    parent: int | None,
) -> range:
    _set_up_process(threads)
    tell = telling(progress(teachers) if progress else None)

    def report(steps: int) -> None:
        # without its parent a worker would race with the next command for the same files
        if parent is not None and os.getppid() != parent:
            os._exit(1)
        tell(steps)

    job(shared, own, teachers, report)
    return teachers


def _set_up_process(threads: int) -> None:
    torch.set_num_threads(threads)
    if platform.libc_ver()[0] == "glibc":
        # memory that is given back to the system after every step is zeroed anew, page by page, at the next:
        # a fifth of the time of a convolutional network
        libc = ctypes.CDLL(None)
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            libc.mallopt(parameter, _KEPT_BYTES)
