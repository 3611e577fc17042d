"""What guesses in one run prove: lower bounds on epsilon and mu from which of many canaries were there.

Each of ``m`` canaries is in one of two neighboring states, by a fair coin of its own. From what one
run published somebody makes ``r`` guesses, a number that is fixed beforehand, of which ``v`` are
right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from pate._typing import BoolArray, FloatArray
from pate._validation import require, require_count, require_in_open_unit_interval
from pate.accounting._accountant import RDPAccountant
from pate.accounting._bisection import smallest_where
from pate.accounting._gaussian import gaussian_epsilon

TradeOff = Callable[[float], float]
"""Returns the least rate of false positives at which a rate of true positives is possible: convex, symmetric."""

SHARE = 0.25
"""The share of canaries that are guessed, fixed before any run: a choice by what came of them would be no bound."""
_STEP = 0.01  # of epsilon, which is rounded down
_LARGEST_MU = 64.0
_EPSILONS = np.concatenate(([0.0], np.geomspace(1e-3, 200.0, 200)))


@dataclass(frozen=True)
class Guesses:
    """The guesses of one run.

    Attributes:
        canaries: how many canaries there were, each with a fair coin of its own.
        made: how many of them were guessed, a number that no run had a say in.
        right: how many guesses were right.
    """

    canaries: int
    made: int
    right: int

    def __post_init__(self) -> None:
        require_count(1, canaries=self.canaries, made=self.made)
        require(
            0 <= self.right <= self.made <= self.canaries,
            "0 <= right <= made <= canaries",
            **vars(self),
        )


def guess(scores: FloatArray, present: BoolArray, share: float = SHARE) -> Guesses:
    """Return the guesses that follow from scores: present for those above 0, absent for those below.

    Args:
        scores: ``[m]``, larger where a canary is likelier to be present; a score of 0 says nothing.
        present: ``[m]``, which canaries were present.
        share: the share of canaries that are guessed, those whose scores are farthest from 0.
    """
    made = max(1, math.ceil(share * len(scores)))
    chosen = np.argsort(-np.abs(scores), kind="stable")[:made]
    return Guesses(len(scores), made, int((present[chosen] == (scores[chosen] > 0)).sum()))


def epsilon_bound(guesses: Guesses, *, delta: float, confidence: float) -> float:
    """Return the epsilon below which no mechanism is (epsilon, ``delta``)-DP, rounded down to 0.01.

    It is wrong with a probability of at most ``1 - confidence`` (Steinke, Nasr & Jagielski (2023),
    Theorem 5.2).

    Raises:
        ValueError: if ``delta`` or ``confidence`` is out of range.
    """
    require(0 <= delta < 1, "0 <= delta < 1", delta=delta)
    require_in_open_unit_interval(confidence=confidence)
    steps = 0
    # upwards, because the term of delta need not fall as epsilon grows
    while _chance(guesses, steps * _STEP, delta) <= 1 - confidence:
        steps += 1
    return max(0, steps - 1) * _STEP


def _chance(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Bound the probability of so many right guesses under an (``epsilon``, ``delta``)-DP mechanism."""
    likely = 1 / (1 + math.exp(-epsilon))
    by_chance = float(binom.sf(guesses.right - 1, guesses.made, likely))
    if delta == 0 or not guesses.right:
        return by_chance
    missing = np.arange(1, guesses.right + 1)
    just_below = np.cumsum(binom.pmf(guesses.right - missing, guesses.made, likely))
    return min(1.0, by_chance + 2 * guesses.canaries * delta * float((just_below / missing).max()))


def refutes(guesses: Guesses, trade_off: TradeOff, *, confidence: float) -> bool:
    """Return whether guesses prove that a mechanism has not this trade-off.

    For a mechanism that has it, they do so with a probability of at most ``1 - confidence``
    (Mahloujifar, Melis & Chaudhuri (2024), Theorem 9 and Algorithm 1). With ``p_j`` the probability
    of j right guesses, and for every i,

        least(sum_(j >= i) j p_j / m) <= sum_(j >= i-1) (r - j) p_j / m,

    where ``least`` is the trade-off: the right side holds the guesses that the flip of one coin
    would have made right. Of all laws with ``P[right >= v] = 1 - confidence`` the one below has the
    least total, which for a law is ``r / m``.
    """
    m, r, v = guesses.canaries, guesses.made, guesses.right
    right, wrong = (1 - confidence) * v / m, (1 - confidence) * (r - v) / m
    for i in range(v, 0, -1):
        # right rates above 1 are as impossible as a total that is too large, which is what is found
        # then
        more = max(wrong, trade_off(min(right, 1.0))) - wrong
        wrong += more
        right += (i - 1) / (r - i + 1) * more
    return right + wrong > r / m * (1 + 1e-12)


