"""Charges, their sums and their budgets: a charge is the events of a query, and a count of these.

Each query has an event under either relation. A `Budget` limits the sum. Its **filter** admits
releases as long as their total stays within bounds fixed before the first one. `Totals` keeps the
counts of charges, which are integers, and sums them up when it is asked. So a settlement that
takes a reservation back leaves no trace of its digits.
"""

from __future__ import annotations

import json
import marshal
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NoReturn, Self, get_args

import numpy as np

from pate._core.accounting.accountant import RDPAccountant
from pate._core.accounting.adaptive import MOST_IN_ORDER
from pate._core.accounting.base import Event, event_from_dict
from pate._core.accounting.cost import (
    DEFAULT_ORDERS,
    Cost,
    NeighboringRelation,
    conversion_overhead,
    format_epsilon,
    format_exact,
    gaussian_epsilon,
    largest_count_where,
    largest_mu,
)
from pate._core.validation import (
    FloatArray,
    require,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)

FilterName = Literal["renyi", "gaussian"]
"""The kinds of filter: `RenyiFilter` and `GaussianFilter`."""


class BudgetExceededError(ValueError):
    """A release would take the total cost beyond a budget, or beyond a delta that can be stated."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limit on the total cost of all releases from one private data set.

    >>> relation = NeighboringRelation.REPLACE_RECORD
    >>> budget = Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=relation)
    >>> budget.to_dict()["max_epsilon"]
    2.0

    Args:
        max_epsilon: the largest total epsilon.
        delta: the delta of ``max_epsilon``.
        neighboring_relation: the relation that it holds for.
        max_delta0: the part of ``delta`` set aside for failures, such as a stability test that
            passes wrongly. None for a tenth of it, or, if that is more, for the failures of the
            first release repeated until the budget is spent.
        filter: the filter that keeps all releases within the budget. None for the one that admits
            the first release most often.
        max_teachers_per_unit: the number of teachers that a unit may reach in each release for
            which it holds.

    Raises:
        ValueError: unless ``max_epsilon > 0`` and ``0 < delta < 1``.
    """

    max_epsilon: float
    delta: float
    neighboring_relation: NeighboringRelation
    max_delta0: float | None = None
    filter: FilterName | None = None
    max_teachers_per_unit: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "neighboring_relation", NeighboringRelation(self.neighboring_relation)
        )
        require_positive(max_epsilon=self.max_epsilon)
        require_in_open_unit_interval(delta=self.delta)
        require_count(1, max_teachers_per_unit=self.max_teachers_per_unit)
        require(
            self.filter in (None, *get_args(FilterName)),
            f"a filter among {', '.join(get_args(FilterName))}",
            filter=self.filter,
        )
        if self.max_delta0 is not None:
            require(
                0 <= self.max_delta0 < self.delta,
                f"0 <= max_delta0 < {self.delta}",
                max_delta0=self.max_delta0,
            )
        for name in ("max_epsilon", "delta", "max_delta0"):
            value = getattr(self, name)
            # JSON has no numpy scalars
            object.__setattr__(self, name, None if value is None else float(value))
        object.__setattr__(self, "max_teachers_per_unit", int(self.max_teachers_per_unit))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self) | {"neighboring_relation": self.neighboring_relation.value}


Events = Mapping[NeighboringRelation, Event]
"""The event of one query under each relation."""
Charge = tuple[Events, int]
"""The events of one query, and the number of such queries that are paid for."""

MAX_COUNT = 2**53  # beyond it a float does not hold every integer


def account(
    charges: Sequence[Charge], relation: NeighboringRelation, *, in_order: bool = True
) -> RDPAccountant:
    """Return the accountant of all ``charges``, oldest first, under ``relation``."""
    if len(charges) > MOST_IN_ORDER:
        charges, in_order = merged(charges), False
    return RDPAccountant(relation=relation, in_order=in_order).compose(
        [events[relation] for events, _ in charges], [count for _, count in charges]
    )


def merged(charges: Iterable[Charge]) -> list[Charge]:
    """Return the charges with equal events as one, in the order of the first ones."""
    events_of: dict[int, Events] = {}
    counts, sums = Counter[int](), Counter[_Pair]()
    for events, count in charges:
        events_of[id(events)] = events  # mostly one object for equal ones
        counts[id(events)] += count
    for key, events in events_of.items():
        sums[_pair(events)] += counts[key]
    return [(dict(pair), count) for pair, count in sums.items()]


