"""The accountant, which states a sum of costs as epsilon at a delta, and noise for a target.

It takes the smallest figure that the sum proves. Where all rounds are equal, this may be the
adaptive optimum, which stands at the end.

**The adaptive optimum** is a certified bound on the best adversary against rounds of two-outcome
releases. In each round, after seeing all earlier releases, an adversary picks a pair of laws ``(P,
Q)`` from the family that a mechanism allows. Let ``V_n(gamma)`` be the largest ``P(S) - gamma
Q(S)`` over n rounds. Splitting S by the outcome of the first round,

    V_0(gamma) = max(0, 1 - gamma),    V_n(gamma) = sup over (P, Q) of  sum_o P(o) V_(n-1)(gamma
    Q(o) / P(o)),

so n rounds are (epsilon, V_n(e^epsilon))-DP and no less. Three facts turn this into a finite
computation from above:

1. ``V_n`` is a supremum of lines of slope -1 to 0: convex, not increasing, 1 at most. A chord
   between two nodes, or the value at a smaller gamma, bounds it from above.
2. The value of Bernoulli laws, ``F(q, p) = p V(gamma q / p) + (1 - p) V(gamma (1 - q) / (1 - p))``,
   is a sum of perspectives of a convex function: jointly convex, and smallest, ``V(gamma)``, where
   p = q. So the corners of any polygon around a concave arc bound a family with all points
   ``(q, p)``, p >= q, below the arc. Here the sides of the polygon are tangents, and its excess
   falls with the square of their spacing.
3. Where p < q, exchanging the two outcomes gives ``(1 - q, 1 - p)``, the reflection of ``(p, q)``.
   The arcs here are their own reflections, so the corners of the lower half, played in both
   directions, suffice.

V may be replaced by anything larger wherever it is used, so each rounding error is covered by a
factor above 1. The adversary's choices for a round are made before the round is drawn; the number
and the kinds of rounds are fixed beforehand. Statements use this bound for rounds that are all
equal, which have no order; budgets never do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import attrgetter
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from pate._validation import (
    FloatArray,
    IntArray,
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)
from pate.accounting._base import Event, leaves, total_cost
from pate.accounting._cost import (
    DEFAULT_ORDERS,
    Conversion,
    Cost,
    Guarantee,
    NeighboringRelation,
    convert,
    gaussian_delta,
    gaussian_epsilon,
    gaussians,
    remaining_delta,
    tightest_guarantee,
)
from pate.accounting._curves import Pairs, bounded_range_pairs
from pate.accounting._events import BoundedRangeEvent, FailureEvent, GaussianEvent, PureDPEvent


class RDPAccountant:
    """Adds up costs of events under one neighboring relation and states them as (epsilon, delta).

    Conversions:

    - ``"tightest"``: the best proof known, as in `guarantee`.
    - ``"optimal"``: the Renyi curve only, by Canonne, Kamath & Steinke (2020), Proposition 12.
    - ``"classic"``: the Renyi curve only, by Mironov (2017), Proposition 3, to reproduce published
      figures.
    - ``"exact"``: the trade-off of composed Gaussian mechanisms (Balle & Wang (2018)), for Gaussian
      events only.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> votes = GaussianEvent(neighboring_relation=relation, noise_multiplier=20.0)
    >>> accountant = RDPAccountant(relation=relation).compose(votes, 100)
    >>> round(accountant.get_epsilon(delta=1e-6), 2)
    2.25

    Args:
        relation: the neighboring relation that every event must be stated under.
        orders: Renyi orders above 1, ascending, shape ``[K]``.
    """

    def __init__(
        self, *, relation: NeighboringRelation, orders: FloatArray = DEFAULT_ORDERS
    ) -> None:
        self.relation = NeighboringRelation(relation)
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
        self._batches: list[tuple[tuple[Event, ...], IntArray]] = []

    @property
    def events(self) -> tuple[tuple[Event, int], ...]:
        """The events composed so far, as (event, count) pairs in order."""
        return tuple(self._parts())

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
        relations = list(map(attrgetter("neighboring_relation"), members))
        if relations.count(self.relation) != len(members):
            other = next(relation for relation in relations if relation is not self.relation)
            require(
                False, f"an event under {self.relation.value}", neighboring_relation=other.value
            )
        added = total_cost(members, times, self.orders)
        if times.any():
            self._cost = self._cost + added
            self._batches.append((members, times))
        return self

    def guarantee(self, *, delta: float) -> Guarantee:
        """Return the smallest proven epsilon at ``delta``, with the figures of its proof.

        The proof is the best of a Renyi order, a dominating Gaussian mechanism, and the optimum of
        equal rounds.

        >>> relation = NeighboringRelation.REPLACE_RECORD
        >>> accountant = RDPAccountant(relation=relation)
        >>> votes = GaussianEvent(neighboring_relation=relation, noise_multiplier=20.0)
        >>> guarantee = accountant.compose(votes, 100).guarantee(delta=1e-6)
        >>> round(guarantee.epsilon, 2), guarantee.mu
        (2.25, 0.5)
        """
        tightest = tightest_guarantee(self._cost, self.orders, delta=delta)
        left, equal = remaining_delta(delta, self._cost.log_survival), equal_rounds(self._parts())
        if equal is None or left <= 0 or (epsilon := equal[1].at(left)) >= tightest.epsilon:
            return tightest
        return Guarantee(epsilon=epsilon, delta=delta, delta0=self.delta0, rounds=equal[0])

    def get_epsilon(self, *, delta: float, conversion: Conversion = "tightest") -> float:
        """Return the smallest epsilon at ``delta`` that the conversion proves of the sum.

        Infinite if ``delta <= delta0``.
        """
        if conversion == "tightest":
            return self.guarantee(delta=delta).epsilon
        if conversion == "exact":
            return gaussian_epsilon(delta, self._mu())
        return self.get_epsilon_and_order(delta=delta, conversion=conversion)[0]

    def get_epsilon_and_order(
        self, *, delta: float, conversion: Literal["optimal", "classic"] = "optimal"
    ) -> tuple[float, float]:
        """Return the smallest epsilon that the Renyi curve proves, and its order."""
        require_in_open_unit_interval(delta=delta)
        _require_renyi(conversion)
        if not self._batches:
            return 0.0, float(self.orders[-1])
        epsilons = convert(self._cost, self.orders, delta=delta, conversion=conversion)
        best = int(np.argmin(epsilons))
        return float(epsilons[best]), float(
            self.orders[best] if np.isfinite(epsilons[best]) else self.orders[-1]
        )

    def get_delta(self, epsilon: float, *, conversion: Conversion = "tightest") -> float:
        """Return the smallest delta at ``epsilon``, at most 1, that the conversion proves.

        >>> relation = NeighboringRelation.REPLACE_RECORD
        >>> accountant = RDPAccountant(relation=relation)
        >>> votes = GaussianEvent(neighboring_relation=relation, noise_multiplier=20.0)
        >>> f"{accountant.compose(votes, 100).get_delta(epsilon=2.0):.1e}"
        '9.4e-06'
        """
        require(not math.isnan(epsilon) and epsilon >= 0, "epsilon >= 0", epsilon=epsilon)
        if conversion == "exact":
            return gaussian_delta(epsilon, self._mu())
        if conversion == "tightest":
            cost = self._cost
            deltas = [
                lost + gaussian_delta(epsilon, math.sqrt(mu_squared))
                for mu_squared, lost, _ in gaussians(cost)
            ]
            equal = equal_rounds(self._parts())
            if equal is not None:
                deltas.append(equal[1].delta_at(epsilon))
            both = (self.delta0 + math.exp(cost.log_survival) * delta for delta in deltas)
            return min(1.0, *both, self.get_delta(epsilon, conversion="optimal"))
        _require_renyi(conversion)
        if not self._batches:
            return 0.0
        far = self.orders - 1
        exponent = far * (self._cost.rdp - epsilon)
        if conversion == "optimal":
            exponent = exponent + far * np.log1p(-1 / self.orders) - np.log(self.orders)
        # delta0 + (1 - delta0) delta, where either may be far smaller than the other
        log_delta = min(float(exponent.min()), 0.0)
        return min(1.0, self.delta0 + math.exp(self._cost.log_survival + log_delta))

    def _parts(self) -> Iterator[tuple[Event, int]]:
        for events, counts in self._batches:
            yield from zip(events, map(int, counts), strict=True)

    def _mu(self) -> float:
        parts = [leaf for event, count in self.events for leaf in leaves(event, count)]
        kinds = {type(event).__name__ for event, n in parts if n}
        require(
            kinds <= {GaussianEvent.__name__},
            "only Gaussian events, for their exact epsilon",
            events=sorted(kinds),
        )
        # the curve is alpha mu^2 / 2
        return math.sqrt(2 * float(self._cost.rdp[0]) / float(self.orders[0])) if parts else 0.0


def _require_renyi(conversion: str) -> None:
    require(
        conversion in ("optimal", "classic"),
        f"conversion among {', '.join(get_args(Conversion))}",
        conversion=conversion,
    )


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
        delta: the delta at which it holds.
        num_queries: number of queries asked; each is paid for, answered or not.
        neighboring_relation: the relation under which it holds.
        max_teachers_per_unit: the number of teachers that a unit may reach for which it holds.
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
        """Return the epsilon of all queries of an ``event``, with the releases before."""
        relation, reach = self.neighboring_relation, self.max_teachers_per_unit
        accountant = RDPAccountant(relation=relation, orders=orders)
        for events, count in self.before:
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
    return (
        RDPAccountant(relation=event.neighboring_relation, orders=orders)
        .compose(event, count)
        .get_epsilon(delta=delta, conversion=conversion)
    )


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


_ROUND_SLACK = 1e-13  # above the relative error of one round: a dozen roundings
_INTERPOLATION_SLACK = 1e-12  # above the relative error of a value on a chord
_POSITION_SLACK = 1e-9  # above the error of the position of a loss, in cells of the grid
_UNDERFLOW_SLACK = 1e-100  # above the loss by underflow and by outcomes rarer than Phi(-25)
_BINOMIAL_SLACK = 1e-9  # above the relative error of a sum of binomial probabilities
# The bound on so many equal rounds takes half a second; for more of them it gains little.
_MOST_EQUAL: Mapping[type[Event], int] = {BoundedRangeEvent: 128, PureDPEvent: 10_000}


class Profile(NamedTuple):
    """Bounds ``delta[j]`` on ``V_n`` at ``gamma = exp(epsilon[j])``; both ``[J]``, ascending."""

    epsilon: FloatArray
    delta: FloatArray

    def at(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 proven at ``delta``; infinite beyond the grid."""
        require_in_open_unit_interval(delta=delta)
        proven = np.flatnonzero((self.delta <= delta) & (self.epsilon >= 0))
        if not proven.size:
            return float("inf")
        j = int(proven[0])
        if j == 0 or self.epsilon[j - 1] < 0:
            return float(self.epsilon[j])
        # on the chord to the node before
        share = (delta - self.delta[j]) / (self.delta[j - 1] - self.delta[j])
        inside = self.epsilon[j] + np.log1p(share * np.expm1(self.epsilon[j - 1] - self.epsilon[j]))
        return float(inside * (1 + _INTERPOLATION_SLACK))

    def delta_at(self, epsilon: float) -> float:
        """Return the delta proven at ``epsilon >= 0``."""
        j = int(np.searchsorted(self.epsilon, epsilon))
        if j == 0 or j == self.epsilon.size:
            return float(self.delta[min(j, self.epsilon.size - 1)])
        share = np.expm1(epsilon - self.epsilon[j]) / np.expm1(
            self.epsilon[j - 1] - self.epsilon[j]
        )
        return float(
            (self.delta[j] + share * (self.delta[j - 1] - self.delta[j]))
            * (1 + _INTERPOLATION_SLACK)
        )


