"""Average precision of a ranking in numpy, the metric of both kinds of students."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pate._typing import BoolArray, FloatArray


def average_precision(scores: NDArray[np.floating], truth: BoolArray) -> FloatArray:
    """Return the exact average precision of each label.

    Args:
        scores: ``[N, C]``, higher if more certain; equal scores are one step of the ranking.
        truth: ``[N, C]``, whether each sample has each label.

    Returns:
        ``[C]`` in [0, 1]; 0 for a label that no sample has.
    """
    precisions = np.zeros(truth.shape[1])
    for j in range(truth.shape[1]):
        order = np.argsort(-scores[:, j], kind="stable")
        hits = np.cumsum(truth[order, j])
        last = np.append(np.diff(scores[order, j]) != 0, True)
        gained = np.diff(hits[last], prepend=0)
        precisions[j] = gained @ (hits[last] / (np.flatnonzero(last) + 1)) / max(1, hits[-1])
    return precisions
