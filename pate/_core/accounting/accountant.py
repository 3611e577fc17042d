"""The total of events, stated as epsilon at a delta, and noise for a target.

It is the smallest figure that one of `TIGHTEST` proves. An `Accountant` is one way to prove it.
`RenyiAccountant` has the best order of the Renyi curve. `GaussianAccountant` has the Gaussian
mechanisms that dominate all events one by one (Dong, Roth & Su (2022), Corollary 3.3), and
`ManyBitsAccountant` those that dominate events as many bits (docs/appendix/costs.md, "Many bits").
`EqualRoundsAccountant` and `OrderedAccountant` have the bounds of `pate._core.accounting.adaptive`.
To add one, write a subclass, name it in `TIGHTEST`, and give `Guarantee` the figures of its proof,
which `statement.txt` sets in words.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate._core.accounting.adaptive import Profile, equal_rounds, is_known, ordered_profile
from pate._core.accounting.base import Event, leaves, total_cost
from pate._core.accounting.cost import (
    DEFAULT_ORDERS,
    WIDTHS,
    Cost,
    NeighboringRelation,
    convert,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    lost_delta,
    many_bits_mu_squared,
    remaining_delta,
)
from pate._core.accounting.events import BoundedRangeEvent, FailureEvent, PureDPEvent
from pate._core.validation import (
    FloatArray,
    IntArray,
    is_real,
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A proven (epsilon, delta), and the figures of its proof.

    Attributes:
        epsilon: the proven epsilon; infinite if there is none.
        delta: its delta.
        delta0: the part of ``delta`` that the failures take.
        order: the Renyi order of a proof by the curve; ``rdp`` is the value of the curve there.
        mu: the Gaussian mechanism of a proof by Gaussian differential privacy.
        width: the common width of the weights, if the proof by ``mu`` counts many bits.
        rounds: the number of rounds of a proof by the optimum of equal rounds.
        in_order: the number of steps of a proof by the optimum of releases in their order.
    """

    epsilon: float
    delta: float
    delta0: float
    order: float | None = None
    rdp: float | None = None
    mu: float | None = None
    width: float | None = None
    rounds: int | None = None
    in_order: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types: the figures of the proof, with None for an infinite epsilon."""
        figures = {name: value for name, value in asdict(self).items() if value is not None}
        return figures | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None}


class Composed(NamedTuple):
    """Events under one relation, composed in order.

    Attributes:
        events: events with their counts, above 0.
        cost: their sum on ``orders``.
        orders: Renyi orders, ``[K]``.
        in_order: whether the events were fixed beforehand and happen in this order.
    """

    events: Sequence[tuple[Event, int]]
    cost: Cost
    orders: FloatArray
    in_order: bool = False

    def leaves(self) -> Iterator[tuple[Event, int]]:
        """Yield the basic events as (event, count), in order."""
        for event, count in self.events:
            yield from leaves(event, count)

    def left(self, delta: float) -> float:
        """Return the part of ``delta`` that failures leave; 0 or less if there is none."""
        return remaining_delta(delta, self.cost.log_survival)

    def with_failures(self, delta: float) -> float:
        """Return the delta of everything, from the ``delta`` of all but the failures."""
        return self.cost.delta0 + math.exp(self.cost.log_survival) * delta

    def proven(self, epsilon: float, delta: float, **figures: Any) -> Guarantee:
        """Return the guarantee with the figures of its proof."""
        return Guarantee(epsilon=epsilon, delta=delta, delta0=self.cost.delta0, **figures)


class Accountant(ABC):
    """A way to prove an epsilon of composed events."""

    @abstractmethod
    def supports(self, event: Event) -> bool:
        """Return whether it knows a price of a basic event (`leaves`)."""

    def unsupported(self, events: Iterable[Event]) -> list[str]:
        """Return the names of the kinds of basic events without a price, in order."""
        kinds = dict.fromkeys(
            type(leaf).__name__
            for event in events
            for leaf, times in leaves(event)
            if times and not self.supports(leaf)
        )
        return list(kinds)

    @abstractmethod
    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        """Return the smallest epsilon at ``delta`` that it proves.

        None without a proof, or if another accountant has proved an epsilon ``below`` it.
        """

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        """Return the smallest delta at ``epsilon`` that it proves; 1 or more without a proof."""
        return 1.0


class RenyiAccountant(Accountant):
    """Converts the sum of curves at its best order (`conversion_overhead`)."""

    def supports(self, event: Event) -> bool:
        return bool(np.isfinite(event.cost().rdp).any())

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        cost, orders = composed.cost, composed.orders
        epsilons = convert(cost, orders, delta=delta)
        best = int(np.argmin(epsilons))
        epsilon = float(epsilons[best])
        if not epsilon < below:
            return None
        return composed.proven(epsilon, delta, order=float(orders[best]), rdp=float(cost.rdp[best]))

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        orders, cost = composed.orders, composed.cost
        far = orders - 1
        exponent = far * (cost.rdp - epsilon) + far * np.log1p(-1 / orders) - np.log(orders)
        # delta0 + (1 - delta0) delta, where either may be far smaller than the other
        log_delta = min(float(exponent.min()), 0.0)
        return min(1.0, cost.delta0 + math.exp(cost.log_survival + log_delta))


class GaussianAccountant(Accountant):
    """Sums the ``mu^2`` of Gaussian mechanisms that dominate the events one by one.

    Its trade-off is exact (Balle & Wang (2018), Theorem 8) if all events are Gaussian.
    """

    def supports(self, event: Event) -> bool:
        return event.cost().mu_squared < math.inf

    def _dominating(self, composed: Composed) -> tuple[float, float, dict[str, float]]:
        """Return ``mu^2``, infinite if none is known, the lost delta, and figures beside it."""
        return composed.cost.mu_squared, 0.0, {}

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        mu_squared, lost, figures = self._dominating(composed)
        left = composed.left(delta) - lost
        if mu_squared == math.inf or left <= 0:
            return None
        mu = math.sqrt(mu_squared)
        if below < math.inf and mu > 0 and gaussian_log_delta(below, mu) > math.log(left):
            return None
        return composed.proven(gaussian_epsilon(left, mu), delta, mu=mu, **figures)

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        mu_squared, lost, _ = self._dominating(composed)
        if mu_squared == math.inf:
            return 1.0
        return composed.with_failures(lost + gaussian_delta(epsilon, math.sqrt(mu_squared)))


class ManyBitsAccountant(GaussianAccountant):
    """Sums the weights of choices and tests among many, at their best common width."""

    def _dominating(self, composed: Composed) -> tuple[float, float, dict[str, float]]:
        cost = composed.cost
        if not cost.rounds:
            return math.inf, 0.0, {}
        totals = many_bits_mu_squared(cost.narrow_weights)
        best = int(np.argmin(totals))
        mu_squared = float(totals[best])
        return mu_squared, lost_delta(cost.rounds, mu_squared), {"width": float(WIDTHS[best])}


class _Optimum(Accountant):
    _figure: ClassVar[str]

    @abstractmethod
    def _profile(self, composed: Composed, below: float) -> tuple[int, Profile] | None:
        """Return the number of rounds or steps, and the bound on all adversaries, if any."""

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        left = composed.left(delta)
        if left <= 0 or (found := self._profile(composed, below)) is None:
            return None
        number, profile = found
        epsilon = profile.at(left)
        return (
            composed.proven(epsilon, delta, **{self._figure: number}) if epsilon < below else None
        )


class EqualRoundsAccountant(_Optimum):
    """Plays rounds that are all one choice, or all one pure release."""

    _figure = "rounds"

    def supports(self, event: Event) -> bool:
        return isinstance(event, BoundedRangeEvent | PureDPEvent | FailureEvent)

    def _profile(self, composed: Composed, below: float) -> tuple[int, Profile] | None:
        return equal_rounds(composed.events)

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        found = equal_rounds(composed.events)
        return 1.0 if found is None else composed.with_failures(found[1].delta_at(epsilon))


class OrderedAccountant(_Optimum):
    """Plays all releases in their order, where it is known and they are not all equal.

    Its grid reaches as far as an epsilon that another accountant has proved.
    """

    _figure = "in_order"

    def supports(self, event: Event) -> bool:
        return is_known(event)

    def _profile(self, composed: Composed, below: float) -> tuple[int, Profile] | None:
        if not composed.in_order or equal_rounds(composed.events) is not None:
            return None
        spread = math.sqrt(2 * float(composed.cost.rdp[0]) / float(composed.orders[0]))
        return ordered_profile(composed.events, epsilon=below, spread=spread)


TIGHTEST: tuple[Accountant, ...] = (
    RenyiAccountant(),
    GaussianAccountant(),
    ManyBitsAccountant(),
    EqualRoundsAccountant(),
    OrderedAccountant(),
)
"""The accountants of a total: each is told the smallest epsilon that those before it prove."""
_BY_ORDER = (RenyiAccountant(),)


class RDPAccountant:
    """Adds up costs of events under one neighboring relation and states them as (epsilon, delta).

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> votes = GaussianEvent(neighboring_relation=relation, noise_multiplier=20.0)
    >>> accountant = RDPAccountant(relation=relation).compose(votes, 100)
    >>> round(accountant.get_epsilon(delta=1e-6), 2)
    2.25

    Args:
        relation: the neighboring relation that every event must be stated under.
        orders: Renyi orders above 1, ascending, shape ``[K]``.
        in_order: whether the events are releases that were fixed beforehand and happen in the order
            in which they are composed (docs/appendix/costs.md, "The order of releases"). An epsilon
            then may use the order. A delta does not.
    """

    def __init__(
        self,
        *,
        relation: NeighboringRelation,
        orders: FloatArray = DEFAULT_ORDERS,
        in_order: bool = False,
    ) -> None:
        self.relation, self.in_order = NeighboringRelation(relation), in_order
        orders = np.asarray(orders, dtype=np.float64)
        require(
            orders.ndim == 1
            and orders.size > 0
            and (np.diff(orders) > 0).all()
            and 1 < orders[0] <= orders[-1] < np.inf,
            "ascending finite orders above 1",
            orders=orders,
        )
        self.orders = orders
        self._cost = Cost.nothing(orders)
        self._events: list[tuple[Event, int]] = []

    @property
    def events(self) -> tuple[tuple[Event, int], ...]:
        """The events composed so far, as (event, count) pairs in order."""
        return tuple(self._events)

    @property
    def delta0(self) -> float:
        """The part of delta that the events cost at any epsilon."""
        return self._cost.delta0

    @property
    def rdp(self) -> FloatArray:
        """The composed curve on `orders`, shape ``[K]``."""
        return self._cost.rdp.copy()

    @property
    def cost(self) -> Cost:
        """The sum on `orders`."""
        return self._cost._replace(rdp=self.rdp)

    def compose(self, event: Event | Sequence[Event], count: int | ArrayLike = 1) -> RDPAccountant:
        """Add events, each ``count`` (one for all, or one each) times; return the accountant.

        Raises ``TypeError`` or ``ValueError`` and changes nothing on an unknown event, a negative
        count, or an event stated under another relation.
        """
        if not isinstance(event, Event | Iterable):
            raise TypeError(f"Expected events, got {type(event).__name__}")
        members = (event,) if isinstance(event, Event) else tuple(event)
        times = _as_counts(count, len(members))
        strangers = {
            kind.__name__ for kind in set(map(type, members)) if not issubclass(kind, Event)
        }
        if strangers:
            raise TypeError(f"Expected events, got {', '.join(sorted(strangers))}")
        relations = (each.neighboring_relation for each in members)
        other = next((each.value for each in relations if each is not self.relation), None)
        require(other is None, f"an event under {self.relation.value}", neighboring_relation=other)
        added = total_cost(members, times, self.orders)
        self._cost = self._cost + added
        self._events += [(each, n) for each, n in zip(members, times.tolist(), strict=True) if n]
        return self

    def guarantee(self, *, delta: float, by: Sequence[Accountant] | None = None) -> Guarantee:
        """Return the smallest proven epsilon at ``delta``, with the figures of its proof.

        It is the smallest one that the accountants in ``by`` prove: by default of a Renyi order, a
        dominating Gaussian mechanism, and the optimum of equal rounds or, `in_order`, of all
        releases. For events fixed in advance it is valid.

        >>> relation = NeighboringRelation.REPLACE_RECORD
        >>> accountant = RDPAccountant(relation=relation)
        >>> votes = GaussianEvent(neighboring_relation=relation, noise_multiplier=20.0)
        >>> guarantee = accountant.compose(votes, 100).guarantee(delta=1e-6)
        >>> round(guarantee.epsilon, 2), guarantee.mu
        (2.25, 0.5)
        """
        require_in_open_unit_interval(delta=delta)
        composed = self._composed()
        if by is not None and not self._events:
            return composed.proven(0.0, delta)
        tightest = composed.proven(math.inf, delta)
        for accountant in TIGHTEST if by is None else by:
            tightest = (
                accountant.guarantee(composed, delta=delta, below=tightest.epsilon) or tightest
            )
        return tightest

    def get_epsilon(self, *, delta: float) -> float:
        """Return the smallest proven epsilon at ``delta``. Infinite if ``delta <= delta0``."""
        return self.guarantee(delta=delta, by=TIGHTEST).epsilon

    def get_delta(self, epsilon: float) -> float:
        """Return the smallest proven delta at ``epsilon``, at most 1.

        >>> relation = NeighboringRelation.REPLACE_RECORD
        >>> accountant = RDPAccountant(relation=relation)
        >>> votes = GaussianEvent(neighboring_relation=relation, noise_multiplier=20.0)
        >>> f"{accountant.compose(votes, 100).get_delta(epsilon=2.0):.1e}"
        '9.4e-06'
        """
        require(
            epsilon == math.inf or (is_real(epsilon) and epsilon >= 0),
            "epsilon >= 0",
            epsilon=epsilon,
        )
        if not self._events:
            return 0.0
        return min(1.0, *(each.get_delta(self._composed(), epsilon) for each in TIGHTEST))

    def _composed(self) -> Composed:
        return Composed(self._events, self._cost, self.orders, self.in_order)


def _as_counts(counts: int | ArrayLike, size: int) -> IntArray:
    values = np.asarray(counts)
    if values.ndim == 0:
        require_count(0, count=counts)  # type: ignore[arg-type]
        values = np.full(size, values)
    require(values.shape == (size,), f"counts of shape [{size}]", shape=values.shape)
    # beyond 2**53 a float does not hold every integer; floats are no counts
    require(
        values.size == 0
        or (values.dtype.kind in "iu" and bool(((values >= 0) & (values <= 2**53)).all())),
        "integer counts in 0..2**53",
        counts=values.tolist()[:5],
    )
    return values.astype(np.int64)


COARSE_ORDERS = DEFAULT_ORDERS[::6]
"""A subset of the orders: six times as fast, and errs on the private side."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The largest cost that a given number of queries may have together.

    Args:
        epsilon: the largest epsilon of all queries together.
        delta: its delta.
        num_queries: number of queries asked. Each is paid for, answered or not.
        neighboring_relation: the relation that it holds for.
        max_teachers_per_unit: the most teachers that a unit may reach.
        before: earlier releases for the same units, which the target covers too: of each, the
            events of a query and the number of queries.

    Raises:
        ValueError: unless ``epsilon > 0``, ``0 < delta < 1``, ``num_queries >= 1`` and
            ``max_teachers_per_unit >= 1``.
    """

    epsilon: float
    delta: float
    num_queries: int
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD
    max_teachers_per_unit: int = 1
    before: Sequence[tuple[Mapping[NeighboringRelation, Event], int]] = ()
    # the place of the best order on a grid, and the step of the search for it
    _best: dict[bytes, tuple[int, int]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        require_positive(target_epsilon=self.epsilon)
        require_in_open_unit_interval(delta=self.delta)
        require_count(
            1, num_queries=self.num_queries, max_teachers_per_unit=self.max_teachers_per_unit
        )
        object.__setattr__(
            self, "neighboring_relation", NeighboringRelation(self.neighboring_relation)
        )

    def epsilon_of(
        self, event: Event, *, orders: FloatArray = DEFAULT_ORDERS, in_order: bool = False
    ) -> float:
        """Return the epsilon of all queries of an ``event``, with the releases before.

        It may use the order of releases, as statements do (`RDPAccountant`), for more time.

        It is computed on five of the orders around the best one, which a search of noise asks for
        again: never less than by all of them, and the same as long as it falls and then rises with
        the order. Curves of stability tests are slow far above the best order.
        """
        last, grid = len(orders) - 1, orders.tobytes()
        far = max(1, last // 8)
        best, step = self._best.get(grid, (last // 2, far))
        while True:
            center, places = best, best + step * np.arange(-2, 3)
            places = places[(places >= 0) & (places <= last)]
            total = self._total(event, orders[places])
            order = total.guarantee(delta=self.delta, by=_BY_ORDER).order
            if order is None:  # none of the five has a figure
                return self._total(event, orders, in_order).get_epsilon(delta=self.delta)
            best = int(places[np.searchsorted(orders[places], order)])
            inside = best == center or places[0] < best < places[-1]
            if inside and step == 1:
                self._best[grid] = best, 1
                if in_order:  # whose grid follows from the first order too
                    total = self._total(event, orders[np.union1d(0, places)], in_order)
                return total.get_epsilon(delta=self.delta)
            step = max(1, step // 4) if inside else min(2 * step, far)

    def _total(self, event: Event, orders: FloatArray, in_order: bool = False) -> RDPAccountant:
        relation, reach = self.neighboring_relation, self.max_teachers_per_unit
        accountant = RDPAccountant(relation=relation, orders=orders, in_order=in_order)
        for events, count in self.before:
            accountant.compose(events[relation].for_group_size(reach), count)
        return accountant.compose(event.for_group_size(reach), self.num_queries)


def epsilon_of(
    event: Event,
    *,
    count: int,
    delta: float,
    orders: FloatArray = DEFAULT_ORDERS,
) -> float:
    """Return epsilon at ``delta`` of ``count`` repetitions of ``event``, under its own relation.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = GaussianEvent(neighboring_relation=relation, noise_multiplier=20.0)
    >>> round(epsilon_of(event, count=100, delta=1e-6), 2)
    2.25

    Returns:
        epsilon, infinite where failures cost the whole delta.

    Raises:
        ValueError: unless ``0 < delta < 1``.
    """
    return (
        RDPAccountant(relation=event.neighboring_relation, orders=orders)
        .compose(event, count)
        .get_epsilon(delta=delta)
    )


def calibrate_scale(
    event_of: Callable[[float], Event],
    target: Target,
    *,
    tolerance: float = 1e-6,
    orders: FloatArray = DEFAULT_ORDERS,
    in_order: bool = False,
) -> float:
    """Return the smallest scale of noise for all queries of a target to meet its epsilon.

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
        tolerance: the largest excess over the smallest scale, as a fraction. It is never smaller.
        orders: the grid of Renyi orders.
        in_order: whether the epsilon may use the order of releases.

    Returns:
        the scale, in the unit of the argument of ``event_of``.

    Raises:
        ValueError: if no scale meets the target, for example because the failures of tests cost
            its whole delta.
    """
    require_positive(tolerance=tolerance)
    unreached = f"a target that some noise reaches, with delta = {target.delta:g}"

    @cache  # ends of the bracket are asked for again
    def epsilon(log_scale: float) -> float:
        return target.epsilon_of(event_of(math.exp(log_scale)), orders=orders, in_order=in_order)

    def holds(log_scale: float) -> bool:
        return epsilon(log_scale) <= target.epsilon

    # epsilon falls about as fast as the scale grows: next to the target the bracket is narrow
    step = min(1.0, max(tolerance, 1.1 * abs(_log_ratio(epsilon(0.0), target.epsilon))))
    low = high = 0.0
    while not holds(high):
        low, high, step = high, high + step, 2 * step
        require(high < 200, unreached, target_epsilon=target.epsilon)
    while low == high or holds(low):
        high, low = low, low - step
        step *= 2
        require(low > -200, "a target that some noise exceeds", target_epsilon=target.epsilon)
    # epsilon is close to a power of the scale: secants in logarithms reach the target within a few
    # steps, each just beyond it as seen from the last one, so that both ends move
    tried = [(at, _log_ratio(epsilon(at), target.epsilon)) for at in (low, high)]
    for _ in range(60):
        if high - low <= tolerance:
            break
        (before, first), (last, ratio) = tried[-2:]
        middle = (low + high) / 2
        if math.isfinite(first - ratio) and first != ratio:
            root = last + ratio * (last - before) / (first - ratio)
            root += math.copysign(0.4 * tolerance, ratio)
            middle = root if low < root < high else middle
        log_ratio = _log_ratio(epsilon(middle), target.epsilon)
        tried.append((middle, log_ratio))
        low, high = (low, middle) if log_ratio <= 0 else (middle, high)
    return math.exp(high)


def _log_ratio(epsilon: float, target: float) -> float:
    return math.log(epsilon / target) if epsilon > 0 else -math.inf
