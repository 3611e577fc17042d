"""Metrics of multi-label predictions that count rare labels as much as common ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pate._typing import FloatArray, UInt8Array
from pate.student._average_precision import average_precision
from pate.student._decisions import DECISION_METRICS, Metric, agreement, choose_thresholds


def evaluate(
    probabilities: ArrayLike,
    truth: ArrayLike,
    label_names: tuple[str, ...],
    *,
    cuts: FloatArray,
    optimize: Metric,
) -> dict[str, Any]:
    """Return the figures of predictions on samples with known labels.

    Args:
        probabilities: ``[N, C]``.
        truth: ``[N, C]`` in {0, 1}.
        label_names: names of the ``C`` labels.
        cuts: ``[3, C]`` of `choose_thresholds`.
        optimize: which of them decides.

    Returns:
        ``macro_f1``, ``micro_f1``, ``mAP``, ``balanced_accuracy`` and ``accuracy`` over all labels;
        under ``at_cut`` the figures `DECISION_METRICS` of the decisions that serve each of them; under
        ``per_label`` those of each label.
    """
    scores, right = np.asarray(probabilities), np.asarray(truth) > 0
    at_cut = {
        purpose: agreement(scores > row, right)
        for purpose, row in zip(DECISION_METRICS, cuts, strict=True)
    }
    decisions = scores > cuts[DECISION_METRICS.index(optimize)]
    hits, num_given, num_right = (
        (decisions & right).sum(axis=0),
        decisions.sum(axis=0),
        right.sum(axis=0),
    )
    per_label = {
        "f1": 2 * hits / np.maximum(num_given + num_right, 1),
        "recall": hits / np.maximum(num_right, 1),
        "specificity": (~decisions & ~right).sum(axis=0) / np.maximum((~right).sum(axis=0), 1),
        "average_precision": average_precision(scores, right),
    }
    chosen = at_cut[optimize]
    return {
        "macro_f1": chosen["macro_f1"],
        "micro_f1": chosen["micro_f1"],
        "mAP": float(per_label["average_precision"].mean()),
        "balanced_accuracy": float((per_label["recall"] + per_label["specificity"]).mean() / 2),
        "accuracy": chosen["accuracy"],
        "at_cut": at_cut,
        "per_label": {
            name: {figure: float(values[j]) for figure, values in per_label.items()}
            for j, name in enumerate(label_names)
        },
    }


def evaluate_constant(
    shares: ArrayLike, truth: UInt8Array, label_names: tuple[str, ...], *, optimize: Metric
) -> dict[str, Any]:
    """Return the figures of one answer to all samples, by cuts of its own probabilities ``shares`` ``[C]``."""
    probabilities = np.broadcast_to(np.asarray(shares), truth.shape)
    return evaluate(
        probabilities,
        truth,
        label_names,
        cuts=choose_thresholds(probabilities[:1]),
        optimize=optimize,
    )
