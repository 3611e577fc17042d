"""The number of teachers trained at once, by memory and speed, and the cost of training.

Both are measured on random data of the public shape, so that the choice reveals nothing about
private records.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pate._core.files.writing import gigabytes
from pate._labeling.teachers import Execution
from pate._networks.teachers.executors import available_bytes, root_device
from pate._networks.teachers.plan import TeacherPlan
from pate._networks.teachers.training import TeacherChunk, make_networks

CHUNK_SIZES = (1, 5, 20, 50, 100)
"""Sizes to try, in ascending order."""

# weights, gradients and the two moments of Adam
_COPIES = 4
# the time that Lightning takes per step, for chunks of any size
_LIGHTNING_SECONDS = 1.5e-3
# a size with a longer trial is not tried: its steps are heavy enough to be taken one by one
_TRIAL_SECONDS = 5.0
_TRIAL_STEPS = 4
# a larger chunk must be faster by 5%, because its memory is not free
_GAIN = 0.95


def choose_size(
    plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, *, available: int | None = None
) -> tuple[int, list[str]]:
    """Choose a chunk size: ``plan.chunk_size`` halved until it fits, or the fastest for ``auto``.

    A chunk is the teachers that are trained at once. Messages for the user are returned, too.

    Args:
        plan: how teachers are trained.
        shape: shape of a record's features.
        num_labels: number of labels.
        available: bytes of memory that one chunk may take. None for the free memory.
    """
    device = root_device(plan.accelerator)
    available = available_bytes(device) if available is None else available
    messages: list[str] = []
    if plan.chunk_size != "auto":
        size = plan.chunk_size
        while size > 1 and chunk_bytes(plan, shape, num_labels, size) > available:
            size //= 2
        if size < plan.chunk_size:
            needed = gigabytes(chunk_bytes(plan, shape, num_labels, plan.chunk_size))
            messages.append(
                f"A chunk of {plan.chunk_size} teachers needs about {needed} of"
                f" {gigabytes(available)} GB: halved to {size}."
            )
        return size, messages
    best, seconds = 1, np.inf
    for size in CHUNK_SIZES:
        if size > 1 and (
            size > plan.num_teachers
            or seconds * size * _TRIAL_STEPS > _TRIAL_SECONDS
            or chunk_bytes(plan, shape, num_labels, size) > available
        ):
            break
        per_teacher = (
            step_seconds(plan, shape, num_labels, size, device=device) + _LIGHTNING_SECONDS
        ) / size
        messages.append(f"{size} at once: {per_teacher * 1e3:.3g} ms per step of a teacher.")
        if per_teacher * _GAIN > seconds:
            break
        if per_teacher < _GAIN * seconds:
            best, seconds = size, per_teacher
    return best, [*messages, f"Teachers are trained {best} at once."]


def chunk_bytes(plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, size: int) -> int:
    """Estimate the bytes that a chunk of ``size`` needs in training: weights and saved activations.

    It runs a forward pass on torch's ``meta`` device, which computes only shapes.
    """
    # stacked networks are alike: the needs of many follow from the needs of two
    stacked = min(size, 2)
    chunk = _trial_chunk(plan, shape, num_labels, stacked).to("meta")
    state = sum(p.numel() * p.element_size() for p in chunk.parameters())
    saved_bytes: dict[int, int] = {}

    def record(tensor: Tensor) -> Tensor:
        saved_bytes[id(tensor.untyped_storage())] = tensor.untyped_storage().nbytes()
        return tensor

    features = torch.empty(stacked, plan.batch_size, *shape, device="meta")
    labels = torch.empty(stacked, plan.batch_size, num_labels, device="meta")
    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        loss = chunk.teacher_losses(features, labels).sum()
    del loss
    return int((_COPIES * state + sum(saved_bytes.values())) * size / stacked)


def disk_bytes(
    plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, num_teachers: int
) -> int:
    """Return the bytes on disk of the weights and buffers of so many teachers."""
    (network,) = make_networks(plan, shape, num_labels, teachers=range(1))
    return num_teachers * sum(
        tensor.numel() * tensor.element_size() for tensor in network.state_dict().values()
    )


def step_seconds(
    plan: TeacherPlan,
    shape: tuple[int, ...],
    num_labels: int,
    size: int,
    *,
    device: torch.device,
    limit: float = 0.4,
) -> float:
    """Return the median seconds of a step of a chunk, tried for about ``limit`` seconds."""
    chunk = _trial_chunk(plan, shape, num_labels, size).to(device)
    optimizer = plan.make_optimizer(chunk.parameters())
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(size, plan.batch_size, *shape, generator=generator).to(device)
    labels = (
        torch.randint(0, 2, (size, plan.batch_size, num_labels), generator=generator)
        .float()
        .to(device)
    )
    durations: list[float] = []
    with torch.random.fork_rng(devices=[]):
        while len(durations) < _TRIAL_STEPS or (sum(durations) < limit and len(durations) < 30):
            start = time.perf_counter()
            optimizer.zero_grad()
            with torch.autocast(
                device.type, torch.bfloat16, enabled=plan.precision == "bf16-mixed"
            ):
                loss = chunk.teacher_losses(features, labels).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            durations.append(time.perf_counter() - start)
    # the first step creates the optimizer's state
    return float(np.median(durations[1:]))


def _trial_chunk(
    plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, size: int
) -> TeacherChunk:
    chunk = TeacherChunk(
        make_networks(plan, shape, num_labels, teachers=range(size)),
        plan,
        positive_weights=np.ones((size, num_labels), dtype=np.float32),
        label_shares=np.ones((size, num_labels), dtype=np.float32),
    )
    return chunk.train()


def describe_training(
    plan: TeacherPlan,
    *,
    shape: tuple[int, ...],
    num_labels: int,
    execution: Execution,
) -> str:
    """Describe the memory, disk, time and place of training.

    Args:
        plan: how teachers are trained.
        shape: shape of a record's features.
        num_labels: number of labels.
        execution: where chunks are trained. The time is of this process only.

    The time is measured by a few steps on random data; reading records and writing files come on
    top.
    """
    device = root_device(plan.accelerator)
    available = available_bytes(device) // execution.workers
    chunk_size, messages = choose_size(plan, shape, num_labels, available=available)
    plan = replace(plan, chunk_size=chunk_size)
    chunks = plan.chunks()
    step = step_seconds(plan, shape, num_labels, min(chunk_size, plan.num_teachers), device=device)
    seconds = step * plan.num_steps * -(-len(chunks) // execution.workers)
    needed = chunk_bytes(plan, shape, num_labels, chunk_size)
    lines = [
        *messages,
        f"{len(chunks)} chunks of {chunk_size} teachers, {plan.num_steps} steps of"
        f" {plan.batch_size} records.",
        f"Memory: about {gigabytes(needed)} GB per worker, of {gigabytes(available)} GB that it"
        " may take.",
        f"Disk: about {gigabytes(disk_bytes(plan, shape, num_labels, plan.num_teachers))} GB of"
        " teachers.",
        f"Time: about {_duration(seconds)}, of {step * 1e3:.3g} ms per step of a chunk.",
        f"Place: {_place(execution)}, on {device.type}.",
    ]
    return "\n".join(lines) + "\n"


def describe_sizes(sizes: Sequence[int]) -> str:
    """Describe the numbers of records of the partitions, ``[num_teachers]``. PRIVATE."""
    smallest, median, largest = (round(float(q)) for q in np.quantile(sizes, [0, 0.5, 1]))
    return (
        f"{sum(sizes)} records in {len(sizes)} partitions of {smallest} to {largest}, median"
        f" {median}; {sum(not size for size in sizes)} without a record."
    )


def _place(execution: Execution) -> str:
    if execution.kind == "serial":
        together = " and all others that are given this command" if execution.shared else ""
        return f"this process{together}, {execution.threads} thread(s)"
    gpus = f", {execution.gpus:g} of a GPU each" if execution.gpus else ""
    return (
        f"{execution.workers} workers by {execution.kind}, {execution.threads} thread(s) each{gpus}"
    )


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
