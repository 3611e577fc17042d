"""The processor or GPU that this process works on, and the memory that it may use."""

import logging
import multiprocessing
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.utilities.exceptions import MisconfigurationException

from pate._checkpoints import LocalCheckpoints
from pate._validation import expecting

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
        fields = dict(line.split(":", 1) for line in lines.read_text().splitlines())
        return int(_HEADROOM * int(fields["MemAvailable"].split()[0]) * 1024)
    return int(_HEADROOM * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Suppress the messages that Lightning prints for every trainer."""
    logger = logging.getLogger("pytorch_lightning")
    rank_zero = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    levels = logger.level, rank_zero.level
    logger.setLevel(logging.ERROR)
    rank_zero.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pytorch_lightning")
            warnings.filterwarnings("ignore", module="lightning_fabric")
            yield
    finally:
        logger.setLevel(levels[0])
        rank_zero.setLevel(levels[1])
