"""The targets of a student, from released labels."""

from typing import Literal

import numpy as np

from pate._runs.released import ReleasedLabels
from pate._validation import Float32Array, IntArray, require
from pate._votes import rows_of
from pate.data import DataSource, Records, Role

Labels = Literal["released", "truth"]
"""The labels that a student learns: released labels or, for comparison and PRIVATE, the truth."""


def queried(source: DataSource, released: ReleasedLabels) -> tuple[Records, IntArray]:
    """Return the public records, and the rows ``[Q]`` of the queries among them.

    Raises:
        ValueError: if the labels have other names than the records, or none was released.
    """
    names = source.label_names
    require(
        released.label_names == names,
        f"released labels named {', '.join(names)}",
        label_names=released.label_names,
    )
    answered = int(released.answered.sum())
    require(answered > 0, "released labels of at least one query", answered=answered)
    public = source.records(Role.PUBLIC)
    return public, rows_of(released.ids, public.ids)


def targets_of(released: ReleasedLabels, *, soft: bool = True) -> Float32Array:
    """Return the targets ``[Q, C]`` of a student: noisy shares of the teachers, else labels.

    The noise in a share has mean 0, so that a loss linear in its target is right on average (see
    `Student`). Answers of a linear model have no such noise, and are clipped to [0, 1].
    """
    if soft and released.noisy_counts is not None:
        shares = released.noisy_counts / released.num_teachers
        return np.asarray(shares.clip(0, 1) if released.linear else shares, dtype=np.float32)
    return released.labels.astype(np.float32)


def noise_of(released: ReleasedLabels, *, soft: bool = True) -> float | None:
    """Return the standard deviation of the noise in `targets_of`; None for labels."""
    return (
        released.noise_std / released.num_teachers
        if soft and released.noise_std is not None
        else None
    )
