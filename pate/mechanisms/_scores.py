"""Scores as every mechanism reads them: checked once, as exact distances below the largest, ranked when
asked.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.validation import expect, expect_count

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ROWS = 1024  # rows worked on at once, so that the intermediate arrays stay in cache


class Ranked(NamedTuple):
    """Scores in descending order, ties broken by index."""

    order: IntArray
    """``[B, d]``: ``order[:, j]`` is the index of the item of rank j."""
    deficits: FloatArray
    """``[B, d]``, ascending from 0: how far the score of rank j lies below the largest."""


def as_rows(scores: ArrayLike) -> tuple[NDArray[np.number], bool]:
    """Return scores as ``[B, d]`` and whether they came as one row ``[d]``.

    Raises ``ValueError`` unless they are finite real numbers of shape ``[d]`` or ``[B, d]``, ``d > 0``, whose
    spread is finite too.
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


def expect_k(k: int, num_items: int, *, largest: int | None = None) -> None:
    """Raise ``ValueError`` unless ``1 <= k <= largest`` (the number of items when None)."""
    expect_count(1, k=k)
    largest = num_items if largest is None else largest
    expect(k <= largest, f"k <= {largest} for {num_items} items", k=k)


def deficits(rows: NDArray[np.number]) -> FloatArray:
    """Return how far each score lies below the largest of its row, ``[B, d]``.

    Integers are subtracted as integers, so that neither unsigned ones wrap nor large ones lose their last
    digits.
    """
    return _integer_deficits(rows).astype(np.float64, copy=False)


def rank(rows: NDArray[np.number]) -> Ranked:
    """Sort each row in descending order, ties broken by index."""
    below = _integer_deficits(rows)
    num_items = rows.shape[1]
    bits = max(1, int(num_items - 1).bit_length())
    if below.dtype.kind in "iu" and below.size and (int(below.max()) + 1) << bits < 2**63:
        # one integer key per entry sorts scores and indices at once
        narrow = (int(below.max()) + 1) << bits < 2**31
        # a Python int as the other operand keeps the keys as narrow as they are
        keys: NDArray[np.signedinteger] = below.astype(np.int32 if narrow else np.int64)
        keys <<= bits
        keys |= np.arange(num_items, dtype=keys.dtype)
        keys.sort(axis=1)
        return Ranked((keys & ((1 << bits) - 1)).astype(np.int64), (keys >> bits).astype(np.float64))
    order = np.argsort(below, axis=1, kind="stable").astype(np.int64, copy=False)
    return Ranked(order, np.take_along_axis(below, order, axis=1).astype(np.float64))


def _integer_deficits(rows: NDArray[np.number]) -> NDArray[np.number]:
    if rows.dtype.kind == "f" or not rows.size:
        floats: FloatArray = rows.astype(np.float64, copy=False)
        return np.subtract(floats.max(axis=1, keepdims=True), floats) if rows.size else floats
    if rows.dtype.itemsize < 8:
        wide: IntArray = rows.astype(np.int64)
        return np.subtract(wide.max(axis=1, keepdims=True), wide)
    # modulo 2^64 the difference is right even where it overflows a signed integer
    return np.subtract(rows.max(axis=1, keepdims=True).astype(np.uint64), rows.astype(np.uint64))
