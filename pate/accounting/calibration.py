"""Calibration: the noise that a target epsilon asks for, on the private side of the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from pate.accounting.accountant import RDPAccountant
from pate.accounting.bisection import smallest_where
from pate.accounting.conversion import Conversion
from pate.accounting.cost import DEFAULT_ORDERS
from pate.accounting.events import BoundedRangeEvent, ComposedEvent, Event, StabilityTestEvent
from pate.accounting.relation import NeighboringRelation
from pate.typing import FloatArray
from pate.validation import expect, expect_count, expect_open_unit, expect_positive

_COARSE = DEFAULT_ORDERS[::6]  # a subset of the orders errs on the private side; enough to compare candidates


def epsilon_of(
    event: Event,
    *,
    count: int,
    delta: float,
    conversion: Conversion = "tightest",
    orders: FloatArray = DEFAULT_ORDERS,
) -> float:
    """Return epsilon at ``delta`` of ``event`` done ``count`` times, under the event's own relation."""
    accountant = RDPAccountant(relation=event.neighboring_relation, orders=orders)
    return accountant.compose(event, count).get_epsilon(delta=delta, conversion=conversion)


def calibrate_scale(
    event_of: Callable[[float], Event],
    *,
    target_epsilon: float,
    delta: float,
    num_queries: int,
    tolerance: float = 1e-6,
    orders: FloatArray = DEFAULT_ORDERS,
) -> float:
    """Return the smallest scale of the noise at which ``num_queries`` events cost ``target_epsilon`` at most.

    Args:
        event_of: the event of one query by the scale of its noise; more noise must not cost more.
        target_epsilon: the largest epsilon of all queries together.
        delta: the delta at which it holds.
        num_queries: how many queries are answered.
        tolerance: how much larger than need be the scale may be, relative. It is never smaller.
        orders: Renyi orders that epsilon is computed on.

    Raises:
        ValueError: if no scale reaches the target, as where the failures of tests alone cost ``delta``.
    """
    expect_positive(target_epsilon=target_epsilon, tolerance=tolerance)
    expect_open_unit(delta=delta)
    expect_count(1, num_queries=num_queries)

    def epsilon(log_scale: float) -> float:
        return epsilon_of(event_of(math.exp(log_scale)), count=num_queries, delta=delta, orders=orders)

    def holds(log_scale: float) -> bool:
        return epsilon(log_scale) <= target_epsilon

    low, high, step = 0.0, 0.0, 1.0
    while not holds(high):
        low, high, step = high, high + step, 2 * step
        expect(high < 200, f"a target that some noise reaches, with delta = {delta:g}", target_epsilon=target_epsilon)
    while low == high or holds(low):
        high, low = low, low - step
        step *= 2
        expect(low > -200, "a target that some noise exceeds", target_epsilon=target_epsilon)
    # epsilon is close to a power of the scale: secants in logarithms close in on the target within a few steps
    above, below = math.log(epsilon(low) / target_epsilon), _log_ratio(epsilon(high), target_epsilon)
    for _ in range(60):
        if high - low <= tolerance:
            break
        share = above / (above - below) if math.isfinite(above) and math.isfinite(below) else 0.5
        middle = low + (high - low) * min(max(share, 0.02), 0.98)
        # half a tolerance further makes sure that both ends move
        middle = min(middle + tolerance / 2, high - tolerance / 4)
        found = _log_ratio(epsilon(middle), target_epsilon)
        if found <= 0:
            high, below, above = middle, found, above / 2
        else:
            low, above, below = middle, found, below / 2
    return math.exp(high)


def _log_ratio(epsilon: float, target: float) -> float:
    return math.log(epsilon / target) if epsilon > 0 else -math.inf


@dataclass(frozen=True, kw_only=True)
class StableTopKNoise:
    """Noise of StableTopK for a target, and what a query needs to be answered.

    Attributes:
        scale_gap: scale of the Gumbel noise of the choice of a gap, in votes.
        sigma_test: standard deviation of the stability test, in votes.
        delta_test: probability that an unstable set passes, per query.
        epsilon: what all queries cost, at most the target.
        gap: the gap in votes that a query needs to be answered with the probability asked for.
    """

    scale_gap: float
    sigma_test: float
    delta_test: float
    epsilon: float
    gap: float


