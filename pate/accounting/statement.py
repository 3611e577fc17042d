"""The privacy statement: what was released, from which events it follows, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from pate.accounting.accountant import RDPAccountant
from pate.accounting.budget import Budget
from pate.accounting.curves import Cost, cost, total_cost
from pate.accounting.events import Event, event_from_dict, leaves
from pate.accounting.ledger import Entry, Events, account
from pate.accounting.relation import NeighboringRelation
from pate.validation import expect, expect_open_unit

_PROTECTS = {
    NeighboringRelation.REPLACE_RECORD: "one {unit} of the private data is added, removed or altered",
    NeighboringRelation.ADD_REMOVE_TEACHER: "one teacher takes part or does not",
}


def check_budget(
    spent: Sequence[Entry], events: Events, *, count: int, relation: NeighboringRelation, delta: float
) -> float:
    """Return epsilon under ``relation`` if ``count`` more queries are answered after what was ``spent``.

    Raises ``ValueError`` where the tests of all these queries alone cost ``delta`` or more.
    """
    expect_open_unit(delta=delta)
    accountant = account([*(charge for entry in spent for charge in entry.charges), (events, count)], relation)
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
    budget: Budget | None = None,
) -> dict[str, Any]:
    """Return the statement on all releases of a ledger, in plain JSON types.

    Epsilon can be computed again from ``releases`` alone: each lists its event under either relation, and what was paid
    in the end where that is less. ``budget`` is what the ledger admits releases by.
    """
    expect_open_unit(delta=delta)
    releases = [charge for entry in entries for charge in entry.charges]
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
            "rdp": float(cost_at(releases, each, order).rdp[0]),
            "neighbors": _PROTECTS[each].format(unit=unit),
        }
    return {
        "private": not any(entry.seeded for entry in entries),
        "neighboring_relation": relation.value,
        "guarantees": guarantees,
        "conversion": "Canonne, Kamath & Steinke (2020), Proposition 12",
        "budget": None if budget is None else budget.to_dict(),
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
    accountant = RDPAccountant(neighboring_relation=relation)
    for release in statement["releases"]:
        for charge in _charges(release):
            accountant.compose(event_from_dict(charge["events"][relation.value]), charge["count"])
    own = statement["guarantees"][relation.value]["delta"]
    return accountant.get_epsilon(delta=own if delta is None else delta)


def verify_statement(statement: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless every epsilon of a statement follows from the events that it lists."""
    for relation in NeighboringRelation:
        computed, stated = recompute(statement, relation), statement["guarantees"][relation.value]["epsilon"]
        same = computed == float("inf") if stated is None else abs(computed - stated) <= 1e-9 * computed
        expect(same, f"epsilon={computed} under {relation.value}, computed from the events", epsilon=stated)


def describe(statement: Mapping[str, Any]) -> str:
    """Return the statement as a text to read, with all that epsilon can be computed from by hand."""
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
    lines.append(
        f"The ledger of the private data holds {len(releases)} release(s) of {queries} queries in all; all count."
    )
    if lost:
        lines.append(f"    {lost} of them were reserved by runs that were broken off; they count in full.")
    if statement["budget"] is not None:
        budget = statement["budget"]
        lines.append(
            f"No release is made beyond epsilon = {budget['max_epsilon']:g} at delta = {budget['delta']:g} under"
            f" {budget['neighboring_relation'].upper()}."
        )
    lines += ["", *_arithmetic(statement)]
    versions = ", ".join(f"{name} {version}" for name, version in statement["versions"].items())
    lines += ["", f"Made with {versions}."]
    return "\n".join(lines) + "\n"


def cost_at(releases: Sequence[tuple[Events, int]], relation: NeighboringRelation, order: float) -> Cost:
    """Return the cost of ``releases``, each ``(events, count)``, at one Renyi order."""
    return total_cost([events[relation] for events, _ in releases], [n for _, n in releases], np.array([order]))


def _arithmetic(statement: Mapping[str, Any]) -> list[str]:
    """Return the lines from which epsilon follows: events, their curves at the best order, and the conversion."""
    name = statement["neighboring_relation"]
    guarantee = statement["guarantees"][name]
    order = guarantee["order"]
    lines = [f"Under {name.upper()}, at the Renyi order a = {order!r}:"]
    for release in statement["releases"]:
        for charge in _charges(release):
            event = event_from_dict(charge["events"][name])
            for leaf, count in leaves(event, charge["count"]):
                parameters = {key: value for key, value in leaf.to_dict().items() if key in _parameters(leaf)}
                shown = ", ".join(f"{key}={value!r}" for key, value in parameters.items())
                once = cost(leaf, np.array([order]))
                lines.append(
                    f"    {count} x {type(leaf).__name__}({shown}): rdp = {float(once.rdp[0])!r},"
                    f" delta0 = {once.delta0!r} each"
                )
    return [
        *lines,
        f"    sum: rdp = {guarantee['rdp']!r}, delta0 = 1 - product of (1 - delta0) = {guarantee['delta0']!r}",
        "    d = (delta - delta0) / (1 - delta0)",
        "    epsilon = rdp + log(1 - 1/a) - (log(d) + log(a)) / (a - 1)",
        f"    ({statement['conversion']})",
    ]


def _parameters(event: Event) -> set[str]:
    return {f.name for f in fields(event) if getattr(event, f.name) is not None} - {"neighboring_relation"}


def _charges(release: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    realised: Sequence[Mapping[str, Any]] | None = release.get("realised")
    return [release] if realised is None else realised
