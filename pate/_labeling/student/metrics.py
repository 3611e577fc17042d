"""The targets of a student, from released labels, and the figures of its predictions.

Cuts turn probabilities into decisions, and serve accuracy or F1. Figures count rare labels as much
as common ones.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._core.validation import BoolArray, Float32Array, FloatArray, IntArray, UInt8Array, require
from pate._labeling.data.records import Records, Role, known_truth
from pate._labeling.data.source import DataSource
from pate._labeling.runs.released import ReleasedLabels
from pate._labeling.votes.kinds import rows_of


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
    """Return the standard deviation of the noise in `targets_of`. None for labels."""
    return (
        released.noise_std / released.num_teachers
        if soft and released.noise_std is not None
        else None
    )


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

    >>> choose_thresholds([[0.9, 0.2], [0.6, 0.1]]).round(2)
    array([[0.5 , 0.5 ],
           [0.43, 0.15],
           [0.39, 0.39]])

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
    sizes = np.arange(1, len(falling) + 1)[:, None] + falling.sum(axis=0)
    return (2 * np.cumsum(falling, axis=0) / sizes).max(axis=0, initial=0.0)


def agreement(
    given: BoolArray, truth: BoolArray, known: BoolArray | None = None
) -> dict[str, float]:
    """Return the figures `DECISION_METRICS` of decisions against the truth, both ``[N, C]``.

    Entries that are not ``known`` are left out. The F1 of a label that is neither given nor true is
    0.

    >>> given = np.array([[True, False], [True, True]])
    >>> truth = np.array([[True, False], [False, True]])
    >>> agreement(given, truth)["accuracy"]
    0.75

    Returns:
        ``accuracy``, ``macro_f1`` and ``micro_f1``, each in [0, 1].
    """
    counted = np.ones(truth.shape, dtype=np.bool_) if known is None else known
    given, truth = given & counted, truth & counted
    hits, either = (given & truth).sum(axis=0), given.sum(axis=0) + truth.sum(axis=0)
    return {
        "accuracy": float(((given == truth) & counted).sum() / max(counted.sum(), 1)),
        "macro_f1": float((2 * hits / np.maximum(either, 1)).mean()),
        "micro_f1": float(2 * hits.sum() / max(either.sum(), 1)),
    }


def evaluate(
    probabilities: ArrayLike,
    truth: ArrayLike,
    label_names: tuple[str, ...],
    *,
    cuts: FloatArray,
    optimize: Metric,
) -> dict[str, Any]:
    """Return the figures of predictions on samples with known labels.

    >>> probabilities = np.array([[0.9, 0.2], [0.4, 0.6]])
    >>> cuts = choose_thresholds(probabilities)
    >>> truth = [[1, 0], [0, 1]]
    >>> figures = evaluate(probabilities, truth, ("a", "b"), cuts=cuts, optimize="accuracy")
    >>> figures["mAP"], figures["accuracy"]
    (1.0, 1.0)

    Args:
        probabilities: ``[N, C]``.
        truth: ``[N, C]`` in {0, 1}; NaN or `pate.data.UNKNOWN` where it is unknown: such entries
            are left out of all figures.
        label_names: names of the ``C`` labels.
        cuts: ``[3, C]``, from `choose_thresholds`.
        optimize: the metric with the cuts that decide.

    Returns:
        ``macro_f1``, ``micro_f1``, ``mAP``, ``balanced_accuracy`` and ``accuracy`` over all labels;
        under ``at_cut``, for each of `DECISION_METRICS`, the figures of the decisions that serve
        it; under ``per_label`` the figures of each label. ``roc_auc`` is the mean over labels that
        some samples have and others lack, and absent without such labels.
    """
    scores, (right, known) = np.asarray(probabilities), known_truth(truth)
    at_cut = {
        purpose: agreement(scores > row, right, known)
        for purpose, row in zip(DECISION_METRICS, cuts, strict=True)
    }
    decisions = (scores > cuts[DECISION_METRICS.index(optimize)]) & known
    hits, num_right, wrong = (decisions & right).sum(axis=0), right.sum(axis=0), known & ~right
    per_label = {
        "f1": 2 * hits / np.maximum(decisions.sum(axis=0) + num_right, 1),
        "recall": hits / np.maximum(num_right, 1),
        "specificity": (~decisions & wrong).sum(axis=0) / np.maximum(wrong.sum(axis=0), 1),
        "average_precision": average_precision(scores, right, known),
    }
    chosen, areas = at_cut[optimize], roc_auc(scores, right, known)
    ranked = np.isfinite(areas)
    per_label["roc_auc"] = areas
    return {
        "macro_f1": chosen["macro_f1"],
        "micro_f1": chosen["micro_f1"],
        "mAP": float(per_label["average_precision"].mean()),
        **({"roc_auc": float(areas[ranked].mean())} if ranked.any() else {}),
        "balanced_accuracy": float((per_label["recall"] + per_label["specificity"]).mean() / 2),
        "accuracy": chosen["accuracy"],
        "at_cut": at_cut,
        "per_label": {
            name: {
                figure: float(values[j])
                for figure, values in per_label.items()
                if np.isfinite(values[j])
            }
            for j, name in enumerate(label_names)
        },
    }


def evaluate_constant(
    shares: ArrayLike, truth: UInt8Array, label_names: tuple[str, ...], *, optimize: Metric
) -> dict[str, Any]:
    """Return the figures of constant probabilities ``shares`` ``[C]``, by their own cuts.

    >>> truth = np.array([[1, 0], [1, 1]], dtype=np.uint8)
    >>> evaluate_constant([0.8, 0.3], truth, ("a", "b"), optimize="accuracy")["accuracy"]
    0.75

    Returns:
        the figures of `evaluate`.
    """
    probabilities = np.broadcast_to(np.asarray(shares), truth.shape)
    return evaluate(
        probabilities,
        truth,
        label_names,
        cuts=choose_thresholds(probabilities[:1]),
        optimize=optimize,
    )


def average_precision(
    scores: NDArray[np.floating], truth: BoolArray, known: BoolArray | None = None
) -> FloatArray:
    """Return the exact average precision of each label.

    Args:
        scores: ``[N, C]``, higher if more certain; equal scores are one step of the ranking.
        truth: ``[N, C]``, whether each sample has each label.
        known: ``[N, C]``, the entries that count. None for all.

    Returns:
        ``[C]`` in [0, 1]; 0 for a label that no sample has.
    """
    precisions = np.zeros(truth.shape[1])
    for j in range(truth.shape[1]):
        order = np.argsort(-scores[:, j], kind="stable")
        if known is not None:
            order = order[known[order, j]]
        if not order.size:
            continue
        hits = np.cumsum(truth[order, j])
        last = np.append(np.diff(scores[order, j]) != 0, True)
        gained = np.diff(hits[last], prepend=0)
        precisions[j] = gained @ (hits[last] / (np.flatnonzero(last) + 1)) / max(1, hits[-1])
    return precisions


def roc_auc(
    scores: NDArray[np.floating], truth: BoolArray, known: BoolArray | None = None
) -> FloatArray:
    """Return the area under the ROC curve of each label.

    It is the probability that a sample with the label has a higher score than one without it, where
    equal scores count one half (Mann & Whitney (1947)).

    Args:
        scores: ``[N, C]``, higher if more certain.
        truth: ``[N, C]``, whether each sample has each label.
        known: ``[N, C]``, the entries that count. None for all.

    Returns:
        ``[C]`` in [0, 1]; NaN for a label that all samples have, or none.
    """
    areas, counted = np.full(truth.shape[1], np.nan), True if known is None else known
    there, lacking = truth & counted, ~truth & counted
    for j in np.flatnonzero(there.any(axis=0) & lacking.any(axis=0)):
        with_label, without = scores[there[:, j], j], np.sort(scores[lacking[:, j], j])
        below, up_to = (
            np.searchsorted(without, with_label),
            np.searchsorted(without, with_label, "right"),
        )
        areas[j] = (below + up_to).mean() / (2 * without.size)
    return areas
