"""Scores in their order, ties broken by index, and exact distances between them.

Scores are integers or floats of any size: distances are taken before they are rounded, so that
no magnitude hides a difference. At the end the quality of a selection. Its measures read the true
scores, so they are PRIVATE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._core.validation import FloatArray, IntArray, require

Rows: TypeAlias = NDArray[np.number]
"""Scores of any integer or floating-point type."""

ROWS = 1024  # rows worked on at once, so that the intermediate arrays stay in cache
_LONG = 1 << 12  # items from which sorting by digits is faster than by keys


REACH = 2.0**32
"""The largest distance, in scales of noise.

Noise in float64 spans less than 2^10 scales, and never bridges them.
"""
NEAR = 2.0**20
"""Scales of noise up to which distances from any score will do: rounding is 2^-33 scales."""


class Ranked(NamedTuple):
    """Scores in descending order, ties broken by index."""

    order: IntArray
    """``[B, d]``: ``order[:, j]`` is the index of the item of rank j."""
    scores: Rows
    """``[B, d]``, descending: the scores as they were given, to the last digit."""


def as_batch(scores: ArrayLike) -> tuple[Rows, bool]:
    """Return scores as ``[B, d]``, and whether they were given as one row ``[d]``.

    Raises:
        ValueError: unless they are finite real numbers of shape ``[d]`` or ``[B, d]``, ``d > 0``,
            with a finite spread.
    """
    rows = np.asarray(scores)
    require(
        rows.ndim in (1, 2) and rows.shape[-1] > 0,
        "scores of shape [d] or [batch, d]",
        shape=rows.shape,
    )
    require(rows.dtype.kind in "iuf", "integer or float scores", dtype=str(rows.dtype))
    if rows.dtype.kind == "f":
        rows = np.asarray(rows, dtype=np.float64)
        if rows.size:
            # the sum is not finite if any score is not, and finite scores must not overflow in
            # their difference
            with np.errstate(over="ignore", invalid="ignore"):
                low, high = rows.min(), rows.max()
                require(
                    np.isfinite(high - low),
                    "finite scores",
                    minimum=float(low),
                    maximum=float(high),
                )
    return (rows[None] if rows.ndim == 1 else rows), rows.ndim == 1


def require_within(num_items: int, *, spare: int = 0, **values: int) -> None:
    """Raise ``ValueError`` unless each of ``values`` leaves ``spare`` items out."""
    for name, value in values.items():
        require(
            value <= num_items - spare,
            f"{name} <= {num_items - spare} for {num_items} items",
            **{name: value},
        )


def distances(rows: Rows, reference: Rows, *, reach: float = math.inf) -> FloatArray:
    """Return how far scores ``[.., d]`` lie below ``reference``, float64, clipped at ``reach``.

    This is the one place where scores become floats. They are subtracted first, integers as
    integers, so that unsigned ones do not wrap, large ones keep their last digits, and only the
    distance itself is rounded, by 2^-53 of it.

    Where the reference is the score of some public rank, all distances move within the window of
    the scores, and the clipped ones too, because no distance moves by more than the window in
    either direction, and a clip is monotone and never moves a number farther than it was moved.

    Args:
        rows: scores of any integer or floating-point type.
        reference: scores of that type, of a shape that broadcasts against ``rows``.
        reach: the largest distance, `REACH` scales of the noise that is added to it.
    """
    if rows.dtype.kind == "f":
        exact: FloatArray = np.subtract(reference, rows, dtype=np.float64)
    elif rows.dtype.itemsize < 8:
        exact = (reference.astype(np.int64) - rows).astype(np.float64)
    elif _spread(rows, reference) < 2**63:
        exact = (reference - rows).view(np.int64).astype(np.float64)
    else:
        # modulo 2^64 a difference is right even where it overflows, and its sign is known
        below, above = reference - rows, rows - reference
        exact = np.where(
            reference >= rows, below.view(np.uint64), -above.view(np.uint64).astype(np.float64)
        )
    return exact if reach == math.inf else np.clip(exact, -reach, reach, out=exact)


def _spread(*scores: Rows) -> int:
    """Return the largest difference between any two of integers."""
    ends = [(int(rows.min().item()), int(rows.max().item())) for rows in scores if rows.size] or [
        (0, 0)
    ]
    return max(high for _, high in ends) - min(low for low, _ in ends)


def below_rank(rows: Rows, k: int, *, reach: float = math.inf) -> FloatArray:
    """Return the `distances` of scores ``[B, d]`` from the k-th largest of their row."""
    if k == 1:
        return distances(rows, rows.max(axis=1, keepdims=True), reach=reach)
    place = rows.shape[1] - k
    return distances(rows, np.partition(rows, place, axis=1)[:, place : place + 1], reach=reach)


def has_near_ties(rows: Rows, scale: float) -> bool:
    """Whether all scores of a batch lie within `NEAR` scales of one another."""
    return not rows.size or rows.max().item() - rows.min().item() <= NEAR * scale


def rank(rows: Rows) -> Ranked:
    """Sort each row in descending order, ties broken by index."""
    if rows.dtype.kind == "f":
        order, ascending = sort_ascending(-rows, largest=None)
        return Ranked(order, -ascending)
    # modulo 2^64 a difference from the largest is right even where it overflows a signed integer
    wide = np.int64 if rows.dtype.itemsize < 8 else np.uint64
    largest = rows.max(axis=1, keepdims=True)
    below: Rows = np.subtract(largest, rows, dtype=wide, casting="unsafe")
    order, below = sort_ascending(below, largest=int(below.max(initial=0)))
    scores = np.subtract(largest, below, dtype=wide, casting="unsafe")
    return Ranked(order, scores.astype(rows.dtype))


def sort_ascending(values: Rows, *, largest: int | None) -> tuple[IntArray, Rows]:
    """Sort each row, ties by index: the indices and the sorted values, ``[B, d]`` each.

    Integers in ``0..largest`` are sorted together with their indices, as one key per entry, and
    long rows digit by digit.
    """
    num_items = values.shape[1]
    if largest is not None and largest < 2**32 and num_items >= _LONG:
        order: IntArray = np.empty(values.shape, dtype=np.int64)
        ascending = np.empty_like(values)
        for row, places, in_order in zip(values.astype(np.uint32), order, ascending, strict=True):
            places[:] = _order_by_digits(row, largest)
            in_order[:] = row[places]
        return order, ascending
    bits = (num_items - 1).bit_length()
    end = math.inf if largest is None else (largest + 1) << bits
    if end >= 2**63:
        order = np.asarray(np.argsort(values, axis=1, kind="stable"), dtype=np.int64)
        return order, np.take_along_axis(values, order, axis=1)
    keys: NDArray[np.integer] = values.astype(np.uint32 if end <= 2**32 else np.int64)
    # a Python int as the other operand keeps the keys as narrow as they are
    keys <<= bits
    keys |= np.arange(num_items, dtype=keys.dtype)
    keys.sort(axis=1)
    return (keys & ((1 << bits) - 1)).astype(np.int64), keys >> bits


def _order_by_digits(row: NDArray[np.uint32], largest: int) -> IntArray:
    """Return the stable order of integers ``[d]`` by numpy's radix sort, which has 16 bits."""
    order: IntArray = np.argsort(row.astype(np.uint16), kind="stable")
    if largest >= 2**16:
        order = order[np.argsort((row >> 16).astype(np.uint16)[order], kind="stable")]
    return order


