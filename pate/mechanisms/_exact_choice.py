"""Choices by the largest noisy scores, of the exact law.

Noise has all its digits wherever an order depends on them.

Noise is a quantile of a uniform number, of which float64 knows 53 binary digits. Where two keys are
so close that rounding or the digits that follow could change their order, more digits are drawn,
and quantiles are bounded by decimal numbers, with operations and a logarithm that are rounded
correctly.
"""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import assert_never

import numpy as np
from numpy.typing import ArrayLike

from pate._validation import FloatArray, IntArray, require
from pate.mechanisms._exact_normal import Interval, LazyReal, decimal_precision, log_of, negative
from pate.mechanisms._noise import Noise, quantile
from pate.mechanisms._ranking import NEAR, k_smallest

EXTREME = 2.0**-20  # tails in which the digits that are not drawn move noise by more than 2^-33
# Elsewhere they move it by 2^-32 at most, for any law; logarithms are taken to err by less than
# 2^-40 of their value, 2^12 times the error that numpy promises; and both keys of a pair err.
_MARGIN = 2.0**-28
_LARGEST = 1e300  # noise is less than a thousand scales, and has to be finite


def sample_k_smallest(
    below: FloatArray,
    k: int,
    *,
    noise: Noise,
    scale: ArrayLike,
    generator: np.random.Generator,
    exact: Callable[[int, int], Fraction] | None = None,
    tails: FloatArray | None = None,
) -> IntArray:
    """Return the indices ``[B, k]`` of the k smallest of ``below - scale noise``, ascending.

    Args:
        below: ``[B, d]``, how far scores lie below some rank; minus infinity comes first, infinity
            last, whatever the noise.
        k: how many are chosen.
        noise: the law.
        scale: its scale, of a shape that broadcasts against ``below``; a negative one turns noise
            round, and one of a row at most is 0: a row without noise is sorted, not chosen from.
        generator: source of the noise.
        exact: returns, for a row and a place, the value that was clipped and rounded in
            ``below``, up to a constant of the row: values far below 0 are ordered by it. None if
            their order does not matter.
        tails: ``[B, d]``, the first 53 binary digits of the uniform numbers; drawn if None.

    Raises:
        ValueError: if noise of that scale may not be finite, or more than one scale of a row is 0.
    """
    scales = np.atleast_2d(np.asarray(scale, dtype=np.float64))
    largest = float(np.abs(scales).max(initial=0))
    require(largest <= _LARGEST, f"a scale of noise <= {_LARGEST:g}", scale=largest)
    zeros = int(np.count_nonzero(scales == 0, axis=1).max(initial=0))
    require(zeros <= (scales.shape[1] > 1), "noise on all of a row but one at most", zeros=zeros)
    widest = np.broadcast_to(np.abs(scales).max(axis=1, keepdims=True), (len(below), 1))
    tails = generator.random(below.shape) if tails is None else tails
    with np.errstate(divide="ignore", invalid="ignore"):  # of tails of 0, which are decided below
        keys = below - scales * quantile(tails, noise)
    ends = min(k + 1, below.shape[1])
    order = k_smallest(keys, ends)
    ascending = np.take_along_axis(keys, order, axis=1)
    with np.errstate(invalid="ignore"):  # infinities are in order, or need none
        margins = _margins(ascending, widest)
        close = np.diff(ascending, axis=1) <= np.minimum(margins[:, 1:], margins[:, :-1])
    extreme = np.minimum(tails, 1 - tails) < EXTREME
    doubtful = close.any(axis=1) | extreme.any(axis=1)
    if exact is not None:
        doubtful |= ascending[:, 0] < -NEAR * widest[:, 0]
    scales = np.broadcast_to(scales, below.shape)
    for row in np.flatnonzero(doubtful).tolist():
        certain = np.sort(keys[row, ~extreme[row]])[:k]
        last = certain[-1] if certain.size == k else np.inf
        reach = last + _margins(last, widest[row]) if np.isfinite(last) else last
        places = np.flatnonzero((keys[row] <= reach) | extreme[row])
        first = places[below[row, places] == -np.inf].tolist()
        others = places[np.isfinite(below[row, places])].tolist()
        ordered = _in_order(
            {at: Fraction(below[row, at]) if exact is None else exact(row, at) for at in others},
            {at: LazyReal.of(tails[row, at]) for at in others},
            {at: Fraction(scales[row, at]) for at in others},
            noise,
            generator,
        )
        found = [*first, *ordered, *np.flatnonzero(below[row] == np.inf).tolist()]
        order[row, :k] = found[:k]
    return order[:, :k]


def _margins(keys: ArrayLike, widest: FloatArray) -> FloatArray:
    return np.asarray(_MARGIN * widest + 2.0**-50 * np.abs(keys))


def _in_order(
    values: dict[int, Fraction],
    tails: dict[int, LazyReal],
    scales: dict[int, Fraction],
    noise: Noise,
    generator: np.random.Generator,
) -> list[int]:
    """Return the keys of ``values``, ascending by value less scaled noise of its tail."""
    bounds: dict[int, tuple[Fraction, Fraction]] = {}
    changed = list(values)
    while True:
        for at in changed:
            low, high = sorted(
                scales[at] * bound for bound in _quantile_of(tails[at], noise, generator)
            )
            bounds[at] = values[at] - high, values[at] - low
        order = sorted(values, key=bounds.__getitem__)
        close = [(at, after) for at, after in pairwise(order) if bounds[at][1] >= bounds[after][0]]
        changed = sorted({at for pair in close for at in pair})
        if not changed:
            return order
        for at in changed:
            tails[at].draw_more_bits(generator)


def _quantile_of(
    tail: LazyReal, noise: Noise, generator: np.random.Generator
) -> tuple[Fraction, Fraction]:
    """Return bounds on the noise exceeded with probability ``tail``, with more digits if needed."""
    while True:
        with decimal_precision(tail.length):
            bounds = _bounds(tail.bounds, noise)
            if bounds is not None:
                return Fraction(bounds[0]), Fraction(bounds[1])
        tail.draw_more_bits(generator)


def _bounds(tail: Interval, noise: Noise) -> Interval | None:
    """Return bounds on the noise exceeded with a probability in ``tail``; None if it has none."""
    low, high = tail
    rest = (1 - high).next_minus(), (1 - low).next_plus()
    if low <= 0 or rest[0] <= 0:
        return None
    if noise == "gumbel":
        return negative(log_of(negative(log_of(rest))))
    if noise == "exponential":
        return negative(log_of(tail))
    if noise == "laplace":
        if low < Decimal("0.5") < high:
            return None
        if high <= Decimal("0.5"):
            return negative(log_of(((2 * low).next_minus(), (2 * high).next_plus())))
        return log_of(((2 * rest[0]).next_minus(), (2 * rest[1]).next_plus()))
    if noise == "half_logistic":
        rest = (2 - high).next_minus(), (2 - low).next_plus()
    elif noise != "logistic":
        assert_never(noise)
    above, under = log_of(rest), log_of(tail)
    return (above[0] - under[1]).next_minus(), (above[1] - under[0]).next_plus()