def mu_bound(guesses: Guesses, *, confidence: float) -> float:
    """Return the mu below which no mechanism is mu-GDP; it is wrong with a probability of at most ``1 - confidence``.

    Raises:
        ValueError: if ``confidence`` is out of range.
    """
    require_in_open_unit_interval(confidence=confidence)

    def possible(mu: float) -> bool:
        return not refutes(guesses, gaussian_trade_off(mu), confidence=confidence)

    return (
        0.0
        if possible(0.0)
        else smallest_where(possible, 0.0, _LARGEST_MU, tolerance=1e-6) * (1 - 1e-6)
    )


def gaussian_trade_off(mu: float) -> TradeOff:
    """Return the trade-off of mu-GDP (Dong, Roth & Su (2022), Definition 2.6)."""
    return lambda hits: float(ndtr(ndtri(hits) - mu))


def trade_off_of(account: RDPAccountant) -> TradeOff:
    """Return the trade-off that follows from all that is proven of an account: from its deltas, and from its mu."""
    cost = account.cost
    deltas, factors = (
        np.array([account.get_delta(float(epsilon)) for epsilon in _EPSILONS]),
        np.exp(_EPSILONS),
    )
    gaussian = (
        gaussian_trade_off(math.sqrt(cost.mu_squared))
        if cost.delta0 == 0 and math.isfinite(cost.mu_squared)
        else None
    )

    def least(hits: float) -> float:
        one, other = (hits - deltas) / factors, 1 - deltas - factors * (1 - hits)
        # between the lines of two deltas a curve is more
        between = 0.0 if gaussian is None else gaussian(hits)
        return max(between, float(one.max()), float(other.max()))

    return least


def hits_at(trade_off: TradeOff, false_positives: float) -> float:
    """Return the largest rate of true positives that a trade-off allows at a rate of false ones."""
    return smallest_where(lambda hits: trade_off(hits) >= false_positives, 0.0, 1.0)


def mean_bound(shares: ArrayLike, *, confidence: float) -> float:
    """Return the mean below which independent variables in [0, 1] have not their mean, whatever else their law is.

    A gambler who starts with 1 and bets on each variable that it is above ``mean`` hardly ever gets
    rich if it is not: ``P[wealth >= 1 / error] <= error`` (Ville; Waudby-Smith & Ramdas (2024)).
    The stakes follow from earlier ones.

    Args:
        shares: ``[n]``, such as the shares of right guesses of runs that have nothing in common.
        confidence: the probability with which the bound holds.
    """
    values = np.asarray(shares, dtype=np.float64)
    before = np.arange(len(values))
    means = (0.5 + np.cumsum(values) - values) / (before + 1)
    squares = (values - means) ** 2
    variances = (0.25 + np.cumsum(squares) - squares) / (before + 1)
    stakes = np.sqrt(-2 * math.log(1 - confidence) / (len(values) * variances))

    def possible(mean: float) -> bool:
        # never all that there is; of a larger mean there is less to win, whatever the variables
        gains = np.log1p(np.minimum(stakes, 0.9 / mean) * (values - mean))
        return bool(np.cumsum(gains).max() < -math.log(1 - confidence))

    return (
        0.0 if possible(1e-9) else smallest_where(possible, 1e-9, 1.0, tolerance=1e-6) * (1 - 1e-6)
    )


def most_right(trade_off: TradeOff) -> float:
    """Return the largest share of right guesses about fair coins that a trade-off allows: where both errors are one."""
    return smallest_where(lambda hits: trade_off(hits) >= 1 - hits, 0.5, 1.0)


@dataclass(frozen=True)
class Bounds:
    """What one run proves, each figure with a confidence of its own.

    Attributes:
        guesses: how many were made, and right.
        epsilon: no mechanism with a smaller epsilon at ``delta`` did this (Steinke et al. (2023)).
        mu: no mechanism that is GDP with a smaller mu did this (Mahloujifar et al. (2024)).
        gaussian_epsilon: the epsilon at ``delta`` of a Gaussian mechanism of ``mu``: a bound for
            such alone.
        refuted: whether the trade-off that was stated is not that of the run.
    """

    guesses: Guesses
    epsilon: float
    mu: float
    gaussian_epsilon: float
    refuted: bool

    @classmethod
    def of(
        cls,
        scores: FloatArray,
        present: BoolArray,
        stated: TradeOff,
        *,
        delta: float,
        confidence: float = 0.95,
    ) -> Bounds:
        """Return what scores ``[m]`` of canaries prove that were ``present`` ``[m]`` or not."""
        guesses = guess(scores, present)
        mu = mu_bound(guesses, confidence=confidence)
        return cls(
            guesses=guesses,
            epsilon=epsilon_bound(guesses, delta=delta, confidence=confidence),
            mu=mu,
            gaussian_epsilon=gaussian_epsilon(delta, mu),
            refuted=refutes(guesses, stated, confidence=confidence),
        )
