"""Laws and accuracies that mechanisms state of themselves; no code is shared with samplers.

An accuracy is how often noise leaves the right items ahead. A *gap* is the distance from the k-th
largest score to the next one. Unless stated otherwise the scores are a step profile, k equal scores
above d - k equal ones, which is the worst for a given gap: the k largest are found exactly so
often. Gaps are in scales of the noise here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple, assert_never

import numpy as np
from scipy.special import comb, gammaln, log_expit

from pate._validation import BoolArray, FloatArray, IntArray, require, require_in_open_unit_interval
from pate.accounting._cost import smallest_where
from pate.mechanisms._noise import ChoiceNoise, Noise, log_survival, quantile
from pate.mechanisms._ranking import Rows

MOST_OUTCOMES = 4096
"""How many sets are listed."""
MOST_FLIPPED = 128
"""The same where each chance is an integral over all others, as with exponential noise."""


class NotStatedError(ValueError):
    """A law or an accuracy that a mechanism does not state, or a law of too many outcomes."""


class Law(NamedTuple):
    """The probabilities with which a mechanism releases sets of items, for each row of scores."""

    chances: FloatArray
    """``[B, m]``: the probability of each of m sets."""
    members: BoolArray
    """``[m, d]``, or ``[B, m, d]`` if rows have different sets: which items are in them. Sets in
    different columns always differ."""
    nothing: FloatArray | None = None
    """``[B]``: the probability that nothing is released; None where a set always is."""


def sets_of(num_items: int, k: int, noise: ChoiceNoise) -> IntArray:
    """Return all sets of k items as ascending indices ``[m, k]``.

    Raises:
        NotStatedError: if there are more than are listed.
    """
    require_few(math.comb(num_items, k), noise)
    return np.array(list(combinations(range(num_items), k)))


def members_of(items: IntArray, num_items: int) -> BoolArray:
    """Return which of ``num_items`` items are in each row of indices, ``[m, d]``."""
    members = np.zeros((len(items), num_items), dtype=np.bool_)
    np.put_along_axis(members, items, True, axis=1)
    return members


def by_items(chances: FloatArray, sets: IntArray, order: IntArray) -> tuple[FloatArray, BoolArray]:
    """Return chances ``[B, m]`` of sets of items, and members ``[m, d]``, the same for all rows.

    Args:
        chances: ``[B, m]``, the chances of sets of ranks.
        sets: ``[m, k]``, all sets of k ranks.
        order: ``[B, d]``, the item of each rank.
    """
    num_items, k = order.shape[1], sets.shape[1]
    below = comb(np.arange(num_items)[:, None], np.arange(1, k + 1))

    def number(items: IntArray) -> IntArray:
        found = below[np.sort(items, axis=-1), np.arange(k)].sum(axis=-1)
        return np.asarray(found, dtype=np.int64)

    of_items = np.empty_like(chances)
    np.put_along_axis(of_items, number(order[:, sets]), chances, axis=1)
    return of_items, members_of(sets[np.argsort(number(sets))], num_items)


def require_few(outcomes: int, noise: ChoiceNoise) -> None:
    """Raise `NotStatedError` if there are more outcomes than are listed."""
    most = MOST_OUTCOMES if noise == "gumbel" else MOST_FLIPPED
    if outcomes > most:
        raise NotStatedError(
            f"a query has {outcomes:,} outcomes, of which {most:,} are listed at most"
        )


def choice_law(utilities: Rows, noise: ChoiceNoise) -> FloatArray:
    """Return the chances ``[B, m]`` of the largest of ``utilities`` with noise of scale 1."""
    weights = np.exp(utilities - utilities.max(axis=1, keepdims=True))
    if noise == "gumbel":
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
    if noise != "exponential":
        assert_never(noise)
    # permute and flip: an outcome comes at a uniform time, and is taken if no coin before it showed
    # heads
    nodes, parts = np.polynomial.legendre.leggauss(utilities.shape[1] // 2 + 1)
    chances = np.zeros(utilities.shape)
    for time, part in zip((nodes + 1) / 2, parts / 2, strict=True):
        still = np.log1p(-weights * time)
        chances += part * weights * np.exp(still.sum(axis=1, keepdims=True) - still)
    return chances


def peeling_law(scores: Rows, k: int, scale: float, noise: ChoiceNoise) -> Law:
    """Return the law of k items chosen one by one; any member of a set may come last."""
    num_items = scores.shape[1]
    require_few(sum(math.comb(num_items, size) for size in range(1, k + 1)), "gumbel")
    chances: dict[tuple[int, ...], FloatArray] = {(): np.ones(len(scores))}
    for _ in range(k):
        longer: dict[tuple[int, ...], FloatArray] = {}
        for chosen, chance in chances.items():
            left = [item for item in range(num_items) if item not in chosen]
            for item, part in zip(left, choice_law(scores[:, left] / scale, noise).T, strict=True):
                members = tuple(sorted((*chosen, item)))
                longer[members] = longer.get(members, 0.0) + chance * part
        chances = longer
    return Law(np.column_stack(list(chances.values())), members_of(np.array([*chances]), num_items))


_STEP = 0.01  # of the trapezoidal rule for integrals over the logarithm of an exponential variable
_LOG_WAITS: FloatArray = np.arange(-40.0, 4.5, _STEP)
_WAITS = np.exp(_LOG_WAITS)
_WEIGHTS = _STEP * np.exp(_LOG_WAITS - _WAITS)


def chance_of_one(log_others: float, lost: float, noise: ChoiceNoise) -> float:
    """Return the chance of one without loss against others that lose ``lost`` scales.

    There are ``exp(log_others)`` others.
    """
    if noise == "gumbel":
        return math.exp(log_expit(lost - log_others))
    if noise != "exponential":
        assert_never(noise)
    # permute-and-flip: the integral of (1 - q u)^others over the time u at which it would be taken
    chance = math.exp(-lost)
    if chance == 1:
        return math.exp(-np.logaddexp(0.0, log_others))
    # (others + 1) log(1 - q), where log(1 - q) is as -q for small q
    log_rate = np.logaddexp(0.0, log_others) + math.log(-math.log1p(-chance))
    return float(
        -np.expm1(-np.exp(min(log_rate, 700.0))) / np.exp(np.logaddexp(0.0, log_others) - lost)
    )


def chance_by_peeling(k: int, num_others: int, gap: float) -> float:
    """Return the chance that Gumbel noise keeps k ahead of ``num_others``, round by round."""
    return math.exp(-float(np.log1p(num_others * math.exp(-gap) / np.arange(1, k + 1)).sum()))


def chance_by_flips(k: int, num_others: int, gap: float) -> float:
    """Return the chance that k rounds of permute-and-flip keep k ahead of ``num_others``."""
    # in a round with j of the top left, the first of them is met at a uniform time of survival
    # (1 - u)^j; none of the others has won by then with probability (1 - rho u)^(d-k). Other
    # scores make it likelier: a lower chance q of the j-th one multiplies rho as well, and the time
    # q u of the first one comes no later. The integrand is smooth: steps ten times as long will do
    waits, weights = _WAITS[::10, None], _WEIGHTS[::10]
    first = np.minimum(-np.expm1(-waits / np.arange(1, k + 1)), 1 - 2**-53)
    none_before = np.exp(num_others * np.log1p(-math.exp(-gap) * first))
    return float(np.prod((weights @ none_before) / weights.sum()))


def chance_to_lead(noise: Noise, k: int, num_others: int, gap: float) -> float:
    """Return the chance that k draws of noise plus ``gap`` exceed ``num_others`` draws of it."""
    # the largest of n draws has F(z)^n = exp(-w) for an exponential w: integrate over log w
    largest = quantile(-np.expm1(-_WAITS / num_others), noise)
    return float(_WEIGHTS @ np.exp(k * log_survival(largest - gap, noise)) / _WEIGHTS.sum())


def smallest_gap(success: Callable[[float], float], probability: float, *, unit: float) -> float:
    """Return the smallest gap at which ``success`` of it, which grows, reaches ``probability``.

    Raises:
        ValueError: on a probability outside (0, 1), or one that no gap reaches.
    """
    require_in_open_unit_interval(probability=probability)
    if success(0.0) >= probability:
        return 0.0
    high = unit
    while success(high) < probability:
        high *= 2
        require(
            high < 1e300,
            "a probability that some gap reaches in floating point",
            probability=probability,
        )
    return smallest_where(lambda gap: success(gap) >= probability, 0.0, high, tolerance=1e-9)


def log_binomial(num_items: int, k: int) -> float:
    """Return the logarithm of the number of sets of k of so many items."""
    return float(gammaln(num_items + 1) - gammaln(k + 1) - gammaln(num_items - k + 1))


def log_less_one(log_number: float) -> float:
    """Return ``log(n - 1)`` from ``log n`` of a whole number n >= 2."""
    if log_number > 30:
        return log_number
    return math.log(max(round(math.exp(log_number)) - 1, 1))
