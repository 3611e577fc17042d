"""Measures of the papers, of rows of scores ``[d]`` or ``[B, d]`` and items chosen from them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate._core.mechanisms.ranking import good_bounds, great_bounds
from pate._core.validation import BoolArray, FloatArray


class Grade(NamedTuple):
    """Grades of subsets (Shekelyan & Loukides (2022), 7.2, A.2), each ``[]`` or ``[B]``."""

    top: BoolArray
    """It is the top-k."""
    great: BoolArray
    """It has the best ``ceil(k / 10)`` items and none of rank beyond ``1.1 k``."""
    good: BoolArray
    """It has the best ``ceil(k / 100)`` items and none of rank beyond ``1.5 k``."""


def grade(scores: ArrayLike, chosen: ArrayLike) -> Grade:
    """Grade subsets ``[k]`` or ``[B, k]`` of items, ties ranked by index."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), axis=-1, kind="stable")
    places = np.sort(
        np.take_along_axis(np.argsort(order, axis=-1), np.asarray(chosen), axis=-1), axis=-1
    )
    k = places.shape[-1]
    ends = ((k, k), great_bounds(k), good_bounds(k))
    return Grade(
        *((places[..., head - 1] == head - 1) & (places[..., -1] < tail) for head, tail in ends)
    )


def linf_error(scores: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Return the largest ``abs(x_(i) - x_{s_i})`` of a sequence.

    Gillenwater et al. (2022), Definition 2.2, as the next two.
    """
    best, found = _ranked(scores, chosen)
    return np.asarray(np.abs(best - found).max(axis=-1))


def l1_error(scores: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Return the sum of ``abs(x_(i) - x_{s_i})`` over a sequence."""
    best, found = _ranked(scores, chosen)
    return np.asarray(np.abs(best - found).sum(axis=-1))


def k_relative_error(scores: ArrayLike, chosen: ArrayLike) -> FloatArray:
    """Return the largest ``x_(k) - x_{s_i}`` of a set or sequence, at least 0."""
    best, found = _ranked(scores, chosen)
    return np.asarray(np.maximum((best[..., -1:] - found).max(axis=-1), 0.0))


def _ranked(scores: ArrayLike, chosen: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the k largest scores, descending, and those that were chosen."""
    rows, items = np.asarray(scores, dtype=np.float64), np.asarray(chosen)
    best = -np.sort(-rows, axis=-1)[..., : items.shape[-1]]
    return best, np.take_along_axis(rows, items, axis=-1)
