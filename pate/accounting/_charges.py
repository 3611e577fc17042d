"""Charges: events of a query under both relations, the number of queries, and their JSON form."""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from pate._validation import FloatArray, require, require_count, require_in_open_unit_interval
from pate.accounting._accountant import RDPAccountant
from pate.accounting._base import Event, event_from_dict, total_cost
from pate.accounting._budget import BudgetExceededError
from pate.accounting._cost import DEFAULT_ORDERS, Cost
from pate.accounting._relation import NeighboringRelation

Events = Mapping[NeighboringRelation, Event]
"""The event of one query under each relation."""
Charge = tuple[Events, int]
"""The events of one query, and the number of such queries that are paid for."""

MAX_COUNT = 2**53  # beyond it a float does not hold every integer
ROUNDING = 1 + 1e-12  # sums of the same costs in another order differ by a smaller factor


def account(charges: Sequence[Charge], relation: NeighboringRelation) -> RDPAccountant:
    """Return the accountant of all ``charges`` under ``relation``."""
    accountant = RDPAccountant(relation=relation)
    return accountant.compose(
        [events[relation] for events, _ in charges], [count for _, count in charges]
    )


def cost_of_charges(
    charges: Sequence[Charge], relation: NeighboringRelation, orders: FloatArray
) -> Cost:
    """Return the total cost of ``charges`` under ``relation`` on ``orders`` ``[K]``."""
    return total_cost(
        [events[relation] for events, _ in charges], [count for _, count in charges], orders
    )


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
        most = f"delta > {tests:.3g}, the cost of the stability tests of all queries"
        raise BudgetExceededError(f"Expected {most}, got delta={delta!r}")


def require_events(events: Events) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless ``events`` has known costs by relation."""
    require(isinstance(events, Mapping), "events by relation", events=events)
    require(
        set(events) == set(NeighboringRelation),
        "an event under either relation",
        events=sorted(map(str, events)),
    )
    for name, event in events.items():
        relation = NeighboringRelation(name)
        same = isinstance(event, Event) and event.neighboring_relation is relation
        require(same, f"an event under {relation.value}", event=event)
        _require_known_cost(event)


@lru_cache(maxsize=4096)
def _require_known_cost(event: Event) -> None:
    try:
        once = event.cost()
    except OverflowError:
        raise ValueError(
            f"Expected an event whose cost is a float, got {str(event)[:80]}"
        ) from None
    valid = np.shape(once.rdp) == DEFAULT_ORDERS.shape and bool((once.rdp >= 0).all())
    valid = valid and once.log_survival <= 0 and once.mu_squared >= 0
    require(valid, "an event of known cost", event=event)


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