def adaptive_epsilon(event: Event, count: int, *, delta: float) -> float:
    """Return epsilon at ``delta`` of ``count`` rounds of ``event`` against any adaptive adversary.

    ``event`` consists of bounded-range choices, pure releases, stability tests and failures, in the
    order in which they happen (`Event.pairs`). Failures have a probability ``delta0`` that is fixed
    beforehand. Both laws are then mixtures of a failure and of the game above, so that
    ``P(S) - gamma Q(S) <= delta0 + (1 - delta0) V(gamma)``. The result is at most the epsilon of
    the Renyi curves, and infinite if ``delta <= delta0``. Hundreds of rounds take seconds.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> event = PureDPEvent(neighboring_relation=relation, epsilon=0.1)
    >>> round(adaptive_epsilon(event, 50, delta=1e-6), 2)
    3.17

    Raises:
        ValueError: if ``event`` has no known pairs of laws.
    """
    require_count(1, count=count)
    rounds = event.pairs()
    cost = total_cost([event], count)
    # a valid bound as well, and hence the range that the grid has to cover
    renyi = float(convert(cost, DEFAULT_ORDERS, delta=delta).min())
    if not rounds or not np.isfinite(renyi):
        return renyi
    margin = 1 + renyi / 2
    # near order 1 the curve is half of the variance of the loss
    spread = np.sqrt(2 * cost.rdp[0] / count)
    profile = adaptive_profile(
        rounds, count, low=-margin, high=renyi + margin, step=float(np.clip(spread / 32, 1e-5, 0.1))
    )
    return min(renyi, profile.at(remaining_delta(delta, cost.log_survival)))


