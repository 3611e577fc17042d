"""Speed of training many teachers: milliseconds per teacher-epoch, as a Markdown table.

An epoch is one pass over 200 records in batches of 32, 20 labels. One Trainer ends it with a batch
of 8; chunks go on into the next pass, 6.25 steps an epoch. Every way trains the same network with
the same optimizer:

- one Trainer per teacher: the first attempt, Lightning with torch's own data set and loader, in
  a process of its own;
- one at a time: chunks of one teacher;
- stacked: chunks of several, as many as suit a processor, or 20 and more on a GPU;
- two workers: chunks of the faster kind on two processes that are already warm.

The ratio compares one Trainer per teacher with the fastest way. Records per second and the share
of the roof are for the faster way of one process. The roof is the least time that a step can take
on one core or GPU: the longer of its floating-point operations at the speed of a large matrix
product, and its bytes at the speed of a large copy. Weights are read or written ten times (forward,
backward, gradient, Adam), inputs read twice.

A GPU is used where there is one, for a ResNet-50 too.

    python scripts/bench_teachers.py [--rounds 3]
"""

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from models import MLP, Linear, ResNet8, ResNet50, SmallCNN
from pate._networks.teachers.executors import quiet_lightning
from pate.data import ArrayFeatures, Records
from pate.teachers import Execution, PartitionedRecords, TeacherPlan, TrainJob, run_jobs

RECORDS, BATCH, LABELS = 200, 32, 20
OPTIMIZER = partial(torch.optim.Adam, lr=0.01, fused=True)

CNN = partial(SmallCNN, groups=0)
# name: (network, network of one Trainer per teacher, shape, teachers stacked, epochs)
CASES: dict[
    str, tuple[Callable[..., nn.Module], Callable[..., nn.Module], tuple[int, ...], int, int]
] = {
    "linear on 512": (Linear, Linear, (512,), 100, 20),
    "MLP 512-128-20": (MLP, MLP, (512,), 20, 20),
    "3-layer CNN 32x32": (CNN, CNN, (3, 32, 32), 4, 8),
    "3-layer CNN 32x32, channels-last": (partial(CNN, channels_last=True), CNN, (3, 32, 32), 4, 8),
    "GroupNorm ResNet-8": (ResNet8, ResNet8, (3, 32, 32), 4, 8),
}
if torch.cuda.is_available():
    # a GPU is filled by many small networks
    CASES = {name: (*case[:3], max(50, case[3]), case[4]) for name, case in CASES.items()}
    CASES["GroupNorm ResNet-50 64x64"] = (ResNet50, ResNet50, (3, 64, 64), 20, 4)


