"""What releases are charged: events under either relation, how often, and their plain forms."""

from __future__ import annotations

import json
import marshal
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from pate.accounting.accountant import RDPAccountant
from pate.accounting.curves import Cost, FloatArray, cost, total_cost
from pate.accounting.events import Event, event_from_dict
from pate.accounting.relation import NeighboringRelation
from pate.validation import expect, expect_count

Events = Mapping[NeighboringRelation, Event]
Charge = tuple[Events, int]
"""How often an event, given under either relation, is paid for."""

MAX_COUNT = 2**53  # beyond it a float does not hold every integer


def account(releases: Sequence[Charge], relation: NeighboringRelation) -> RDPAccountant:
    """Compose releases, each ``(events, count)``, under one relation."""
    accountant = RDPAccountant(neighboring_relation=relation)
    return accountant.compose([events[relation] for events, _ in releases], [count for _, count in releases])


def charged(releases: Sequence[Charge], relation: NeighboringRelation, orders: FloatArray) -> Cost:
    """Return the cost of releases, each ``(events, count)``, under one relation on ``orders`` ``[K]``."""
    return total_cost([events[relation] for events, _ in releases], [count for _, count in releases], orders)


def expect_events(events: Events) -> None:
    """Raise ``ValueError`` or ``TypeError`` unless ``events`` holds an event of known cost under either relation."""
    expect(isinstance(events, Mapping), "events by relation", events=events)
    expect(set(events) == set(NeighboringRelation), "an event under either relation", events=sorted(map(str, events)))
    for name, event in events.items():
        relation = NeighboringRelation(name)
        same = isinstance(event, Event) and event.neighboring_relation is relation
        expect(same, f"an event under {relation.value}", event=event)
        try:
            once = cost(event)
        except OverflowError:
            raise ValueError(f"Expected an event whose cost is a float, got {str(event)[:80]}") from None
        known = bool((once.rdp >= 0).all()) and once.log_survival <= 0 and once.mu_squared >= 0
        expect(known, "an event of known cost", event=event)


def expect_charge(minimum: int, count: int) -> None:
    """Raise ``ValueError`` unless ``count`` is an integer in ``minimum..2**53``."""
    if type(count) is int and minimum <= count <= MAX_COUNT:
        return
    expect_count(minimum, count=count)
    expect(count <= MAX_COUNT, "count <= 2**53", count=count if count < 1 << 99 else f"{int(count).bit_length()} bits")


def plain_events(events: Events) -> dict[str, Any]:
    """Return plain JSON types; `parse_events` reads their text."""
    return {NeighboringRelation(relation).value: event.to_dict() for relation, event in events.items()}


def plain_charges(charges: Sequence[Charge]) -> list[dict[str, Any]]:
    """Return plain JSON types."""
    return [{"events": plain_events(events), "count": count} for events, count in charges]


def name_of(described: dict[str, Any]) -> str:
    """Return the JSON text of what `plain_events` returned: the same for the same events, written in the same order."""
    return _name(marshal.dumps(described, 2))  # a tenth of the time, and this version knows no references


@lru_cache(maxsize=4096)
def _name(described: bytes) -> str:
    return json.dumps(marshal.loads(described))


@lru_cache(maxsize=4096)  # a ledger says the same over and over
def parse_events(text: str) -> Events:
    """Return the events that the JSON ``text`` describes, which cannot be changed. Raises like `expect_events`."""
    events = {NeighboringRelation(name): event_from_dict(event) for name, event in json.loads(text).items()}
    expect_events(events)
    return MappingProxyType(events)