def adaptive_profile(
    rounds: Sequence[Pairs], count: int, *, low: float, high: float, step: float
) -> Profile:
    """Bound ``V`` of ``count`` rounds, each with one pair from every entry of ``rounds`` in order.

    The grid runs over epsilon from ``low`` to ``high`` by ``step``. Below the grid V is bounded by
    1, above it by the last value.
    """
    require_count(0, count=count)
    require(1e-5 <= step <= 0.1, "step in [1e-5, 0.1]", step=step)
    require(-100 <= low <= -step, "low in [-100, -step]", low=low)
    require(step <= high <= 100, "high in [step, 100]", high=high)
    nodes = np.arange(np.floor(low / step), np.ceil(high / step) + 1)
    value = _decreasing(np.maximum(0.0, -np.expm1(nodes * step)) * (1 + _ROUND_SLACK))
    # the recursion runs backwards in time
    moves = [_moves(pairs, step) for pairs in reversed(rounds)]
    for _ in range(count):
        for pairs in moves:
            value = _before(value, pairs)
    return Profile(nodes * step, value)


def equal_rounds(events: Iterable[tuple[Event, int]]) -> tuple[int, Profile] | None:
    """Return the number of equal rounds in ``events`` (event, count), and a bound on their ``V``.

    Failures are not counted. None unless all rounds are one choice, or all one pure release, and
    few and narrow enough.
    """
    kind: Event | None = None
    total = 0
    for event, times in events:
        for leaf, count in leaves(event, times):
            if isinstance(leaf, FailureEvent) or count == 0:
                continue
            kind, total = kind or leaf, total + count
            if leaf != kind or total > _MOST_EQUAL.get(type(leaf), 0):
                return None
    profile = None if kind is None else _equal_profile(kind, total)
    return None if profile is None else (total, profile)


