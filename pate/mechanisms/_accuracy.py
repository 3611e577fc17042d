"""How often noise leaves the right items ahead, for mechanisms that state their accuracy.

A *gap* is the distance from the k-th largest score to the next one. Unless stated otherwise the
scores are a step profile, k equal scores above d - k equal ones, which is the worst for a given
gap: the k largest are found exactly so often. Gaps are in scales of the noise here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import assert_never

import numpy as np
from scipy.special import gammaln, log_expit

from pate._validation import FloatArray, require, require_in_open_unit_interval
from pate.accounting._bisection import smallest_where
from pate.mechanisms._noise import ChoiceNoise, Noise, log_survival, quantile

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