def with_noise(rows: Rows, noise: FloatArray) -> FloatArray:
    """Return scores plus noise, float64 of their shape, each sum rounded once.

    So the release is a function of the exact sum, where an integer above 2^53 that is rounded
    first would move by more than it does.
    """
    if (
        rows.dtype.kind == "f"
        or not rows.size
        or max(rows.max().item(), -rows.min().item()) <= 2**53
    ):
        return np.add(rows, noise, dtype=np.float64)
    exact = rows.ravel().astype(object) + [Fraction(part) for part in noise.ravel().tolist()]
    return exact.astype(np.float64).reshape(rows.shape)


def blocks_of(rows: Rows, *, size: int = ROWS) -> Iterator[Rows]:
    """Yield ``size`` rows at a time, and an empty block where there are none."""
    for start in range(0, max(len(rows), 1), size):
        yield rows[start : start + size]


def in_blocks(rows: Rows, choose: Callable[[Rows], IntArray], *, size: int = ROWS) -> IntArray:
    """Return the choices ``[B, k]`` for ``rows`` ``[B, d]``, made for ``size`` rows at a time."""
    return np.concatenate([choose(part) for part in blocks_of(rows, size=size)])


def k_smallest(values: FloatArray, k: int) -> IntArray:
    """Return the indices of the k smallest of each row in ascending order of value, ``[B, k]``."""
    if k == 1:
        return np.argmin(values, axis=1)[:, None]
    if k < values.shape[1]:
        part = np.argpartition(values, k - 1, axis=1)[:, :k]
        order = np.argsort(np.take_along_axis(values, part, axis=1), axis=1)
        return np.take_along_axis(part, order, axis=1)
    return np.argsort(values, axis=1)