class OneTeacher(pl.LightningModule):
    """A teacher as one writes it first."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        features, labels = batch
        return binary_cross_entropy_with_logits(self.network(features), labels)

    def configure_optimizers(self) -> Any:
        """Return the optimizer of the network."""
        return OPTIMIZER(self.parameters())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds that a median is taken of")
    rounds = parser.parse_args(arguments).rounds
    torch.set_num_threads(1)
    device = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"{os.cpu_count()} processors"
    )
    load = os.getloadavg()[0]
    print(
        f"Python {platform.python_version()}, torch {torch.__version__}, {device}, load before the run {load:.1f}.\n"
    )
    print(
        "| network | one Trainer per teacher | one at a time | stacked | two workers | ratio | records/s | of roof |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, case in CASES.items():
        print(row(name, *case, rounds=rounds), flush=True)


def row(
    name: str,
    network: Callable[..., nn.Module],
    first: Callable[..., nn.Module],
    shape: tuple[int, ...],
    stacked: int,
    epochs: int,
    *,
    rounds: int,
) -> str:
    """Time every way of training one network, and return its row of the table."""
    data, parts = make_records(shape, 2 * stacked)
    make = partial(make_plan, network, epochs=epochs)
    few = min(10, max(2, stacked // 4))  # teachers that are trained one by one
    two = Execution(workers=2)
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        ways: list[Callable[[], float]] = [
            lambda: apart.submit(
                one_trainer_each, first, shape, data, parts[:few], epochs
            ).result(),
            lambda: chunks(make(chunk_size=1, num_teachers=few), data, parts, Execution()),
            lambda: chunks(
                make(chunk_size=stacked, num_teachers=stacked), data, parts, Execution()
            ),
        ]
        warm_up = [way() for way in ways]
        size = 1 if warm_up[1] < warm_up[2] else stacked
        ways.append(
            lambda: chunks(make(chunk_size=size, num_teachers=2 * stacked), data, parts, two)
        )
        ways[-1]()
        times = [[way() for way in ways] for _ in range(rounds)]
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    cells = [f"{1e3 * seconds:.3g}" for seconds in medians]
    cells[2] += f" ({stacked})"
    rate = RECORDS / min(medians[1:3])
    share = rate * least_seconds(network(shape, LABELS), shape) / BATCH
    return f"| {' | '.join([name, *cells])} | {medians[0] / min(medians[1:]):.1f} | {rate:,.0f} | {share:.0%} |"


def least_seconds(network: nn.Module, shape: tuple[int, ...]) -> float:
    """Return the least time of a step of a teacher by the roofline of one core or GPU."""
    features = torch.randn(BATCH, *shape)
    with FlopCounterMode(display=False) as counter:
        network(features).sum().backward()
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    moved = 10 * weights + 2 * features.numel() * features.element_size()
    operations, bandwidth = roof()
    return max(int(counter.get_total_flops()) / operations, moved / bandwidth)


@cache
def roof() -> tuple[float, float]:
    """Return operations per second of a large product, and bytes per second of a copy."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = 4096 if device.type == "cuda" else 1024
    a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    large = torch.randn(32 * 2**20, device=device)
    other = torch.empty_like(large)
    ways: list[Callable[[], object]] = [lambda: torch.mm(a, b), lambda: other.copy_(large)]
    product, copy = (statistics.median([timed(way, device) for _ in range(20)]) for way in ways)
    return 2 * size**3 / product, 2 * large.numel() * large.element_size() / copy


def timed(way: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that a call takes on a device."""
    start = time.perf_counter()
    way()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def make_records(shape: tuple[int, ...], num_teachers: int) -> tuple[Records, list[np.ndarray]]:
    """Return random records, and the rows of each teacher's partition."""
    generator = np.random.default_rng(0)
    num = num_teachers * RECORDS
    ids = np.char.mod("r%d", np.arange(num))
    features = generator.standard_normal((num, *shape), dtype=np.float32)
    labels = generator.integers(0, 2, (num, LABELS), dtype=np.uint8)
    records = Records(features=ArrayFeatures(features), labels=labels, ids=ids, groups=ids)
    return records, [np.arange(start, start + RECORDS) for start in range(0, num, RECORDS)]


def make_plan(
    network: Callable[..., nn.Module], *, chunk_size: int, num_teachers: int, epochs: int
) -> TeacherPlan:
    """Return the plan of teachers that see ``epochs`` passes of their records."""
    return TeacherPlan(
        network=network,
        optimizer=OPTIMIZER,
        num_teachers=num_teachers,
        num_steps=RECORDS * epochs // BATCH,
        batch_size=BATCH,
        chunk_size=chunk_size,
    )


def one_trainer_each(
    network: Callable[..., nn.Module],
    shape: tuple[int, ...],
    records: Records,
    parts: list[np.ndarray],
    epochs: int,
) -> float:
    """Return the seconds per teacher-epoch of one Trainer per teacher."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    for part in parts:
        features = torch.from_numpy(np.asarray(records.features[part]))
        dataset = TensorDataset(features, torch.from_numpy(records.labels[part]).float())
        with quiet_lightning():
            trainer = pl.Trainer(
                max_epochs=epochs,
                devices=1,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            trainer.fit(
                OneTeacher(network(shape, LABELS)),
                DataLoader(dataset, batch_size=BATCH, shuffle=True),
            )
    return (time.perf_counter() - start) / len(parts) / epochs


def chunks(
    plan: TeacherPlan, records: Records, parts: list[np.ndarray], execution: Execution
) -> float:
    """Return the seconds per teacher-epoch of chunks of a plan."""
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        job = TrainJob(
            plan=plan, data=PartitionedRecords(records, dict(enumerate(parts))), folder=Path(name)
        )
        run_jobs(job, plan.chunks(), execution, lambda steps: None)
        seconds = time.perf_counter() - start
    return seconds / plan.num_teachers / (plan.num_steps * BATCH / RECORDS)


if __name__ == "__main__":
    main()
