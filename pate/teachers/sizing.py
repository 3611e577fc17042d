"""The choice of how many teachers are trained at once: the fastest number that fits into memory.

It is measured on random data of the public shape, so that the choice reveals nothing about private records.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pate.teachers.chunk import TeacherChunk, make_networks
from pate.teachers.devices import available_bytes, root_device
from pate.teachers.plan import TeacherPlan

CHUNK_SIZES = (1, 5, 20, 50, 100)
"""Sizes to try, in ascending order."""

# weights, gradients and the two moments of Adam
_COPIES = 4
# what Lightning takes per step, whatever the size of a chunk
_LIGHTNING_SECONDS = 1.5e-3
# a size whose trial would take longer is not tried: its steps are heavy enough to be taken one by one
_TRIAL_SECONDS = 5.0
_TRIAL_STEPS = 4
# a larger chunk must save this much, because what it holds in memory is not free
_GAIN = 0.95


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """A choice of a chunk size.

    Attributes:
        chunk_size: number of teachers trained at once.
        needed_bytes: estimated memory of a chunk of this size.
        seconds: seconds that one step of one teacher took in the trial; NaN without a trial.
        said: messages to the user, line by line.
    """

    chunk_size: int
    needed_bytes: int
    seconds: float
    said: tuple[str, ...] = ()


def choose_size(plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, *, available: int | None = None) -> Sizing:
    """Choose a chunk size: ``plan.chunk_size`` halved until it fits, or the fastest if that is ``auto``.

    Args:
        plan: how teachers are trained.
        shape: shape of a record's features.
        num_labels: number of labels.
        available: bytes of memory that one chunk may take; None for the free memory.
    """
    device = root_device(plan.accelerator)
    available = available_bytes(device) if available is None else available
    said: list[str] = []
    if plan.chunk_size != "auto":
        size = fitting_size(plan, shape, num_labels, plan.chunk_size, available)
        if size < plan.chunk_size:
            needed = chunk_bytes(plan, shape, num_labels, plan.chunk_size)
            said.append(
                f"A chunk of {plan.chunk_size} teachers needs about {gigabytes(needed)} of {gigabytes(available)} GB:"
                f" halved to {size}."
            )
        needed = chunk_bytes(plan, shape, num_labels, size)
        return Sizing(chunk_size=size, needed_bytes=needed, seconds=np.nan, said=tuple(said))
    best, seconds = 1, np.inf
    for size in CHUNK_SIZES:
        if size > 1 and (
            size > plan.num_teachers
            or seconds * size * _TRIAL_STEPS > _TRIAL_SECONDS
            or chunk_bytes(plan, shape, num_labels, size) > available
        ):
            break
        taken = (step_seconds(plan, shape, num_labels, size, device=device) + _LIGHTNING_SECONDS) / size
        said.append(f"{size} at once: {taken * 1e3:.3g} ms per step of a teacher.")
        if taken * _GAIN > seconds:
            break
        if taken < _GAIN * seconds:
            best, seconds = size, taken
    said.append(f"Teachers are trained {best} at once.")
    return Sizing(
        chunk_size=best,
        needed_bytes=chunk_bytes(plan, shape, num_labels, best),
        seconds=seconds,
        said=tuple(said),
    )


def fitting_size(plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, size: int, available: int) -> int:
    """Return ``size``, halved until a chunk fits into ``available`` bytes; 1 is returned without a check."""
    while size > 1 and chunk_bytes(plan, shape, num_labels, size) > available:
        size //= 2
    return size


def chunk_bytes(plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, size: int) -> int:
    """Estimate the memory, in bytes, that a chunk of ``size`` needs in training: weights and saved activations.

    It runs a forward pass on torch's ``meta`` device, which computes shapes alone.
    """
    # stacked networks are alike: what many need follows from what two need
    stacked = min(size, 2)
    chunk = _trial_chunk(plan, shape, num_labels, stacked).to("meta")
    state = sum(p.numel() * p.element_size() for p in chunk.parameters())
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[id(tensor.untyped_storage())] = tensor.untyped_storage().nbytes()
        return tensor

    features = torch.empty(stacked, plan.batch_size, *shape, device="meta")
    labels = torch.empty(stacked, plan.batch_size, num_labels, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = chunk.teacher_losses(features, labels).sum()
    del loss
    return int((_COPIES * state + sum(kept.values())) * size / stacked)


def step_seconds(
    plan: TeacherPlan,
    shape: tuple[int, ...],
    num_labels: int,
    size: int,
    *,
    device: torch.device,
    limit: float = 0.4,
) -> float:
    """Return the median seconds of a step of a chunk of ``size``, tried for about ``limit`` seconds."""
    chunk = _trial_chunk(plan, shape, num_labels, size).to(device)
    optimizer = plan.optimizer(chunk.parameters())
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(size, plan.batch_size, *shape, generator=generator).to(device)
    labels = torch.randint(0, 2, (size, plan.batch_size, num_labels), generator=generator).float().to(device)
    taken: list[float] = []
    with torch.random.fork_rng(devices=[]):
        while len(taken) < _TRIAL_STEPS or (sum(taken) < limit and len(taken) < 30):
            start = time.perf_counter()
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=plan.precision == "bf16-mixed"):
                loss = chunk.teacher_losses(features, labels).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            taken.append(time.perf_counter() - start)
    # the first step creates the optimizer's state
    return float(np.median(taken[1:]))


def _trial_chunk(plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, size: int) -> TeacherChunk:
    chunk = TeacherChunk(
        make_networks(plan, shape, num_labels, teachers=range(size)),
        plan,
        positive_weights=np.ones((size, num_labels), dtype=np.float32),
        has_records=np.ones(size, dtype=np.bool_),
    )
    return chunk.train()


def gigabytes(size: int) -> str:
    """Return a number of bytes as GB, with three digits."""
    return f"{size / 1e9:.3g}"
