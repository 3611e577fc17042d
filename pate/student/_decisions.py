"""Cuts of probabilities for accuracy, macro-F1 or micro-F1, and the figures of decisions."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import BoolArray, FloatArray

Metric = Literal["accuracy", "macro_f1", "micro_f1"]
"""A metric that decisions can optimize."""

DECISION_METRICS: tuple[Metric, ...] = get_args(Metric)
"""The rows of `choose_thresholds`."""


def choose_thresholds(probabilities: ArrayLike) -> FloatArray:
    """Return cuts ``[3, C]`` of probabilities, a row for each of `DECISION_METRICS`.

    A label is given above its cut. The cut for accuracy is one half. If a set S of samples gets a
    label, its expected F1, as a ratio of expectations, is ``2 sum_S p / (|S| + sum p)``. Let F be
    the maximum: then ``sum_S (2 p - F) <= F sum p`` for every S, with equality for the best set.
    The left side is largest if S holds the samples with ``p > F / 2``: the cut is half of the
    largest F1 (Lipton, Elkan & Naryanaswamy (2014)). For macro-F1 the sums run over the samples of
    one label; for micro-F1 over all pairs of a sample and a label, so that all labels have one cut.

    Args:
        probabilities: ``[N, C]``, of public samples.
    """
    values = np.asarray(probabilities, dtype=np.float64)
    return np.stack(
        (
            np.full(values.shape[1], 0.5),
            _largest_f1(values) / 2,
            np.broadcast_to(_largest_f1(values.reshape(-1, 1)) / 2, values.shape[1]),
        )
    )


def _largest_f1(probabilities: FloatArray) -> FloatArray:
    """Return the largest expected F1 ``[C]`` on samples with ``probabilities`` ``[N, C]``."""
    falling = -np.sort(-probabilities, axis=0)
    numbers = np.arange(1, len(falling) + 1)[:, None]
    f1 = 2 * np.cumsum(falling, axis=0) / (numbers + falling.sum(axis=0))
    largest: FloatArray = f1.max(axis=0, initial=0.0)
    return largest


def agreement(
    given: BoolArray, truth: BoolArray, known: BoolArray | None = None
) -> dict[str, float]:
    """Return the figures `DECISION_METRICS` of decisions against the truth, both ``[N, C]``.

    Entries that are not ``known`` are left out. The F1 of a label that is neither given nor true is
    0.
    """
    counted = np.ones(truth.shape, dtype=np.bool_) if known is None else known
    given, truth = given & counted, truth & counted
    hits, either = (given & truth).sum(axis=0), given.sum(axis=0) + truth.sum(axis=0)
    return {
        "accuracy": float(((given == truth) & counted).sum() / max(counted.sum(), 1)),
        "macro_f1": float((2 * hits / np.maximum(either, 1)).mean()),
        "micro_f1": float(2 * hits.sum() / max(either.sum(), 1)),
    }
