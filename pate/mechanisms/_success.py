"""How far apart scores must lie for a mechanism to choose the right items, for planning.

A *gap* is the distance from the k-th largest score to the next one. For mechanisms that choose k of
d items, `top_k_probability` is a probability with which the chosen ones are the k largest, whatever
the scores are in other respects, and `gap_for_top_k` is its inverse. Unless stated otherwise it is
that of a step profile, k equal scores above d - k equal ones, which is the worst for a given gap:
the k largest are found exactly so often. Tests of gaps, and StableTopK, answer or do not:
`answer_probability` and `gap_for_answer`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch

import numpy as np
from scipy.special import gammaln, log_expit

from pate._typing import FloatArray
from pate._validation import require, require_count, require_in_open_unit_interval
from pate.accounting._bisection import smallest_where
from pate.mechanisms._base import TopKMechanism
from pate.mechanisms._baselines import OneShotLaplace
from pate.mechanisms._canonical import CanonicalMechanism
from pate.mechanisms._joint import JointMechanism
from pate.mechanisms._limited_domain import LimitedDomain
from pate.mechanisms._noise import Noise, log_survival, quantile
from pate.mechanisms._noisy_top_k import NoisyTopK
from pate.mechanisms._peeling import GumbelPeeling, PermuteAndFlipPeeling
from pate.mechanisms._ranking import require_within
from pate.mechanisms._stability import LaplaceStabilityTest, StabilityTest
from pate.mechanisms._stable_top_k import StableTopKMechanism

_STEP = 0.01  # of the trapezoidal rule for integrals over the logarithm of an exponential variable
_LOG_WAITS: FloatArray = np.arange(-40.0, 4.5, _STEP)
_WAITS = np.exp(_LOG_WAITS)
_WEIGHTS = _STEP * np.exp(_LOG_WAITS - _WAITS)


def top_k_probability(
    mechanism: TopKMechanism | LimitedDomain, *, gap: float, num_items: int
) -> float:
    """Return a probability with which the k largest of ``num_items`` scores are the ones chosen, in any order.

    Args:
        mechanism: a choice of k items, or of at most k: then it is the probability that all k are
            listed.
        gap: the distance from the k-th largest score to the next one, in votes, at least 0.
        num_items: the number of scores d; that of a limited domain does not matter beyond ``kbar +
            1``.

    Returns:
        The smallest probability over all scores with that gap, which is that of a step profile; for
        the joint mechanism a lower bound on it, because a step profile is not its worst one.

    Raises:
        ValueError: on a gap that is negative or not finite, too few items for k, or a mechanism of
            another kind.
    """
    require(0 <= gap < math.inf, "a finite gap >= 0", gap=gap)
    require_count(1, num_items=num_items)
    if isinstance(mechanism, LimitedDomain):
        require_within(num_items, spare=1, kbar=mechanism.kbar)
    else:
        require_within(num_items, spare=mechanism.spare, k=mechanism.k)
    return (
        1.0
        if mechanism.k == num_items
        else _top_k_probability(mechanism, gap / mechanism.scale, num_items)
    )


def gap_for_top_k(
    mechanism: TopKMechanism | LimitedDomain, *, probability: float, num_items: int
) -> float:
    """Return the smallest gap, in votes, at which `top_k_probability` reaches ``probability``.

    Raises:
        ValueError: on a probability outside (0, 1), too few items for k, a mechanism of another
            kind, or the published loss of the canonical mechanism at ``gamma = 0``, to which no gap
            matters.
    """
    if isinstance(mechanism, CanonicalMechanism):
        deaf = mechanism.gamma == 0 and mechanism.loss == "published"
        require(not deaf, "gamma > 0 with the published loss", gamma=mechanism.gamma)
    return _inverse(
        lambda gap: top_k_probability(mechanism, gap=gap, num_items=num_items),
        probability,
        unit=mechanism.scale,
    )


@singledispatch
def _top_k_probability(
    mechanism: TopKMechanism | LimitedDomain, gap: float, num_items: int
) -> float:
    """Return the probability for a gap in units of the scale, and more items than k."""
    raise ValueError(f"Expected a mechanism whose success is known, got {type(mechanism).__name__}")


@_top_k_probability.register
def _(mechanism: CanonicalMechanism, gap: float, num_items: int) -> float:
    # the smallest score of any other set is the (k+1)-th at most, and the largest left out the k-th
    # at least: it loses the gap against a top-k that is credited with its lead, and gamma times the
    # gap against one that is not
    lost = gap if mechanism.loss == "lead" else mechanism.gamma * gap
    return _chance_of_one(
        _log_less_one(_log_binomial(num_items, mechanism.k)), lost, mechanism.noise
    )


@_top_k_probability.register
def _(mechanism: JointMechanism, gap: float, num_items: int) -> float:
    # the sequence in order loses nothing, and every sequence with an item from outside the gap at
    # least; the other orders of the top-k, which may lose as much as there is, are not counted on
    log_orders = float(gammaln(mechanism.k + 1))
    log_sequences = log_orders + _log_binomial(num_items, mechanism.k)
    return _chance_of_one(
        log_orders + _log_less_one(log_sequences - log_orders), gap, mechanism.noise
    )


@_top_k_probability.register
def _(mechanism: GumbelPeeling, gap: float, num_items: int) -> float:
    return _chance_by_peeling(mechanism.k, num_items - mechanism.k, gap)


@_top_k_probability.register
def _(mechanism: LimitedDomain, gap: float, num_items: int) -> float:
    # others of the domain lose the gap at least, and so does the threshold, but for its lead over
    # the last of them
    k, kbar = mechanism.k, mechanism.kbar
    lead = mechanism.window(mechanism.relation) / mechanism.scale + math.log(kbar / mechanism.delta)
    log_others = float(np.logaddexp(lead, math.log(kbar - k) if kbar > k else -math.inf)) - gap
    return math.exp(-float(np.logaddexp(0.0, log_others - np.log(np.arange(1, k + 1))).sum()))


@_top_k_probability.register
def _(mechanism: PermuteAndFlipPeeling, gap: float, num_items: int) -> float:
    # In a round with j of the top left, the first of them is met at a uniform time whose survival
    # is (1 - u)^j; none of the others has won by then with probability (1 - rho u)^(d-k). Other
    # scores make it likelier: a lower chance q of the j-th one multiplies rho as well, and the time
    # q u of the first one comes no later.
    waits, weights = (
        _WAITS[::10, None],
        _WEIGHTS[::10],
    )  # the integrand is smooth: steps ten times as long will do
    first = np.minimum(-np.expm1(-waits / np.arange(1, mechanism.k + 1)), 1 - 2**-53)
    none_before = np.exp((num_items - mechanism.k) * np.log1p(-math.exp(-gap) * first))
    rounds = (weights @ none_before) / weights.sum()
    return float(np.prod(rounds))


@_top_k_probability.register
def _(mechanism: NoisyTopK, gap: float, num_items: int) -> float:
    if mechanism.noise == "gumbel":
        return _chance_by_peeling(mechanism.k, num_items - mechanism.k, gap)
    return _chance_to_lead(mechanism.noise, mechanism.k, num_items - mechanism.k, gap)


@_top_k_probability.register
def _(mechanism: OneShotLaplace, gap: float, num_items: int) -> float:
    return _chance_to_lead("laplace", mechanism.k, num_items - mechanism.k, gap)


def _chance_of_one(log_others: float, lost: float, noise: str) -> float:
    """Return the chance of one that loses nothing against ``exp(log_others)`` that lose ``lost`` scales."""
    log_odds = log_others - lost
    if noise == "gumbel":
        return math.exp(log_expit(-log_odds))
    # permute-and-flip: the integral of (1 - q u)^others over the time u at which it would be taken
    chance = math.exp(-lost)
    if chance == 1:
        return math.exp(-np.logaddexp(0.0, log_others))
    # (others + 1) log(1 - q), where log(1 - q) is as -q for small q
    log_rate = np.logaddexp(0.0, log_others) + math.log(-math.log1p(-chance))
    return float(
        -np.expm1(-np.exp(min(log_rate, 700.0))) / np.exp(np.logaddexp(0.0, log_others) - lost)
    )


def _chance_by_peeling(k: int, num_others: int, gap: float) -> float:
    """Return the chance that Gumbel noise keeps k ahead of ``num_others``: in each round one of those left wins."""
    return math.exp(-float(np.log1p(num_others * math.exp(-gap) / np.arange(1, k + 1)).sum()))


def _chance_to_lead(noise: Noise, k: int, num_others: int, gap: float) -> float:
    """Return the chance that k draws of noise plus ``gap`` exceed ``num_others`` draws of it."""
    # the largest of n draws has F(z)^n = exp(-w) for an exponential w: integrate over log w
    largest = quantile(-np.expm1(-_WAITS / num_others), noise)
    return float(_WEIGHTS @ np.exp(k * log_survival(largest - gap, noise)) / _WEIGHTS.sum())


def answer_probability(
    mechanism: StabilityTest | LaplaceStabilityTest | StableTopKMechanism,
    *,
    gap: float,
    widest_other: float = 0.0,
) -> float:
    """Return a probability with which a gap passes its test, or with which StableTopK releases the set above it.

    Args:
        mechanism: a test of a gap, or `StableTopKMechanism` without a regularizer.
        gap: the gap between two sorted scores, in votes, at least 0.
        widest_other: the largest of all other gaps, and majorities for none or all of the labels,
            from which `StableTopKMechanism` has to choose, in votes.

    Raises:
        ValueError: on gaps that are negative or not finite, or a regularizer.
    """
    require(0 <= gap < math.inf, "a finite gap >= 0", gap=gap)
    if isinstance(mechanism, StableTopKMechanism):
        require(
            0 <= widest_other < math.inf, "a finite widest_other >= 0", widest_other=widest_other
        )
        require(mechanism.regularizer is None, "no regularizer", regularizer=mechanism.regularizer)
        return mechanism.choice.probability(gap - widest_other) * float(
            mechanism.test.probability(gap)
        )
    return float(mechanism.probability(gap))


def gap_for_answer(
    mechanism: StabilityTest | LaplaceStabilityTest | StableTopKMechanism,
    *,
    probability: float,
    widest_other: float = 0.0,
) -> float:
    """Return the smallest gap, in votes, at which `answer_probability` reaches ``probability``.

    Raises:
        ValueError: on a probability outside (0, 1), or a regularizer.
    """
    return _inverse(
        lambda gap: answer_probability(mechanism, gap=gap, widest_other=widest_other),
        probability,
        unit=mechanism.sensitivity,
    )


def _inverse(success: Callable[[float], float], probability: float, *, unit: float) -> float:
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


def _log_binomial(num_items: int, k: int) -> float:
    return float(gammaln(num_items + 1) - gammaln(k + 1) - gammaln(num_items - k + 1))


def _log_less_one(log_number: float) -> float:
    """Return ``log(n - 1)`` from ``log n`` of a whole number n >= 2."""
    if log_number > 30:
        return log_number
    return math.log(max(round(math.exp(log_number)) - 1, 1))
