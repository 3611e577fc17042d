"""Jobs on chunks of teachers, and where they run: in this process, on local workers, or on Ray.

The work on each chunk writes a file, and a chunk with a file is not done again. If a worker is
lost, its chunk resumes from the last checkpoint. A process works on its processor or on the GPU of
its rank, and a chunk may take a share of the memory that is free. At the end the files of
checkpoints, of teachers and students.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import platform
import signal
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pytorch_lightning as pl
import torch
from joblib import Parallel, delayed
from joblib.externals.loky.process_executor import BrokenProcessPool
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning_fabric.utilities.exceptions import MisconfigurationException

from pate._core.files.reading import read_lines, regular
from pate._core.files.writing import atomic_write
from pate._core.validation import expecting, explain_shortage
from pate._labeling.teachers import Execution

if TYPE_CHECKING:
    from ray import ObjectRef

Report = Callable[[int], object]
"""Called with the number of further steps that are done."""


class ChunkJob(ABC):
    """Work to be done for each of many chunks of teachers; picklable.

    The work on a chunk writes a file, and can safely be repeated if it was lost halfway.
    """

    public: ClassVar[bool] = False
    """Whether the job's large arrays are public, and may lie in a file that workers map."""

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """The total number of steps that the work on one chunk reports."""

    @abstractmethod
    def file(self, teachers: range) -> Path:
        """Return the file that the work on a chunk writes."""

    def is_done(self, teachers: range) -> bool:
        """Whether the file of a chunk exists."""
        return self.file(teachers).is_file()

    @abstractmethod
    def work(self, teachers: range, report: Report) -> None:
        """Work on the chunk of ``teachers``, write its file and ``report`` its steps."""

    def only(self, teachers: range) -> Self:
        """Return the job with only the data for one chunk, to be sent to a worker."""
        return self


# how often in a row all workers may be lost without finishing a single chunk
_PATIENCE = 3
# from glibc's malloc.h; only blocks larger than this are returned to the system
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30


def run_jobs(job: ChunkJob, chunks: Sequence[range], execution: Execution, report: Report) -> None:
    """Do ``job`` for every chunk that is not done yet.

    Args:
        job: the job.
        chunks: the teachers of each chunk.
        execution: where the job runs.
        report: called with the number of steps as they are done, and with all steps of chunks that
            were done before. Workers report the steps of a chunk at its end.

    Raises:
        RuntimeError: if workers are lost again and again.
        ValueError: if Ray is asked for and not installed, or if the job raises it.
    """
    missing = [teachers for teachers in chunks if not job.is_done(teachers)]
    report(job.num_steps * (len(chunks) - len(missing)))
    if execution.kind == "serial":
        _set_up_process(execution.threads)
        for teachers in missing:
            job.only(teachers).work(teachers, report)
        return
    runners = {"loky": _run_on_loky, "ray": _run_on_ray}
    runners[execution.kind](job, missing, execution, report)


def _run_on_loky(job: ChunkJob, missing: list[range], execution: Execution, report: Report) -> None:
    lost = 0

    def done(teachers: range) -> None:
        missing.remove(teachers)
        report(job.num_steps)

    while missing:
        before = len(missing)
        pool = Parallel(
            n_jobs=execution.workers,
            backend="loky",
            return_as="generator_unordered",
            batch_size=1,
            pre_dispatch="2*n_jobs",
            max_nbytes="1M" if job.public else None,
        )
        calls = (
            delayed(_work)(job.only(teachers), teachers, execution.threads, os.getpid())
            for teachers in tuple(missing)
        )
        try:
            with warnings.catch_warnings():
                # loky replaces workers whose memory grew; the jobs are not lost
                warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")
                for teachers in pool(calls):
                    done(teachers)
        except BrokenProcessPool:
            for teachers in filter(job.is_done, tuple(missing)):
                done(teachers)
            lost = 0 if len(missing) < before else lost + 1
            if lost == _PATIENCE:
                first = missing[0]
                raise RuntimeError(
                    f"Workers were killed {_PATIENCE} times in a row without finishing a chunk;"
                    " out of memory?"
                    f" {len(missing)} chunks are left, the first of them teachers"
                    f" {first.start} to {first.stop - 1}."
                    " Fewer `workers` or a smaller `chunk_size` takes less memory"
                ) from None


