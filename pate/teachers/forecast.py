"""What training the teachers will take, said before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pate.teachers.devices import available_bytes, root_device
from pate.teachers.executors import Executor, share_of
from pate.teachers.sizing import choose_size, chunk_bytes, gigabytes, step_seconds
from pate.teachers.training import TeacherPlan


def forecast(
    plan: TeacherPlan,
    sizes: Sequence[int],
    *,
    shape: tuple[int, ...],
    num_labels: int,
    auto: bool,
    executor: Executor,
    share: str | None,
) -> str:
    """Return how large partitions are (PRIVATE), and the memory, the time and the place of training.

    Args:
        plan: how teachers are trained.
        sizes: records of each partition, ``[num_teachers]``. PRIVATE.
        shape: shape of a record's features.
        num_labels: how many labels.
        auto: whether the chunk size is to be chosen.
        executor: where chunks are trained.
        share: which of them, as in `share_of`; None for all.

    The time is that of a few steps on random data; reading records and writing files come on top.
    """
    device = root_device(plan.accelerator)
    available = available_bytes(device) // executor.workers
    sizing = choose_size(plan, shape, num_labels, auto=auto, available=available)
    plan = replace(plan, chunk_size=sizing.chunk_size)
    chunks = share_of(plan.chunks(), share)
    step = step_seconds(plan, shape, num_labels, min(plan.chunk_size, plan.num_teachers), device=device)
    seconds = step * plan.num_steps * -(-len(chunks) // executor.workers)
    needed = chunk_bytes(plan, shape, num_labels, plan.chunk_size)
    smallest, median, largest = (round(float(q)) for q in np.quantile(sizes, [0, 0.5, 1]))
    lines = [
        f"PRIVATE: {sum(sizes)} records in {len(sizes)} partitions of {smallest} to {largest}, median {median};"
        f" {sum(not size for size in sizes)} without a record.",
        *sizing.said,
        f"{len(chunks)} chunks of {plan.chunk_size} teachers, {plan.num_steps} steps of {plan.batch_size} records.",
        f"Memory: about {gigabytes(needed)} GB per worker, of {gigabytes(available)} GB that it may take.",
        f"Time: about {_duration(seconds)}, of {step * 1e3:.3g} ms per step of a chunk.",
        f"Place: {_place(executor)}, on {device.type}" + (f", share {share}." if share else "."),
    ]
    return "\n".join(lines) + "\n"


def _place(executor: Executor) -> str:
    if executor.kind == "serial":
        return f"this process, {executor.threads} thread(s)"
    gpus = f", {executor.gpus:g} of a GPU each" if executor.gpus else ""
    return f"{executor.workers} workers by {executor.kind}, {executor.threads} thread(s) each{gpus}"


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
