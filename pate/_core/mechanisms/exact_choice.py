"""Choices of the exact law, by noisy scores or from more outcomes than can be listed.

Noise has all its digits wherever an order depends on them.

Noise is a quantile of a uniform number. A float64 knows 53 of its binary digits. Where two keys are
so close that rounding or the digits that follow could change their order, more digits are drawn,
and quantiles are bounded by decimal numbers, with operations and a logarithm that are rounded
correctly.

Outcomes that cannot be listed are proposed, and rejected exactly. A proposal is drawn by integer
weights, which need only be near the right ones. It is kept with the chance that remains: the weight
of the outcome by the theorem, over the rate at which it is proposed. Weights by the theorem are
integers times exponentials of rational numbers, so that chances are bounded by decimal numbers as
closely as it takes (rejection sampling, von Neumann (1951)); and rates are lifted by more than
floats err, so that no chance exceeds 1.

Permute-and-flip visits the outcomes in random order and takes the first with a coin, of chance
``p = exp(-loss)``, that shows heads (McKenna & Sheldon (2020)). Let each be visited at a time of
its own, exponential of rate 1. An outcome that is still left at time t is taken at the rate
``p exp(-t) / (1 - p + p exp(-t))``. This is the stream of proposals that are kept, of rate p for
each outcome, thinned with the chance ``1 / (p + (1 - p) exp(t))``. About two proposals are needed,
however many outcomes there are.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple, assert_never

import numpy as np
from numpy.typing import ArrayLike

from pate._core.mechanisms.noise import (
    ChoiceNoise,
    Interval,
    LazyReal,
    Noise,
    decimal_precision,
    enclose,
    exp_of,
    log_of,
    negative,
    product,
    quantile,
    require_noise,
    total,
)
from pate._core.mechanisms.ranking import NEAR, k_smallest
from pate._core.validation import BoolArray, FloatArray, IntArray, require

EXTREME = 2.0**-20  # tails in which the digits that are not drawn move noise by more than 2^-33
# Elsewhere they move it by 2^-32 at most, for any law; logarithms are taken to err by less than
# 2^-40 of their value, 2^12 times the error that numpy promises; and both keys of a pair err.
MARGIN = 2.0**-28
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
        scale: its scale, of a shape that broadcasts against ``below``. A negative one turns noise
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
    order = k_smallest(keys, min(k + 1, below.shape[1]))
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
        others = places[np.isfinite(below[row, places])]
        apart = exact is not None and ascending[row, 0] < -NEAR * widest[row, 0]
        margins = _margins(keys[row], widest[row])
        ordered = _in_order(
            {
                at: exact(row, at) if apart and exact is not None else Fraction(below[row, at])
                for at in others.tolist()
            },
            {at: LazyReal.of(tails[row, at]) for at in others.tolist()},
            {at: Fraction(scales[row, at]) for at in others.tolist()},
            noise,
            generator,
            {
                at: (float(keys[row, at] - margins[at]), float(keys[row, at] + margins[at]))
                for at in ([] if apart else others[~extreme[row, others]].tolist())
            },
        )
        order[row, :k] = [*first, *ordered, *np.flatnonzero(below[row] == np.inf).tolist()][:k]
    return order[:, :k]


def _margins(keys: ArrayLike, widest: FloatArray) -> FloatArray:
    return np.asarray(MARGIN * widest + 2.0**-50 * np.abs(keys))


def _in_order(
    values: dict[int, Fraction],
    tails: dict[int, LazyReal],
    scales: dict[int, Fraction],
    noise: Noise,
    generator: np.random.Generator,
    known: Mapping[int, tuple[float, float]],
) -> list[int]:
    """Return the keys of ``values``, ascending by value less scaled noise of its tail.

    What is ``known`` has bounds already.
    """
    bounds: dict[int, tuple[Fraction | float, Fraction | float]] = {**known}
    changed = [at for at in values if at not in known]
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
            if isinstance(bounds[at][0], Fraction):
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
    """Return bounds on the noise exceeded with a probability in ``tail``. None if it has none."""
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


SLACK = 2.0**-10
"""The logarithm of a rate is lifted by this."""
# by more than logarithms of chances err: their terms are below 2^25, and err by less than 2^-42
# each
_LOG_MARGIN = 2.0**-14
# a uniform number below `EXTREME` has a logarithm below -13.8, whatever its digits
_FAR = 13.0
_WEIGHTS = 2.0**50


class Chance(NamedTuple):
    """The chance ``factor (exp(-low) - exp(-high))``, the second term 0 if ``high`` is None."""

    factor: Fraction
    low: Fraction
    high: Fraction | None = None


class Proposals(NamedTuple):
    """One proposal for each of n rows."""

    outcomes: IntArray
    """``[n, m]``"""
    log_chances: FloatArray
    """``[n]``: with which they are kept, as floats have them."""
    chance: Callable[[int], Chance]
    """Returns the chance of a place in ``0..n-1`` itself."""
    losses: FloatArray | None = None
    """``[n]``, of permute-and-flip: how far outcomes lie below the best one, in scales of noise."""
    loss: Callable[[int], Fraction] | None = None
    """Returns the loss of a place itself."""


def cumulative_weights(masses: FloatArray) -> IntArray:
    """Return cumulative sums of integers ``[.., n]`` of at least 1, proportional to ``masses``."""
    shares = masses / np.maximum(masses.sum(axis=-1, keepdims=True), 1e-300)
    shares *= _WEIGHTS
    weights = shares.astype(np.int64)
    weights += 1
    return np.cumsum(weights, axis=-1, out=weights)


class Picked(NamedTuple):
    """Places drawn by integer weights: they have the probability ``weights / totals``."""

    places: IntArray
    weights: IntArray
    totals: IntArray

    @property
    def log_shares(self) -> FloatArray:
        """Logarithms of the probabilities."""
        return np.log(self.weights / self.totals)

    def share(self, row: int) -> Fraction:
        """The probability of the place that was drawn in a row."""
        return Fraction(int(self.weights[row]), int(self.totals[row]))


def pick(cumulative: IntArray, generator: np.random.Generator) -> Picked:
    """Draw a place in each row ``[n, m]`` of cumulative weights, ``[n]``."""
    totals = cumulative[:, -1]
    places = np.argmax(cumulative > generator.integers(totals)[:, None], axis=1)
    rows = np.arange(len(cumulative))
    before = np.where(places > 0, cumulative[rows, places - 1], 0)
    return Picked(places, cumulative[rows, places] - before, totals)


def draw(
    log_rates: FloatArray,
    propose: Callable[[IntArray], Proposals],
    generator: np.random.Generator,
    *,
    noise: ChoiceNoise,
) -> IntArray:
    """Return an outcome for each row, ``[B, m]``, by the exponential mechanism or permute-and-flip.

    Args:
        log_rates: ``[B]``, logarithms of how often a row's proposals are made in a unit of time,
            before any is refused.
        propose: returns proposals for rows ``[n]``.
        generator: source of the randomness.
        noise: ``gumbel`` for the exponential mechanism, ``exponential`` to permute and flip.

    Raises:
        ArithmeticError: if a proposal is made less often than its outcome must be.
    """
    require_noise(ChoiceNoise, noise=noise)
    rows = np.arange(log_rates.size)
    times, uncertain = np.zeros(rows.size), np.zeros(rows.size, dtype=np.bool_)
    waits: list[tuple[IntArray, FloatArray]] = []
    lazy: dict[int, list[LazyReal]] = {}
    chosen = None
    while rows.size:
        proposals = propose(rows)
        if chosen is None:
            chosen = np.zeros((rows.size, proposals.outcomes.shape[1]), dtype=np.int64)
        kept = _are_kept(proposals, generator)
        if noise == "exponential":
            tails = generator.random(rows.size)
            waits.append((rows, tails))
            uncertain[rows] |= tails < EXTREME
            with np.errstate(divide="ignore"):
                times[rows] -= np.log(tails)
            places = np.flatnonzero(kept)
            at = rows[places]
            scaled, coins = times[at] * np.exp(-log_rates[at]), generator.random(places.size)
            assert proposals.losses is not None and proposals.loss is not None
            kept[places], doubtful = _are_taken(
                proposals.losses[places], scaled, coins, uncertain[at]
            )
            for i in np.flatnonzero(doubtful).tolist():
                row, place = int(at[i]), int(places[i])
                past = lazy.setdefault(row, [])
                past += [
                    LazyReal.of(drawn[np.searchsorted(of, row)]) for of, drawn in waits[len(past) :]
                ]
                slowness = Chance(Fraction(1), Fraction(float(log_rates[row])))
                kept[place] = is_taken(
                    proposals.loss(place), past, slowness, LazyReal.of(coins[i]), generator
                )
        elif noise != "gumbel":
            assert_never(noise)
        chosen[rows[kept]] = proposals.outcomes[kept]
        rows = rows[~kept]
    return np.zeros((0, 0), dtype=np.int64) if chosen is None else chosen


def _are_kept(proposals: Proposals, generator: np.random.Generator) -> BoolArray:
    if (proposals.log_chances >= 0).any():
        raise ArithmeticError("An outcome is proposed less often than its law demands.")
    coins = generator.random(len(proposals.log_chances))
    with np.errstate(divide="ignore", invalid="ignore"):
        lead = proposals.log_chances - np.log(coins)
    kept = lead > 0
    doubtful = ~(np.abs(lead) > _LOG_MARGIN) | (coins < EXTREME) & (proposals.log_chances < -_FAR)
    for place in np.flatnonzero(doubtful).tolist():
        kept[place] = happens(proposals.chance(place), LazyReal.of(coins[place]), generator)
    return kept


def _are_taken(
    losses: FloatArray, times: FloatArray, coins: FloatArray, uncertain: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return whether the outcomes are taken at these times, and where floats cannot tell."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        needed = np.log1p(-np.expm1(-losses) * np.expm1(times))
        lead = -np.log(coins) - needed
        doubtful = ~(np.abs(lead) > MARGIN * (1 + needed)) | (coins < EXTREME) & (needed > _FAR)
    return lead > 0, doubtful | uncertain


def happens(chance: Chance, uniform: LazyReal, generator: np.random.Generator) -> bool:
    """Return whether ``uniform`` is below ``chance``."""
    while True:
        with decimal_precision(uniform.length):
            bounds = _bounds_of(chance)
            least, most = uniform.bounds
            if most <= bounds[0]:
                return True
            if least >= bounds[1]:
                return False
        uniform.draw_more_bits(generator)


def _bounds_of(chance: Chance) -> Interval:
    falls = exp_of(enclose(-chance.low))
    if chance.high is not None:
        falls = total(falls, negative(exp_of(enclose(-chance.high))))
    return product(enclose(chance.factor), falls)


def is_taken(
    loss: Fraction,
    waits: list[LazyReal],
    slowness: Chance,
    coin: LazyReal,
    generator: np.random.Generator,
) -> bool:
    """Return whether ``coin`` is below ``1 / (p + (1 - p) exp(t))``, where ``p = exp(-loss)``.

    The time t is the sum of ``waits`` times ``slowness``, which is one over the rate of proposals.
    """
    while loss:
        with decimal_precision(coin.length):
            grown = exp_of(product(sum_of_exponentials(waits), _bounds_of(slowness)))
            heads = exp_of(enclose(-loss))
            tails = total((Decimal(1), Decimal(1)), negative(heads))
            bounds = product(coin.bounds, total(heads, product(tails, grown)))
            if bounds[1] <= 1:
                return True
            if bounds[0] >= 1:
                return False
        for digits in (*waits, coin):
            digits.draw_more_bits(generator)
    return True


def sum_of_exponentials(waits: list[LazyReal]) -> Interval:
    """Return bounds on the sum of exponential numbers that are exceeded with these probabilities.

    The upper one is infinite as long as all digits of any of these are 0.
    """
    bounds = Decimal(0), Decimal(0)
    for wait in waits:
        low, high = wait.bounds
        bounds = total(bounds, negative(log_of((max(low, Decimal(0)), high))))
    return bounds
