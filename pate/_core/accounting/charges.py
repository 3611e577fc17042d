"""Charges and their sums: a charge is the events of a query, and how many such queries there were.

A `Budget` limits the sum. Each query has an event under either relation.

`Totals` keeps the counts of charges, which are integers, and sums them up when it is asked. So a
settlement that takes a reservation back leaves no trace of its digits.
"""

from __future__ import annotations

import json
import marshal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from pate._core.accounting.accountant import RDPAccountant
from pate._core.accounting.base import Event, event_from_dict, total_cost
from pate._core.accounting.cost import DEFAULT_ORDERS, Cost, NeighboringRelation
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

    @classmethod
    def declared(
        cls,
        max_epsilon: float | None,
        *,
        delta: float,
        neighboring_relation: NeighboringRelation,
        max_delta0: float | None,
        budget_filter: FilterName | None,
        max_teachers_per_unit: int,
    ) -> Budget | None:
        """Return the budget that a command declares. None without ``max_epsilon``.

        Raises ``ValueError`` if another option of a budget comes without ``max_epsilon``.
        """
        if max_epsilon is not None:
            return cls(
                max_epsilon=max_epsilon,
                delta=delta,
                neighboring_relation=neighboring_relation,
                max_delta0=max_delta0,
                filter=budget_filter,
                max_teachers_per_unit=max_teachers_per_unit,
            )
        for name, value in (("max_delta0", max_delta0), ("budget_filter", budget_filter)):
            require(value is None, f"max_epsilon with {name}", **{name: value})
        return None

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
    return RDPAccountant(relation=relation, in_order=in_order).compose(
        [events[relation] for events, _ in charges], [count for _, count in charges]
    )


def cost_of_charges(
    charges: Sequence[Charge], relation: NeighboringRelation, orders: FloatArray
) -> Cost:
    """Return the total cost of ``charges`` under ``relation`` on ``orders`` ``[K]``."""
    events, counts = [each[relation] for each, _ in charges], [count for _, count in charges]
    return on_orders(orders, lambda wide: total_cost(events, counts, wide))


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
