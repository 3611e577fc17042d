"""Calibration: the noise needed to meet a target epsilon, rounded to the private side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from pate._validation import (
    FloatArray,
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)
from pate.accounting._accountant import RDPAccountant
from pate.accounting._conversion import Conversion
from pate.accounting._cost import DEFAULT_ORDERS
from pate.accounting._events import Event
from pate.accounting._relation import NeighboringRelation

COARSE_ORDERS = DEFAULT_ORDERS[::6]
"""A subset of the orders: six times as fast, and errs on the private side."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The largest cost that a given number of queries may have together.

    Args:
        epsilon: the largest epsilon of all queries together.
        delta: the delta at which it holds.
        num_queries: number of queries asked; each is paid for, answered or not.
        neighboring_relation: the relation under which it holds.
        max_teachers_per_unit: the number of teachers that a unit may reach for which it holds.
        before: what was released for the same units before, as the events of a query and their
            number, which the target covers too; None for nothing.

    Raises:
        ValueError: unless ``epsilon > 0``, ``0 < delta < 1``, ``num_queries >= 1`` and
            ``max_teachers_per_unit >= 1``.
    """

    epsilon: float
    delta: float
    num_queries: int
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD
    max_teachers_per_unit: int = 1
    before: tuple[Mapping[NeighboringRelation, Event], int] | None = None

    def __post_init__(self) -> None:
        require_positive(target_epsilon=self.epsilon)
        require_in_open_unit_interval(delta=self.delta)
        require_count(
            1, num_queries=self.num_queries, max_teachers_per_unit=self.max_teachers_per_unit
        )
        object.__setattr__(
            self, "neighboring_relation", NeighboringRelation(self.neighboring_relation)
        )

    def epsilon_of(self, event: Event, *, orders: FloatArray = DEFAULT_ORDERS) -> float:
        """Return the epsilon of all queries of an ``event``, and of what was released before."""
        relation, reach = self.neighboring_relation, self.max_teachers_per_unit
        accountant = RDPAccountant(relation=relation, orders=orders)
        if self.before is not None:
            events, count = self.before
            accountant.compose(events[relation].for_group_size(reach), count)
        accountant.compose(event.for_group_size(reach), self.num_queries)
        return accountant.get_epsilon(delta=self.delta)


def epsilon_of(
    event: Event,
    *,
    count: int,
    delta: float,
    conversion: Conversion = "tightest",
    orders: FloatArray = DEFAULT_ORDERS,
) -> float:
    """Return epsilon at ``delta`` of ``count`` repetitions of ``event``, under its own relation.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = GaussianEvent(neighboring_relation=relation, noise_multiplier=20.0)
    >>> round(epsilon_of(event, count=100, delta=1e-6), 2)
    2.25
    """
    accountant = RDPAccountant(relation=event.neighboring_relation, orders=orders)
    return accountant.compose(event, count).get_epsilon(delta=delta, conversion=conversion)


def calibrate_scale(
    event_of: Callable[[float], Event],
    target: Target,
    *,
    tolerance: float = 1e-6,
    orders: FloatArray = DEFAULT_ORDERS,
) -> float:
    """Return the smallest scale of the noise at which all queries of a target meet its epsilon.

    >>> def noise(sigma: float) -> Event:
    ...     return GaussianEvent(
    ...         neighboring_relation=NeighboringRelation.REPLACE_RECORD, noise_multiplier=sigma
    ...     )
    >>> round(calibrate_scale(noise, Target(epsilon=2.0, delta=1e-6, num_queries=100)), 2)
    22.3

    Args:
        event_of: returns the event of one query, under the target's relation, for a scale of its
            noise; more noise must not cost more.
        target: the largest cost of all queries together.
        tolerance: the fraction by which the scale may exceed the smallest one. It is never smaller.
        orders: Renyi orders on which epsilon is computed.

    Raises:
        ValueError: if no scale meets the target, for example because the failures of tests cost
            its whole delta.
    """
    require_positive(tolerance=tolerance)
    unreached = f"a target that some noise reaches, with delta = {target.delta:g}"

    @cache  # ends of the bracket are asked for again
    def epsilon(log_scale: float) -> float:
        return target.epsilon_of(event_of(math.exp(log_scale)), orders=orders)

    def holds(log_scale: float) -> bool:
        return epsilon(log_scale) <= target.epsilon

    low, high, step = 0.0, 0.0, 1.0
    while not holds(high):
        low, high, step = high, high + step, 2 * step
        require(high < 200, unreached, target_epsilon=target.epsilon)
    while low == high or holds(low):
        high, low = low, low - step
        step *= 2
        require(low > -200, "a target that some noise exceeds", target_epsilon=target.epsilon)
    # epsilon is close to a power of the scale: secants in logarithms reach the target within a few
    # steps
    above, below = (
        math.log(epsilon(low) / target.epsilon),
        _log_ratio(epsilon(high), target.epsilon),
    )
    for _ in range(60):
        if high - low <= tolerance:
            break
        share = above / (above - below) if math.isfinite(above) and math.isfinite(below) else 0.5
        middle = low + (high - low) * min(max(share, 0.02), 0.98)
        # half a tolerance further makes sure that both ends move
        middle = min(middle + tolerance / 2, high - tolerance / 4)
        log_ratio = _log_ratio(epsilon(middle), target.epsilon)
        if log_ratio <= 0:
            high, below, above = middle, log_ratio, above / 2
        else:
            low, above, below = middle, log_ratio, below / 2
    return math.exp(high)


def _log_ratio(epsilon: float, target: float) -> float:
    return math.log(epsilon / target) if epsilon > 0 else -math.inf
