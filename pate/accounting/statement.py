"""The privacy statement: what was released, from which events it follows, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pate.accounting.accountant import RDPAccountant
from pate.accounting.events import Event
from pate.accounting.ledger import Entry, Events, account
from pate.accounting.relation import NeighboringRelation
from pate.validation import expect, expect_open_unit

_PROTECTS = {
    NeighboringRelation.REPLACE_RECORD: "one {unit} of the private data is added, removed or altered",
    NeighboringRelation.ADD_REMOVE_TEACHER: "one teacher takes part or does not",
}


def check_budget(spent: Sequence[Entry], events: Events, *, count: int, relation: NeighboringRelation, delta: float) -> float:
    """Return epsilon under ``relation`` if ``count`` more queries are answered after what was ``spent``.

    Raises ``ValueError`` where the tests of all these queries alone cost ``delta`` or more.
    """
    expect_open_unit(delta=delta)
    accountant = account([*((entry.events, entry.count) for entry in spent), (events, count)], relation)
    tests = accountant.delta0
    expect(delta > tests, f"delta > {tests:.3g}, what the stability tests of all queries cost", delta=delta)
    return accountant.get_epsilon(delta=delta)


def make_statement(
    entries: Sequence[Entry],
    *,
    delta: float,
    relation: NeighboringRelation,
    unit: str,
    aggregator: Mapping[str, Any],
    num_queries: int,
    num_answered: int,
    num_teachers: int,
    num_labels: int,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """Return the statement on all releases of a ledger, in plain JSON types.

    Epsilon can be computed again from ``releases`` alone: each lists its event under either relation.
    """
    releases = [(entry.events, entry.count) for entry in entries]
    guarantees = {}
    for each in NeighboringRelation:
        accountant = account(releases, each)
        epsilon, order = accountant.get_epsilon_and_order(delta=delta)
        guarantees[each.value] = {
            # the tests may cost delta under the relation that the mechanism was not run for: null, not a number
            "epsilon": epsilon if epsilon < float("inf") else None,
            "delta": delta,
            "delta0": accountant.delta0,
            "order": order,
            "neighbors": _PROTECTS[each].format(unit=unit),
        }
    return {
        "private": not any(entry.seeded for entry in entries),
        "neighboring_relation": relation.value,
        "guarantees": guarantees,
        "conversion": "Canonne, Kamath & Steinke (2020), Proposition 12",
        "aggregator": dict(aggregator),
        "num_queries": num_queries,
        "num_answered": num_answered,
        "num_teachers": num_teachers,
        "num_labels": num_labels,
        "releases": [entry.to_dict() for entry in entries],
        "versions": dict(versions),
    }


def recompute(statement: Mapping[str, Any], relation: NeighboringRelation, *, delta: float | None = None) -> float:
    """Return epsilon under ``relation`` from the events of a statement, at its own delta or another."""
    from pate.accounting.events import event_from_dict

    accountant = RDPAccountant(neighboring_relation=relation)
    for release in statement["releases"]:
        event: Event = event_from_dict(release["events"][relation.value])
        accountant.compose(event, release["count"])
    return accountant.get_epsilon(delta=delta or statement["guarantees"][relation.value]["delta"])


def describe(statement: Mapping[str, Any]) -> str:
    """Return the statement as a text to read."""
    lines = []
    if not statement["private"]:
        lines += ["NOT PRIVATE: the noise of at least one release was drawn from a fixed seed.", ""]
    own = statement["neighboring_relation"]
    for name, guarantee in sorted(statement["guarantees"].items(), key=lambda item: item[0] != own):
        epsilon = "unbounded" if guarantee["epsilon"] is None else f"{guarantee['epsilon']:.3f}"
        lines.append(f"epsilon = {epsilon} at delta = {guarantee['delta']:g} under {name.upper()}:")
        lines.append(f"    neighbors are data sets where {guarantee['neighbors']}.")
    aggregator = statement["aggregator"]
    parameters = ", ".join(f"{name}={value}" for name, value in aggregator["init_args"].items())
    lines += [
        "",
        f"{statement['num_answered']} of {statement['num_queries']} queries were answered, each on"
        f" {statement['num_labels']} labels voted by {statement['num_teachers']} teachers, through",
        f"    {aggregator['class_path']}({parameters}).",
    ]
    releases = statement["releases"]
    queries = sum(release["count"] for release in releases)
    lost = sum(release["count"] for release in releases if not release["settled"])
    lines.append(f"The ledger of the private data holds {len(releases)} release(s) of {queries} queries in all; all count.")
    if lost:
        lines.append(f"    {lost} of them were reserved by runs that were broken off; they count in full.")
    versions = ", ".join(f"{name} {version}" for name, version in statement["versions"].items())
    lines += [f"Conversion from Renyi DP: {statement['conversion']}. Made with {versions}."]
    return "\n".join(lines) + "\n"