def on_orders(orders: FloatArray, cost: Callable[[FloatArray], Cost]) -> Cost:
    """Return a cost on ``orders`` ``[K]``: a part of that on the default ones if they hold these.

    An event of another package may state its cost only on those.
    """
    if not np.isin(orders, DEFAULT_ORDERS).all():
        return cost(orders)
    wide = cost(DEFAULT_ORDERS)
    fits = wide.rdp.shape == DEFAULT_ORDERS.shape
    return wide._replace(rdp=wide.rdp[np.searchsorted(DEFAULT_ORDERS, orders)]) if fits else wide


def for_group_size(charges: Sequence[Charge], teachers: int) -> list[Charge]:
    """Return ``charges`` as they are for a unit that reaches ``teachers`` teachers."""
    if teachers == 1:
        return list(charges)
    return _with_each_event(charges, lambda event: event.for_group_size(teachers))


def to_world(charges: Sequence[Charge]) -> list[Charge]:
    """Return ``charges`` as they are to those who know nothing of the noise (`Event.to_world`)."""
    return _with_each_event(charges, lambda event: event.to_world())


def _with_each_event(charges: Sequence[Charge], change: Callable[[Event], Event]) -> list[Charge]:
    # few events are distinct in a ledger
    changed: dict[int, Events] = {}
    for events, _ in charges:
        if id(events) not in changed:
            changed[id(events)] = {name: change(event) for name, event in events.items()}
    return [(changed[id(events)], count) for events, count in charges]


def require_delta_beyond_tests(
    charges: Sequence[Charge], relation: NeighboringRelation, delta: float
) -> None:
    """Raise ``ValueError`` unless the stability tests in ``charges`` cost less than ``delta``."""
    require_in_open_unit_interval(delta=delta)
    tests = account(charges, relation).delta0
    if delta <= tests:
        raise BudgetExceededError(
            f"Expected delta > {tests:.3g}, the cost of the stability tests of all queries, got"
            f" delta={delta!r}"
        )


