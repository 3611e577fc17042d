"""An estimate of the memory and time of training the teachers, before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pate.teachers.devices import available_bytes, root_device
from pate.teachers.jobs import Execution, share_of
from pate.teachers.plan import TeacherPlan
from pate.teachers.sizing import choose_size, chunk_bytes, gigabytes, step_seconds


def describe_training(
    plan: TeacherPlan,
    sizes: Sequence[int],
    *,
    shape: tuple[int, ...],
    num_labels: int,
    execution: Execution,
    share: str | None,
) -> str:
    """Describe the sizes of partitions (PRIVATE), and the memory, the time and the place of training.

    Args:
        plan: how teachers are trained.
        sizes: records of each partition, ``[num_teachers]``. PRIVATE.
        shape: shape of a record's features.
        num_labels: number of labels.
        execution: where chunks are trained.
        share: the chunks to train, as in `share_of`; None for all.

    The time is that of a few steps on random data; reading records and writing files come on top.
    """
    device = root_device(plan.accelerator)
    available = available_bytes(device) // execution.workers
    sizing = choose_size(plan, shape, num_labels, available=available)
    at_once = sizing.chunk_size
    plan = replace(plan, chunk_size=at_once)
    chunks = share_of(plan.chunks(), share)
    step = step_seconds(plan, shape, num_labels, min(at_once, plan.num_teachers), device=device)
    seconds = step * plan.num_steps * -(-len(chunks) // execution.workers)
    needed = chunk_bytes(plan, shape, num_labels, at_once)
    smallest, median, largest = (round(float(q)) for q in np.quantile(sizes, [0, 0.5, 1]))
    lines = [
        f"PRIVATE: {sum(sizes)} records in {len(sizes)} partitions of {smallest} to {largest}, median {median};"
        f" {sum(not size for size in sizes)} without a record.",
        *sizing.said,
        f"{len(chunks)} chunks of {at_once} teachers, {plan.num_steps} steps of {plan.batch_size} records.",
        f"Memory: about {gigabytes(needed)} GB per worker, of {gigabytes(available)} GB that it may take.",
        f"Time: about {_duration(seconds)}, of {step * 1e3:.3g} ms per step of a chunk.",
        f"Place: {_place(execution)}, on {device.type}" + (f", share {share}." if share else "."),
    ]
    return "\n".join(lines) + "\n"


def _place(execution: Execution) -> str:
    if execution.kind == "serial":
        return f"this process, {execution.threads} thread(s)"
    gpus = f", {execution.gpus:g} of a GPU each" if execution.gpus else ""
    return f"{execution.workers} workers by {execution.kind}, {execution.threads} thread(s) each{gpus}"


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
