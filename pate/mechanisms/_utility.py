"""Measures of the quality of a selection; they read the true scores, so they are PRIVATE."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import BoolArray, FloatArray, IntArray, require, require_count
from pate.mechanisms._ranking import Rows, as_batch, below_rank, distances, rank, require_within


class Grade(NamedTuple):
    """Grades of subsets (Shekelyan & Loukides (2022), 7.2, A.2), each ``[]`` or ``[B]``."""

    top: BoolArray
    """It is the top-k."""
    great: BoolArray
    """It has the best ``ceil(k / 10)`` items and none of rank beyond ``1.1 k``."""
    good: BoolArray
    """It has the best ``ceil(k / 100)`` items and none of rank beyond ``1.5 k``."""


def grade(scores: ArrayLike, chosen: ArrayLike) -> Grade:
    """Grade subsets ``[k]`` or ``[B, k]`` of the items of ``scores``, ties ranked by index.

    >>> grade([90, 80, 79, 0], [0, 2])
    Grade(top=np.False_, great=np.False_, good=np.True_)
    """
    _, ranks_of_chosen, single = _ranks_of(scores, chosen)
    ranks, k = np.sort(ranks_of_chosen, axis=1), ranks_of_chosen.shape[1]

    def within(head: int, tail: int) -> BoolArray:
        graded: BoolArray = (ranks[:, head - 1] == head - 1) & (ranks[:, -1] < tail)
        return graded[0] if single else graded

    return Grade(within(k, k), within(*great_bounds(k)), within(*good_bounds(k)))


def great_bounds(k: int) -> tuple[int, int]:
    """Return how many of the best items a great subset has, and the last rank that it may have."""
    return -(-k // 10), 11 * k // 10


def good_bounds(k: int) -> tuple[int, int]:
    """Return how many of the best items a good subset has, and the last rank that it may have."""
    return -(-k // 100), 3 * k // 2


def linf_error(scores: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Return the largest ``abs(x_(i) - x_{s_i})`` of an ordered sequence, ``[]`` or ``[B]``.

    Gillenwater et al. (2022), Definition 2.2.

    >>> float(linf_error([90, 80, 79, 0], [0, 2]))
    1.0
    """
    return _measured(scores, chosen, lambda lost, short: np.abs(lost).max(axis=1))


def l1_error(scores: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Return the sum of ``abs(x_(i) - x_{s_i})`` over an ordered sequence, ``[]`` or ``[B]``.

    Gillenwater et al. (2022), Definition 2.2.

    >>> float(l1_error([90, 80, 79, 0], [0, 2]))
    1.0
    """
    return _measured(scores, chosen, lambda lost, short: np.abs(lost).sum(axis=1))


def k_relative_error(scores: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Return the largest ``x_(k) - x_{s_i}`` of a set or sequence, at least 0, ``[]`` or ``[B]``.

    Gillenwater et al. (2022), Definition 2.2.

    >>> float(k_relative_error([90, 80, 79, 0], [0, 2]))
    1.0
    """
    return _measured(scores, chosen, lambda lost, short: np.maximum(short.max(axis=1), 0.0))


def recall(scores: ArrayLike, chosen: ArrayLike, *, k: int | None = None) -> FloatArray:
    """Return the share, ``[]`` or ``[B]``, of the chosen with a score among the k largest.

    >>> float(recall([90, 80, 79, 0], [0, 2]))
    0.5

    Args:
        scores: ``[d]`` or ``[B, d]``.
        chosen: ``[m]`` or ``[B, m]`` distinct indices of items. With a ``k``, -1 stands for an item
            that was not chosen, as in the lists of `pate.mechanisms.LimitedDomain`.
        k: how many there are to find, 1..d; m if None.

    Raises:
        ValueError: on indices that are repeated or of no item, or a ``k`` out of range.
    """
    if k is None:
        return _measured(scores, chosen, lambda lost, short: (short <= 0).mean(axis=1))
    rows, single = as_batch(scores)
    num_items = rows.shape[1]
    require_count(1, k=k)
    require_within(num_items, k=k)
    picked = _require_indices(chosen, rows, single, lowest=-1)
    # an item that was not chosen is further below than all others
    below = np.append(below_rank(rows, k), np.full((len(rows), 1), np.inf), axis=1)
    # both of several equal scores may be among the k largest, but no more than k are found
    recalled: FloatArray = (
        np.minimum((np.take_along_axis(below, picked, axis=1) <= 0).sum(axis=1), k) / k
    )
    return recalled[0] if single else recalled


def _measured(
    scores: ArrayLike, chosen: ArrayLike, measure: Callable[[FloatArray, FloatArray], FloatArray]
) -> FloatArray:
    """Measure losses of choices against the i-th and the k-th largest score, ``[B, k]``."""
    ranked, ranks, single = _ranks_of(scores, chosen)
    mine, k = np.take_along_axis(ranked, ranks, axis=1), ranks.shape[1]
    values = measure(distances(mine, ranked[:, :k]), distances(mine, ranked[:, k - 1 : k]))
    return values[0] if single else values


def _ranks_of(scores: ArrayLike, chosen: ArrayLike) -> tuple[Rows, IntArray, bool]:
    """Return descending scores ``[B, d]``, the ranks of the chosen, and whether it is one row."""
    rows, single = as_batch(scores)
    picked = _require_indices(chosen, rows, single)
    order, ranked = rank(rows)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
    return ranked, np.take_along_axis(place, picked, axis=1), single


def _require_indices(chosen: ArrayLike, rows: Rows, single: bool, *, lowest: int = 0) -> IntArray:
    """Return the chosen items as ``[B, m]``.

    Raises ``ValueError`` unless they are distinct indices of items.

    Indices below 0, down to ``lowest``, are of no item, and may be repeated.
    """
    picked = np.asarray(chosen)
    require(picked.dtype.kind in "iu", "integer indices", dtype=str(picked.dtype))
    matching = picked.ndim == 1 if single else picked.ndim == 2 and len(picked) == len(rows)
    require(matching, "chosen of shape [k] or [batch, k] as the scores", shape=picked.shape)
    picked = np.atleast_2d(picked).astype(np.int64)
    require_count(1, k=picked.shape[1])
    require_within(rows.shape[1], k=picked.shape[1])
    last = rows.shape[1] - 1
    low, high = int(picked.min(initial=0)), int(picked.max(initial=0))
    require(
        low >= lowest and high <= last, f"indices in {lowest}..{last}", minimum=low, maximum=high
    )
    ascending = np.sort(picked, axis=1)
    repeated = ascending[:, 1:][(ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)]
    require(not repeated.size, "distinct indices", repeated=np.unique(repeated).tolist())
    return picked