@lru_cache(maxsize=64)
def _equal_profile(event: Event, count: int) -> Profile | None:
    if isinstance(event, PureDPEvent):
        return pure_profile(event.epsilon, count) if event.epsilon <= 10 else None
    assert isinstance(event, BoundedRangeEvent)
    eta = max(event.eta, 1e-3)  # a release of a smaller range has this one too
    # eight standard deviations of the sum of losses, or its largest value
    high = min(count * eta, 4 * eta * np.sqrt(count) + count * eta**2 / 8) + eta
    if eta > 4.8 or high > 100:  # for nodes 0.1 apart at most
        return None
    # with twice as many sides and nodes epsilon is 0.03% smaller
    return adaptive_profile(
        [bounded_range_pairs(eta, sides=48)], count, low=-high, high=high, step=eta / 48
    )


def pure_profile(epsilon: float, count: int) -> Profile:
    """Return ``V`` of ``count`` pure releases at ``gamma >= 1``, exactly but for roundings.

    Each release is, given the past, a post-processing of randomized response. The n-fold
    composition of the latter is a pair of binomial laws (Kairouz, Oh & Viswanath (2017), Theorem
    3.3). With k answers against it the loss is ``(n - 2 k) epsilon``. Between two losses ``V`` is a
    line in gamma; its slope is minus the probability under Q of fewer such answers.
    """
    against = np.arange((count + 1) // 2)
    losses = (count - 2 * against) * epsilon
    log_law = gammaln(count + 1) - gammaln(against + 1) - gammaln(count - against + 1)
    log_law += against * epsilon - count * np.logaddexp(0, epsilon)
    ends = np.append(losses[1:], 0.0)
    rises = np.logaddexp.accumulate(log_law) + losses + np.log(-np.expm1(ends - losses))
    delta = np.exp(np.logaddexp.accumulate(rises)) * (1 + _BINOMIAL_SLACK) + _UNDERFLOW_SLACK
    return Profile(np.append(losses, 0.0)[::-1], np.minimum(1.0, np.append(0.0, delta))[::-1])


_Node = tuple[int, float]
"""A node that a pair of laws leads to: its place from one's own node on, and its weight."""


def _moves(pairs: Pairs, step: float) -> list[list[_Node]]:
    """Return the four nodes that each pair, played in either direction, leads to, ``2 M`` lists.

    An outcome of loss l leads from gamma to ``gamma exp(-l)``, between two nodes whose chord bounds
    ``V`` there.
    """
    p, q = pairs
    yes, no = np.log(p / q), np.log1p((q - p) / (1 - q))
    mass = np.concatenate([np.stack([p, 1 - p], 1), np.stack([q, 1 - q], 1)])
    loss = np.concatenate([np.stack([yes, no], 1), np.stack([-yes, -no], 1)])
    # a little too far down, where V is larger
    place = -loss / step - _POSITION_SLACK
    cell = np.floor(place)
    lower = _chord(place - cell, step)
    places = np.stack([cell, cell + 1], 2).reshape(-1, 4).astype(np.int64)
    weights = (mass[:, :, None] * np.stack([lower, 1 - lower], 2)).reshape(-1, 4)
    return [
        list(zip(*lists, strict=True))
        for lists in zip(places.tolist(), weights.tolist(), strict=True)
    ]


def _chord(place: FloatArray, step: float) -> FloatArray:
    """Return the weight of the lower node on a chord in gamma, at ``place`` in [0, 1] of a cell."""
    return np.asarray(
        np.exp(place * step) * np.expm1((1 - place) * step) / np.expm1(step), dtype=np.float64
    )


def _before(value: FloatArray, moves: Sequence[Sequence[_Node]]) -> FloatArray:
    """Return ``V`` ``[J]`` before a release from ``value`` after it: the best of all moves."""
    places = [place for nodes in moves for place, _ in nodes]
    below, above = max(0, -min(places)), max(0, max(places))
    padded = np.concatenate([np.ones(below), value, np.full(above, value[-1])])
    best = np.zeros_like(value)
    for (place, weight), *others in moves:
        total = weight * padded[below + place :][: value.size]
        for place, weight in others:
            total += weight * padded[below + place :][: value.size]
        np.maximum(best, total, out=best)
    return _decreasing(np.minimum(1.0, best * (1 + _ROUND_SLACK) + _UNDERFLOW_SLACK))


def _decreasing(value: FloatArray) -> FloatArray:
    # V does not increase, but roundings may: raise each value to the largest one at a later node
    return np.asarray(np.maximum.accumulate(value[::-1])[::-1], dtype=np.float64)