def require_events(events: Events) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless ``events`` has known costs by relation."""
    require(isinstance(events, Mapping), "events by relation", events=events)
    require(
        set(events) == set(NeighboringRelation),
        "an event under either relation",
        events=sorted(map(str, events)),
    )
    for name, event in events.items():
        require(
            isinstance(event, Event) and event.neighboring_relation == name,
            f"an event under {NeighboringRelation(name)}",
            event=event,
        )
        _require_known_cost(event)


@lru_cache(maxsize=4096)
def _require_known_cost(event: Event) -> None:
    try:
        once = event.cost()
    except OverflowError:
        raise ValueError(
            f"Expected an event whose cost is a float, got {str(event)[:80]}"
        ) from None
    require(
        np.shape(once.rdp) == DEFAULT_ORDERS.shape
        and (once.rdp >= 0).all()
        and once.log_survival <= 0
        and once.mu_squared >= 0,
        "an event of known cost",
        event=event,
    )


def require_charged_count(minimum: int, count: int) -> None:
    """Raise ``ValueError`` unless ``count`` is an integer in ``minimum..2**53``."""
    if type(count) is int and minimum <= count <= MAX_COUNT:
        return
    require_count(minimum, count=count)
    require(
        count <= MAX_COUNT,
        "count <= 2**53",
        count=count if count < 1 << 99 else f"{int(count).bit_length()} bits",
    )


def plain_events(events: Events) -> dict[str, Any]:
    """Return plain JSON types; `parse_events` reads their text."""
    return {
        NeighboringRelation(relation).value: event.to_dict() for relation, event in events.items()
    }


def plain_charges(charges: Sequence[Charge]) -> list[dict[str, Any]]:
    """Return plain JSON types."""
    return [{"events": plain_events(events), "count": count} for events, count in charges]


def name_of(described: dict[str, Any]) -> str:
    """Return the JSON text of plain events; equal events in the same order give equal texts."""
    # a tenth of the time, and this version knows no references
    return _name(marshal.dumps(described, 2))


@lru_cache(maxsize=4096)
def _name(described: bytes) -> str:
    return json.dumps(marshal.loads(described))


@lru_cache(maxsize=4096)  # few events are distinct in a ledger
def parse_events(text: str) -> Events:
    """Return the events described by the JSON ``text`` as a read-only mapping.

    Raises like `require_events`.
    """
    events = {
        NeighboringRelation(name): event_from_dict(event)
        for name, event in json.loads(text).items()
    }
    require_events(events)
    return MappingProxyType(events)


class Totals:
    """The sum of charges on ``orders`` ``[K]``, for units of ``teachers`` teachers."""

    def __init__(self, orders: FloatArray, teachers: int = 1) -> None:
        self.orders, self.teachers = orders, teachers
        self._counts = Counter[_Pair]()

    def add(self, *charges: Charge) -> None:
        """Add charges. One of a negative count takes back an earlier one."""
        for events, count in charges:
            pair = _pair(events)
            self._counts[pair] = total = self._counts[pair] + count
            assert total >= 0
            if total == 0:
                del self._counts[pair]

    def copied(self) -> Totals:
        """Return a sum of its own."""
        other = Totals(self.orders, self.teachers)
        other._counts.update(self._counts)
        return other

    def cost(self, relation: NeighboringRelation, more: Sequence[Charge] = ()) -> Cost:
        """Return the sum under ``relation``, with ``more`` charges, rounded upwards."""
        kept = [(dict(pair), count) for pair, count in self._counts.items()]
        return summed([*kept, *more], relation, self.orders, self.teachers)


_Pair = tuple[tuple[NeighboringRelation, Event], ...]


def _pair(events: Events) -> _Pair:
    return tuple((relation, events[relation]) for relation in NeighboringRelation)


@np.errstate(over="ignore")
def summed(
    charges: Sequence[Charge], relation: NeighboringRelation, orders: FloatArray, teachers: int
) -> Cost:
    """Return the sum of charges for units of so many teachers, rounded upwards."""
    total = Cost.nothing(orders)
    for events, count in charges:
        total += _cost(events[relation], orders.tobytes(), teachers) * count
    return total * (1 + 2.0**-52 * len(charges))


@lru_cache(maxsize=1 << 16)
def _cost(event: Event, orders: bytes, teachers: int) -> Cost:
    grid = np.frombuffer(orders)
    cost = on_orders(grid, event.for_group_size(teachers).cost)
    require(
        cost.rdp.shape == grid.shape
        and (cost.rdp >= 0).all()
        and cost.log_survival <= 0
        and cost.mu_squared >= 0
        and cost.rounds >= 0
        and (cost.narrow_weights >= 0).all(),
        f"an event of known cost on all orders up to {grid.max():g}",
        event=str(event)[:80],
    )
    return cost


_SLACK = 1e-12  # relative; sums of the same costs in another order differ by less
# The share of delta for later tests. It costs up to 1.4% of mu^2 for delta below 1e-5.
_ASIDE = 0.1


class PrivacyFilter(ABC):
    """Admits releases as long as their total cost stays within bounds fixed before the first one.

    The bounds hold for every adversary who chooses each release after seeing all earlier ones, so
    that all releases together are (max_epsilon, delta)-DP for the budget from which the filter was
    made (proof: `docs/appendix/budgets.md`).
    """

    name: ClassVar[FilterName]
    max_delta0: float
    """The largest delta0 that the sum may have."""

    def __post_init__(self) -> None:
        require(0 <= self.max_delta0 < 1, "0 <= max_delta0 < 1", max_delta0=self.max_delta0)

    @property
    def orders(self) -> FloatArray:
        """The Renyi orders ``[K]`` of costs: one, of any value, for bounds that need no curve."""
        return DEFAULT_ORDERS[:1]

    @classmethod
    @abstractmethod
    def keeps(cls, budget: Budget, cost: Cost) -> bool:
        """Return whether a filter of ``budget`` could admit releases of total ``cost``."""

    @classmethod
    @abstractmethod
    def fitted(cls, budget: Budget, cost: Cost, max_delta0: float) -> Self:
        """Return the filter of ``budget`` that leaves the most if ``cost`` is the total of all.

        Raises ``ValueError`` if the overhead of the conversion takes the whole budget.
        """

    @abstractmethod
    def epsilon(self, budget: Budget, cost: Cost) -> float:
        """Return the max_epsilon that the budget would need to admit ``cost``, delta0 aside."""

    def require_follows(self, budget: Budget) -> None:
        """Raise ``ValueError`` unless the bounds make all that is admitted keep ``budget``."""
        require(
            self.max_delta0 < budget.delta and budget.max_delta0 in (None, self.max_delta0),
            f"max_delta0 of {budget.to_dict()}",
            max_delta0=self.max_delta0,
        )
        require(
            budget.filter in (None, self.name),
            f"the filter of {budget.to_dict()}",
            filter=self.name,
        )
        bound, derived, error = self._derived(budget)
        actual = getattr(self, bound)
        require(
            abs(derived - actual) <= error, f"{bound}={derived} from max_epsilon", **{bound: actual}
        )

    @abstractmethod
    def _derived(self, budget: Budget) -> tuple[str, float, float]:
        """Return the name of a bound, its value by ``budget``, and the error of this value."""

    @abstractmethod
    def _bounded(self, cost: Cost) -> tuple[float, float, str]:
        """Return the sum that is bounded apart from delta0, its bound, and its name."""

    def admits(self, cost: Cost) -> bool:
        """Whether the sum of all releases, evaluated on `orders`, is within the bounds."""
        amount, bound, _ = self._bounded(cost)
        return amount <= bound * (1 + _SLACK) and self.admits_failures(cost)

    def admits_failures(self, cost: Cost) -> bool:
        """Whether the failures of all releases together are within their bound."""
        return cost.delta0 <= self.max_delta0 * (1 + _SLACK)

    def describe_spent(self, cost: Cost) -> str:
        """Say how much of the bounds ``cost`` has used."""
        amount, bound, name = self._bounded(cost)
        return (
            f"{amount:.4g} of {bound:.4g} of {name}, {cost.delta0:.3g} of"
            f" {self.max_delta0:.3g} of delta0"
        )

    def to_dict(self) -> dict[str, float]:
        """Return plain JSON types; `filter_from_dict` is the inverse."""
        return {bound.name: getattr(self, bound.name) for bound in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class RenyiFilter(PrivacyFilter):
    """Bounds the Renyi curve at one order (Feldman & Zrnic (2021)) and delta0.

    The order is fixed beforehand: were it chosen at the end, all releases together need not be
    (max_epsilon, delta)-DP.

    Args:
        order: the Renyi order.
        max_rdp: the largest value of the summed curve at that order.
        max_delta0: the largest delta0 of the sum.
    """

    name: ClassVar[FilterName] = "renyi"
    order: float
    max_rdp: float
    max_delta0: float

    def __post_init__(self) -> None:
        require_positive(**{"order - 1": self.order - 1})
        require(
            math.isfinite(self.max_rdp) and self.max_rdp >= 0, "max_rdp >= 0", max_rdp=self.max_rdp
        )
        super().__post_init__()

    @property
    def orders(self) -> FloatArray:
        """The one order, shape ``[1]``."""
        return np.array([self.order])

    @classmethod
    def keeps(cls, budget: Budget, cost: Cost) -> bool:
        rest = _remaining_delta(budget, cost)
        return rest > 0 and bool(
            (cost.rdp + conversion_overhead(DEFAULT_ORDERS, rest)).min() <= budget.max_epsilon
        )

    @classmethod
    def fitted(cls, budget: Budget, cost: Cost, max_delta0: float) -> Self:
        overhead = conversion_overhead(DEFAULT_ORDERS, budget.delta - max_delta0)
        possible = overhead <= budget.max_epsilon
        require(
            possible.any(),
            f"max_epsilon >= {overhead.min()} at this delta",
            max_epsilon=budget.max_epsilon,
        )
        best = int(np.argmin(np.where(possible, cost.rdp + overhead, np.inf)))
        return cls(
            order=float(DEFAULT_ORDERS[best]),
            max_rdp=budget.max_epsilon - float(overhead[best]),
            max_delta0=max_delta0,
        )

    def epsilon(self, budget: Budget, cost: Cost) -> float:
        return budget.max_epsilon + float(cost.rdp[0]) - self.max_rdp

    def _derived(self, budget: Budget) -> tuple[str, float, float]:
        overhead = float(conversion_overhead(self.orders, budget.delta - self.max_delta0)[0])
        # a difference of two numbers that may both be much larger than it
        error = _SLACK * (budget.max_epsilon + abs(overhead))
        return "max_rdp", budget.max_epsilon - overhead, error

    def _bounded(self, cost: Cost) -> tuple[float, float, str]:
        return float(cost.rdp[0]), self.max_rdp, f"Renyi divergence at order {self.order:.4g}"


@dataclass(frozen=True, kw_only=True)
class GaussianFilter(PrivacyFilter):
    """Bounds the sum of ``mu^2`` of Gaussian differential privacy, and delta0.

    The proof is in Koskela, Tobaben & Honkela (2023). The filter admits 11 to 16% more releases of
    Gaussian noise than `RenyiFilter` for epsilon 0.5 to 8. It charges other events at the ``mu`` of
    a dominating Gaussian mechanism, which is more than their curve.

    Args:
        max_mu_squared: the largest sum of ``mu^2``.
        max_delta0: the largest delta0 of the sum.
    """

    name: ClassVar[FilterName] = "gaussian"
    max_mu_squared: float
    max_delta0: float

    def __post_init__(self) -> None:
        require_positive(max_mu_squared=self.max_mu_squared)
        super().__post_init__()

    @classmethod
    def keeps(cls, budget: Budget, cost: Cost) -> bool:
        remaining = _remaining_delta(budget, cost)
        return remaining > 0 and cost.mu_squared <= largest_mu(budget.max_epsilon, remaining) ** 2

    @classmethod
    def fitted(cls, budget: Budget, cost: Cost, max_delta0: float) -> Self:
        return cls(
            max_mu_squared=largest_mu(budget.max_epsilon, budget.delta - max_delta0) ** 2,
            max_delta0=max_delta0,
        )

    def epsilon(self, budget: Budget, cost: Cost) -> float:
        return gaussian_epsilon(budget.delta - self.max_delta0, math.sqrt(cost.mu_squared))

    def _derived(self, budget: Budget) -> tuple[str, float, float]:
        # a Gaussian mechanism of this mu spends the budget
        largest = largest_mu(budget.max_epsilon, budget.delta - self.max_delta0) ** 2
        return "max_mu_squared", largest, 1e-10 * largest

    def _bounded(self, cost: Cost) -> tuple[float, float, str]:
        return cost.mu_squared, self.max_mu_squared, "squared mu in Gaussian differential privacy"


FILTERS: Mapping[FilterName, type[PrivacyFilter]] = {
    kind.name: kind for kind in (RenyiFilter, GaussianFilter)
}
"""The kinds of filter; of two that admit as much, the first is taken."""


def filter_from_dict(description: Mapping[str, float]) -> PrivacyFilter:
    """Return the filter that `PrivacyFilter.to_dict` described."""
    named = (
        kind
        for kind in FILTERS.values()
        if {*description} == {bound.name for bound in fields(kind)}  # type: ignore[arg-type]
    )
    return next(named, RenyiFilter)(**description)


def affordable(budget: Budget, query: Cost) -> int:
    """Return the number of queries of cost ``query`` that an unused budget can pay.

    ``query`` is a cost on `DEFAULT_ORDERS`.

    Raises ``ValueError`` if the queries cost nothing.
    """
    return max(_affordable_counts(budget, query).values())


def make_filter(budget: Budget, first: Cost) -> PrivacyFilter:
    """Return the filter of ``budget`` that admits the most repetitions of a ledger's first query.

    It admits as many as `affordable` says. Unless another admits more, or the budget names one, it
    is a Renyi filter, which knows a cost for every event. It follows from the budget and from the
    reservation of the first release, so that no released output can have chosen it.

    Args:
        budget: the budget.
        first: the cost on `DEFAULT_ORDERS` of one query of the first release of the ledger.

    Raises:
        ValueError: if the query costs nothing, or its failures or the overhead of the conversion
            take the whole budget.
    """
    reach = _affordable_counts(budget, first)
    name = max(reach, key=lambda kind: reach[kind])
    # a filter that admits no query can at least say so
    total = first * max(1, reach[name])
    max_delta0 = _delta_for_failures(budget, total)
    if max_delta0 >= budget.delta:
        raise BudgetExceededError(
            f"Expected delta0 < {format_exact(budget.delta)}, the delta of the budget, after one"
            f" query, got delta0={max_delta0:.3g}"
        )
    return FILTERS[name].fitted(budget, total, max_delta0)


def require_filter_of_first(bounds: PrivacyFilter, budget: Budget, first: Cost) -> None:
    """Raise ``ValueError`` unless `make_filter` returns ``bounds``."""
    derived, actual = make_filter(budget, first).to_dict(), bounds.to_dict()
    close = (math.isclose(value, actual[name], rel_tol=1e-9) for name, value in derived.items())
    require(
        derived.keys() == actual.keys() and all(close),
        f"the filter that follows from the budget and the first release, {derived}",
        filter=actual,
    )


def refuse(
    budget: Budget,
    bounds: PrivacyFilter,
    total: Cost,
    *,
    when: str = "with all earlier releases",
    remainder: str = "",
) -> NoReturn:
    """Raise the ``ValueError`` for releases with a total cost that the filter does not admit.

    Args:
        budget: the budget.
        bounds: its filter.
        total: the total cost with the release, on ``bounds.orders``.
        when: the releases that it is the total of.
        remainder: a clause on the budget that is left without the release; may be empty.
    """
    remainder = f"; {remainder}" if remainder else ""
    if math.isinf(total.mu_squared) and not isinstance(bounds, RenyiFilter):
        raise ValueError(
            "Expected a release that a Gaussian mechanism dominates, because the budget of the"
            " ledger is kept in"
            " Gaussian differential privacy since its first release, got one that is known only"
            " by its Renyi curve"
        )
    if not bounds.admits_failures(total):
        raise BudgetExceededError(
            f"Expected delta0 <= {bounds.max_delta0:.3g} {when} (max_delta0, the part of the"
            " budget's delta ="
            f" {format_exact(budget.delta)} that is set aside for failures of tests),"
            f" got delta0={total.delta0:.3g}{remainder}"
        )
    aside = (
        f" ({bounds.max_delta0:.3g} of delta is set aside for failures of tests)"
        if bounds.max_delta0
        else ""
    )
    raise BudgetExceededError(
        f"Expected epsilon <= {format_exact(budget.max_epsilon)} at delta ="
        f" {format_exact(budget.delta)} under"
        f" {budget.neighboring_relation.value} {when},"
        f" got epsilon={format_epsilon(bounds.epsilon(budget, total), 4)}{aside}{remainder}"
    )


def describe_remainder(bounds: PrivacyFilter, spent: Cost, query: Cost) -> str:
    """Say how much of the bounds ``spent`` leaves, and how many such queries it can pay for."""
    number = largest_count_where(lambda n: bounds.admits(spent + query * n))
    amount, bound, name = bounds._bounded(spent)
    left, failures = max(0.0, bound - amount), max(0.0, bounds.max_delta0 - spent.delta0)
    return (
        f"left are {left:.4g} of {name} and {failures:.3g} of delta0: {number} such queries can be"
        " paid"
    )


def _affordable_counts(budget: Budget, query: Cost) -> dict[FilterName, int]:
    """Return how many such queries each filter that the budget allows would admit."""
    require(bool(query.rdp.max() > 0 or query.log_survival < 0), "a query that costs something")

    def reach(kind: type[PrivacyFilter]) -> int:
        return largest_count_where(lambda n: kind.keeps(budget, query * n))

    return {name: reach(kind) for name, kind in FILTERS.items() if budget.filter in (None, name)}


def _delta_for_failures(budget: Budget, cost: Cost) -> float:
    """Return the part of delta for failures if ``cost`` is the total of all releases."""
    return (
        max(_ASIDE * budget.delta, cost.delta0) if budget.max_delta0 is None else budget.max_delta0
    )


def _remaining_delta(budget: Budget, cost: Cost) -> float:
    """Return the part of delta that failures leave; 0 or less if there is none.

    It is not ``(delta - delta0) / (1 - delta0)``, which presumes that delta0 is spent on every
    path.
    """
    aside = _delta_for_failures(budget, cost)
    return budget.delta - aside if cost.delta0 <= aside * (1 + _SLACK) else 0.0
