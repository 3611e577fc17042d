"""Preparation of scores for all mechanisms: checks, ranks, and exact distances below the largest."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.mechanisms.noise import Noise, draw
from pate.typing import FloatArray, IntArray
from pate.validation import expect

Rows: TypeAlias = NDArray[np.number]
"""Scores of any integer or floating-point type."""

ROWS = 1024  # rows worked on at once, so that the intermediate arrays stay in cache


class Ranked(NamedTuple):
    """Scores in descending order, ties broken by index."""

    order: IntArray
    """``[B, d]``: ``order[:, j]`` is the index of the item of rank j."""
    deficits: FloatArray
    """``[B, d]``, ascending from 0: the distance of the score of rank j below the largest."""


def as_rows(scores: ArrayLike) -> tuple[Rows, bool]:
    """Return scores as ``[B, d]``, and whether they were given as one row ``[d]``.

    Raises:
        ValueError: unless they are finite real numbers of shape ``[d]`` or ``[B, d]``, ``d > 0``, whose spread is
            finite too.
    """
    rows = np.asarray(scores)
    expect(rows.ndim in (1, 2) and rows.shape[-1] > 0, "scores of shape [d] or [batch, d]", shape=rows.shape)
    expect(rows.dtype.kind in "iuf", "integer or float scores", dtype=str(rows.dtype))
    if rows.dtype.kind == "f":
        rows = rows.astype(np.float64, copy=False)
        if rows.size:
            # the sum is not finite if any score is not, and finite scores must not overflow in their difference
            with np.errstate(over="ignore", invalid="ignore"):
                low, high = rows.min(), rows.max()
                expect(np.isfinite(high - low), "finite scores", minimum=float(low), maximum=float(high))
    return (rows[None] if rows.ndim == 1 else rows), rows.ndim == 1


def expect_within(num_items: int, *, spare: int = 0, **values: int) -> None:
    """Raise ``ValueError`` unless each of ``values`` leaves at least ``spare`` of ``num_items`` items out."""
    for name, value in values.items():
        expect(value <= num_items - spare, f"{name} <= {num_items - spare} for {num_items} items", **{name: value})


def deficits(rows: Rows) -> FloatArray:
    """Return the distance of each score below the largest of its row, ``[B, d]``.

    Integers are subtracted as integers, so that unsigned ones do not wrap and large ones keep their last digits.
    """
    return _exact_deficits(rows).astype(np.float64, copy=False)


def rank(rows: Rows) -> Ranked:
    """Sort each row in descending order, ties broken by index."""
    below = _exact_deficits(rows)
    order, ascending = sort_ascending(below, largest=int(below.max(initial=0)) if below.dtype.kind in "iu" else None)
    return Ranked(order, ascending.astype(np.float64, copy=False))


def sort_ascending(values: Rows, *, largest: int | None) -> tuple[IntArray, Rows]:
    """Sort each row, ties by index: the indices and the sorted values, ``[B, d]`` each.

    Integers in ``0..largest`` are sorted together with their indices, as one key per entry.
    """
    num_items = values.shape[1]
    bits = max(1, (num_items - 1).bit_length())
    end = math.inf if largest is None else (largest + 1) << bits
    if end >= 2**63:
        order: IntArray = np.argsort(values, axis=1, kind="stable").astype(np.int64, copy=False)
        return order, np.take_along_axis(values, order, axis=1)
    keys: NDArray[np.signedinteger] = values.astype(np.int32 if end < 2**31 else np.int64)
    # a Python int as the other operand keeps the keys as narrow as they are
    keys <<= bits
    keys |= np.arange(num_items, dtype=keys.dtype)
    keys.sort(axis=1)
    return (keys & ((1 << bits) - 1)).astype(np.int64), keys >> bits


def noisy_deficits(rows: Rows, noise: Noise, scale: float, generator: np.random.Generator) -> FloatArray:
    """Return `deficits` less noise of ``scale``: the smallest are the largest noisy scores, ``[B, d]``."""
    noisy = draw(noise, generator, rows.shape)
    noisy *= -scale
    noisy += deficits(rows)
    return noisy


def k_smallest(values: FloatArray, k: int) -> IntArray:
    """Return the indices of the k smallest of each row in ascending order of value, ``[B, k]``."""
    if k == 1:
        best: IntArray = np.argmin(values, axis=1)[:, None]
        return best
    if k < values.shape[1]:
        part = np.argpartition(values, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(values, part, axis=1), axis=1)
        return np.take_along_axis(part, order, axis=1)
    return np.argsort(values, axis=1)


def _exact_deficits(rows: Rows) -> Rows:
    if rows.dtype.kind == "f":
        wide: Rows = rows.astype(np.float64, copy=False)
    else:
        # modulo 2^64 a difference is right even where it overflows a signed integer
        wide = rows.astype(np.int64 if rows.dtype.itemsize < 8 else np.uint64)
    # taken before the conversion: a negative number is a large unsigned one
    largest: Rows = rows.max(axis=1, keepdims=True).astype(wide.dtype)
    return largest - wide