def stable_top_k_cost(
    *, scale_gap: float, sigma_test: float, delta_test: float, num_teachers: int, relation: NeighboringRelation
) -> Event:
    """Return the event of one query of StableTopK that is run for ``relation``."""
    window = relation.count_window
    return ComposedEvent(
        events=(
            BoundedRangeEvent(eta=2 * window / scale_gap, neighboring_relation=relation),
            StabilityTestEvent(
                sigma=sigma_test,
                delta_test=delta_test,
                shift=window,
                num_teachers=num_teachers,
                neighboring_relation=relation,
            ),
        )
    )


def gap_needed(
    *,
    scale_gap: float,
    sigma_test: float,
    delta_test: float,
    num_labels: int,
    relation: NeighboringRelation,
    answered: float = 0.5,
) -> float:
    """Return the gap in votes at which StableTopK answers with probability ``answered``, and answers right.

    The gap has to win against ``num_labels`` gaps of 0, with the odds of the exponential mechanism, and then to pass
    the test. Real votes leave other gaps above 0 only by as much as teachers disagree.
    """
    expect_open_unit(answered=answered, delta_test=delta_test)
    expect_positive(scale_gap=scale_gap, sigma_test=sigma_test)
    expect_count(1, num_labels=num_labels)
    shift = relation.count_window

    def passes(gap: float) -> bool:
        wins = 1 / (1 + num_labels * math.exp(-min(gap / scale_gap, 700.0)))
        return wins * float(ndtr((max(gap, shift) - shift) / sigma_test + ndtri(delta_test))) >= answered

    high = shift + scale_gap + sigma_test
    while not passes(high):
        high *= 2
    return smallest_where(passes, 0.0, high, tolerance=1e-9)


def calibrate_stable_top_k(
    *,
    target_epsilon: float,
    delta: float,
    num_queries: int,
    num_teachers: int,
    num_labels: int,
    relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD,
    delta_test: float | None = None,
    answered: float = 0.5,
) -> StableTopKNoise:
    """Return the noise of StableTopK that meets a target, split so that a query needs the narrowest gap.

    Args:
        target_epsilon: the largest epsilon of all queries together.
        delta: the delta at which it holds.
        num_queries: how many queries are asked; each is paid, answered or not.
        num_teachers: how many teachers vote.
        num_labels: how many labels they vote on.
        relation: the relation under which the target holds.
        delta_test: what each test adds to delta. None for half of ``delta`` over all queries.
        answered: the probability with which a query of the predicted gap is answered.

    Raises:
        ValueError: if the tests alone cost ``delta``.
    """
    expect_count(1, num_queries=num_queries, num_labels=num_labels)
    expect_count(2, num_teachers=num_teachers)
    expect_open_unit(delta=delta, answered=answered)
    each = delta / (2 * num_queries) if delta_test is None else delta_test
    expect_open_unit(delta_test=each)
    spent = -math.expm1(num_queries * math.log1p(-each))
    expect(
        spent < delta, f"delta_test < {delta / num_queries:.3g}, so that all tests stay below delta", delta_test=each
    )

    def event(sigma: float, log_ratio: float) -> Event:
        return stable_top_k_cost(
            scale_gap=sigma * math.exp(log_ratio),
            sigma_test=sigma,
            delta_test=each,
            num_teachers=num_teachers,
            relation=relation,
        )

    def noise(log_ratio: float, orders: FloatArray, tolerance: float) -> tuple[float, float]:
        sigma = calibrate_scale(
            lambda scale: event(scale, log_ratio),
            target_epsilon=target_epsilon,
            delta=delta,
            num_queries=num_queries,
            tolerance=tolerance,
            orders=orders,
        )
        return sigma, sigma * math.exp(log_ratio)

    def gap(sigma: float, scale: float) -> float:
        return gap_needed(
            scale_gap=scale,
            sigma_test=sigma,
            delta_test=each,
            num_labels=num_labels,
            relation=relation,
            answered=answered,
        )

    # the gap is flat around its minimum: a ratio of the two scales to a twentieth loses nothing that could be seen
    ratios = np.arange(-2.0, 2.01, 0.25)
    gaps = [gap(*noise(ratio, _COARSE, 1e-3)) for ratio in ratios.tolist()]
    centre = float(ratios[int(np.argmin(gaps))])
    finer = (centre + np.arange(-0.2, 0.21, 0.05)).tolist()
    best = finer[int(np.argmin([gap(*noise(ratio, _COARSE, 1e-3)) for ratio in finer]))]
    sigma, scale = noise(best, DEFAULT_ORDERS, 1e-6)
    return StableTopKNoise(
        scale_gap=scale,
        sigma_test=sigma,
        delta_test=each,
        epsilon=epsilon_of(event(sigma, best), count=num_queries, delta=delta),
        gap=gap(sigma, scale),
    )