def _run_on_ray(job: ChunkJob, missing: list[range], execution: Execution, report: Report) -> None:
    with expecting(
        "the package ray for executor='ray'", ImportError, got="none: pip install 'pate[ray]'"
    ):
        import ray
        from ray.job_config import JobConfig
    if started := not ray.is_initialized():
        terminate = signal.getsignal(signal.SIGTERM)
        address = os.environ.get("RAY_ADDRESS")
        ray.init(
            # by default Ray joins any cluster that runs here, of any size and any owner
            address=address or "local",
            num_cpus=None if address else execution.workers * execution.threads,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            # a client's: workers of any other import from the working directory of this process
            # first
            job_config=JobConfig(_client_job=True),
            runtime_env={
                "env_vars": {
                    "OMP_NUM_THREADS": str(execution.threads),
                    "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
                    "PYTHONSAFEPATH": "1",
                }
            },
        )
        if terminate is not None and threading.current_thread() is threading.main_thread():
            # Ray has replaced our handler by one that prints a trace and may abort the process
            signal.signal(signal.SIGTERM, terminate)
    try:
        # the work of a lost worker is submitted again; an error of the job itself is not
        work = ray.remote(
            num_cpus=execution.threads, num_gpus=execution.gpus, max_retries=_PATIENCE
        )(_work)
        whole: ObjectRef[ChunkJob] | None = None
        if type(job).only is ChunkJob.only:  # data common to all chunks are stored once
            whole = ray.put(job)
        cpus: float = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call, unused-ignore]
        slots = 2 * max(execution.workers, int(cpus // execution.threads))
        waiting = list(reversed(missing))
        running: list[ObjectRef[range]] = []
        while waiting or running:
            while waiting and len(running) < slots:
                teachers = waiting.pop()
                sent = job.only(teachers) if whole is None else whole
                running.append(work.remote(sent, teachers, execution.threads, None))
            finished, running = ray.wait(running)
            for _ in ray.get(finished):
                report(job.num_steps)
    finally:
        if started:
            ray.shutdown()


def _work(job: ChunkJob, teachers: range, threads: int, parent: int | None) -> range:
    _set_up_process(threads)

    def report(_: int) -> None:
        # without its parent a worker would race with the next command for the same files
        if parent is not None and os.getppid() != parent:
            os._exit(1)

    job.work(teachers, report)
    return teachers


def _set_up_process(threads: int) -> None:
    torch.set_num_threads(threads)
    if platform.libc_ver()[0] == "glibc":
        # memory returned to the system after each step is zeroed again, page by page, at the next:
        # a fifth of the time of a convolutional network
        libc = ctypes.CDLL(None)
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            libc.mallopt(parameter, _KEPT_BYTES)


# the estimate of a chunk leaves out temporary results of operations, and fragmentation
_HEADROOM = 0.6


def make_trainer(accelerator: str, **settings: object) -> pl.Trainer:
    """Return a trainer for this process only, on the processor or on the GPU of its local rank.

    Teachers never communicate, so that each rank of torchrun or SLURM trains its share by itself.
    """
    # under Ray, and in SLURM tasks that are bound to a GPU, only one is visible
    gpus = torch.cuda.device_count() if accelerator in ("auto", "gpu", "cuda") else 0
    with expecting(
        "an accelerator that this machine has", MisconfigurationException, got=accelerator
    ):
        return pl.Trainer(
            accelerator=accelerator,
            devices=[local_rank() % gpus] if gpus > 1 else 1,
            plugins=[LightningEnvironment(), LocalCheckpoints()],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **settings,  # type: ignore[arg-type]
        )


def local_rank() -> int:
    """Return the number of this process on its machine, by torchrun, SLURM or loky's workers."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        if name in os.environ:
            return int(os.environ[name])
    kind, _, number = multiprocessing.current_process().name.partition("-")
    return int(number) - 1 if kind == "LokyProcess" else 0


@cache
def root_device(accelerator: str) -> torch.device:
    """Return the device that this process trains on and votes on."""
    with quiet_lightning():
        return make_trainer(accelerator, enable_checkpointing=False).strategy.root_device


def available_bytes(device: torch.device) -> int:
    """Return the memory that a chunk may take on ``device``, in bytes, with a margin left over."""
    if device.type == "cuda":
        return int(_HEADROOM * torch.cuda.mem_get_info(device)[0])
    lines = Path("/proc/meminfo")
    if lines.is_file():
        fields = dict(line.split(":", 1) for line in read_lines(lines))
        return int(_HEADROOM * int(fields["MemAvailable"].split()[0]) * 1024)
    return int(_HEADROOM * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Suppress the messages that Lightning prints for every trainer."""
    names = "pytorch_lightning", "pytorch_lightning.utilities.rank_zero"
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in names}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            warnings.filterwarnings("ignore", module="lightning_fabric")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


_PLACES = ("dirpath", "best_model_path", "kth_best_model_path", "last_model_path")


class LocalCheckpoints(TorchCheckpointIO):
    """Writes each checkpoint through a draft in its own folder, with relative paths inside.

    Lightning uses the system's temporary folder, where a killed process would leave PRIVATE
    weights, and which may lie on another, smaller disk. Paths are relative to the checkpoint's
    folder, so that a checkpoint reveals nothing of the machine and may move with its run.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write the checkpoint, atomically."""
        folder = os.path.realpath(Path(path).parent)
        with atomic_write(Path(path)) as file:
            torch.save(_with_places(checkpoint, lambda place: os.path.relpath(place, folder)), file)

    def load_checkpoint(self, path: str | Path, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the checkpoint, with paths from its present folder."""
        folder = os.path.realpath(Path(path).parent)
        content = super().load_checkpoint(path, *args, **options)
        return _with_places(content, lambda place: os.path.normpath(os.path.join(folder, place)))


def _with_places(checkpoint: dict[str, Any], move: Callable[[str], str]) -> dict[str, Any]:
    """Return a checkpoint with the places in its callbacks replaced by ``move``."""
    callbacks = {}
    for name, state in checkpoint.get("callbacks", {}).items():
        callbacks[name] = state | {key: move(state[key]) for key in _PLACES if state.get(key)}
        if "best_k_models" in state:
            callbacks[name]["best_k_models"] = {
                move(place): score for place, score in state["best_k_models"].items()
            }
    return checkpoint | {"callbacks": callbacks}


def load_tensors(path: Path, wanted: str) -> dict[str, Any]:
    """Return the content of a file of torch, whose large tensors are read when they are used.

    Raises ``ValueError`` if it is not as ``wanted``: damaged, or with objects that are code.
    """
    try:
        return torch.load(regular(path), weights_only=True, map_location="cpu", mmap=True)
    # the exception that torch raises depends on where the file is truncated
    except (LookupError, RuntimeError, OSError, EOFError, ValueError, UnpicklingError) as error:
        if explain_shortage(error) is not None:
            raise  # it is the machine that fails, not the file
        reason = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise ValueError(f"Expected {wanted}, got {path} ({reason})") from None
