"""The privacy statement: what was released, what it cost, and the events from which the cost follows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from pate.accounting.base import event_from_dict, leaves
from pate.accounting.budget import Budget, PrivacyFilter, expect_filter_of_first, filter_from_dict
from pate.accounting.charges import ROUNDING, Charge, account, cost_of_charges
from pate.accounting.conditions import FIXED_BEFOREHAND, keeping
from pate.accounting.cost import DEFAULT_ORDERS
from pate.accounting.figures import epsilon_text, exact_text
from pate.accounting.history import Book
from pate.accounting.relation import NeighboringRelation
from pate.accounting.verification import expect_continues, expect_figures
from pate.validation import expect, expect_open_unit

_PROTECTS = {
    NeighboringRelation.REPLACE_RECORD: "one {unit} of the private data is added, removed or altered",
    NeighboringRelation.ADD_REMOVE_TEACHER: "one teacher takes part or does not",
}
_SAID_BEFORE = ("type", "neighboring_relation")  # of an event, where its parameters are listed
_CONVERSION = (
    "the smaller of Canonne, Kamath & Steinke (2020), Proposition 12, at the best order, and of"
    " Balle & Wang (2018), Theorem 8, for the Gaussian mechanism that dominates all releases"
)
_BY_CURVE = (
    "    epsilon = rdp + log(1 - 1/a) - (log(d) + log(a)) / (a - 1)",
    "    (Canonne, Kamath & Steinke (2020), Proposition 12)",
)
_BY_GAUSSIAN = (
    "    d = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)",
    "    (Dong, Roth & Su (2022), Corollary 3.3; Balle & Wang (2018), Theorem 8)",
)


@dataclass(frozen=True, kw_only=True)
class Questions:
    """What a statement says about the queries of its release, apart from their cost.

    Attributes:
        num_queries: number of queries asked.
        num_answered: number of queries answered.
        num_teachers: the nominal number of teachers.
        num_labels: number of labels of each query.
        aggregator: the aggregator, as ``class_path`` and ``init_args`` in plain JSON types.
    """

    num_queries: int
    num_answered: int
    num_teachers: int
    num_labels: int
    aggregator: Mapping[str, Any]


def make_statement(
    book: Book,
    questions: Questions,
    *,
    relation: NeighboringRelation,
    delta: float,
    unit: str,
    versions: Mapping[str, str],
    of_this_run_alone: bool = False,
) -> dict[str, Any]:
    """Return the statement on all releases of a ledger, in plain JSON types.

    Its guarantees were fixed before any noise was drawn: the ledger's budget under the relation of the budget, and
    otherwise what all releases reserved. ``costs`` is what was finally settled, which may be less. Both can be computed
    again from ``releases`` alone.

    Args:
        book: the content of the ledger.
        questions: the queries of the release that the statement belongs to.
        relation: the relation that is stated first.
        delta: the delta at which epsilons are stated.
        unit: the word for one row of the private data.
        versions: the versions of the libraries used, by name.
        of_this_run_alone: whether other runs on the same private data have ledgers of their own.
    """
    expect_open_unit(delta=delta)
    reserved = book.reserved()
    return {
        "private": not any(entry.seeded for entry in book.entries),
        "neighboring_relation": relation.value,
        "guarantees": {
            each.value: _guarantee(book.budget, book.filter, reserved, each, delta)
            | {"neighbors": _PROTECTS[each].format(unit=unit)}
            for each in NeighboringRelation
        },
        "costs": {
            each.value: account(book.charges(), each).guarantee(delta=delta).to_dict() for each in NeighboringRelation
        },
        "conversion": _CONVERSION,
        "budget": None if book.budget is None else book.budget.to_dict(),
        "filter": None if book.filter is None else book.filter.to_dict(),
        "declared_after": book.declared_after,
        "aggregator": dict(questions.aggregator),
        "num_queries": questions.num_queries,
        "num_answered": questions.num_answered,
        "num_teachers": questions.num_teachers,
        "num_labels": questions.num_labels,
        "ledger": {**book.head._asdict(), "of_this_run_alone": of_this_run_alone},
        "releases": [entry.to_dict() for entry in book.entries],
        "versions": dict(versions),
    }


def continued(statement: Mapping[str, Any], book: Book) -> dict[str, Any]:
    """Return ``statement`` on all releases that its ledger holds by now, those made after it too.

    Args:
        statement: what `make_statement` returned.
        book: the content of its ledger.

    Raises:
        ValueError: if the ledger lacks rows that it held when the statement was made.
    """
    expect_continues(statement, book)
    own = statement["neighboring_relation"]
    made = make_statement(
        book,
        Questions(**{field.name: statement[field.name] for field in fields(Questions)}),
        relation=NeighboringRelation(own),
        delta=statement["costs"][own]["delta"],
        unit="record",
        versions=statement["versions"],
        of_this_run_alone=statement["ledger"]["of_this_run_alone"],
    )
    for name, guarantee in made["guarantees"].items():
        guarantee["neighbors"] = statement["guarantees"][name]["neighbors"]  # which names the unit
    return made


def verify_statement(statement: Mapping[str, Any], book: Book | None = None) -> None:
    """Raise ``ValueError`` unless every figure of a statement follows from the events that it lists.

    With a ``book``, the statement must also cover all releases of that ledger, and the ledger must still hold all rows
    that it held when the statement was made. The aggregator and whether the ledger belongs to one run alone do not
    follow from events and are not checked.
    """
    _expect_texts(statement)
    _expect_counts(statement)
    budget = None if statement["budget"] is None else Budget(**statement["budget"])
    bounds = None if statement["filter"] is None else filter_from_dict(statement["filter"])
    expect((budget is None) == (bounds is None), "a budget and its filter", filter=statement["filter"])
    reserved, paid = _charges(statement["releases"])
    _expect_no_more_than_reserved(statement["releases"])
    if budget is not None and bounds is not None:
        bounds.expect_follows(budget)
        if statement["declared_after"]:
            first = reserved[0][0][budget.neighboring_relation]
            expect_filter_of_first(bounds, budget, first.cost())
        total = cost_of_charges(paid, budget.neighboring_relation, bounds.orders)
        within = bounds.admits(total)
        expect(within, f"releases within the budget: {bounds.spent(total)}", epsilon=bounds.epsilon(budget, total))
    private = not any(release["seeded"] for release in statement["releases"])
    expect(statement["private"] == private, f"private={private}, as the releases say", private=statement["private"])
    for relation in NeighboringRelation:
        stated, cost = statement["guarantees"][relation.value], statement["costs"][relation.value]
        delta = cost["delta"]
        figures = {name: value for name, value in stated.items() if name != "neighbors"}  # which is a text
        promised = _guarantee(budget, bounds, reserved, relation, delta)
        expect_figures(promised, figures, f"guarantee under {relation.value}")
        spent = account(paid, relation).guarantee(delta=delta).to_dict()
        expect_figures(spent, cost, f"cost under {relation.value}")
    if book is not None:
        _expect_of_ledger(statement, book)


def describe(statement: Mapping[str, Any]) -> str:
    """Return the statement as readable text, with everything needed to compute epsilon by hand."""
    lines = []
    if not statement["private"]:
        lines += ["NOT PRIVATE: the noise of at least one release was drawn from a fixed seed.", ""]
    own = statement["neighboring_relation"]
    budget, releases = statement["budget"], statement["releases"]
    for name, guarantee in sorted(statement["guarantees"].items(), key=lambda item: item[0] != own):
        epsilon, delta = epsilon_text(guarantee["epsilon"]), exact_text(guarantee["delta"])
        lines.append(f"epsilon = {epsilon} at delta = {delta} under {name.upper()}:")
        lines.append(f"    neighbors are data sets where {guarantee['neighbors']}.")
    if budget is not None:
        lines.append(
            f"Under {budget['neighboring_relation'].upper()} this is the budget of the ledger:"
            f" {keeping(statement['declared_after'])}"
        )
    if len(releases) > 1:
        unkept = [name.upper() for name, each in statement["guarantees"].items() if each["fixed_by"] == "reservation"]
        where = "The ledger has no budget: this" if budget is None else f"It has none under {unkept[0]}: that epsilon"
        lines.append(f"{where} holds if {FIXED_BEFOREHAND}.")
    costs = statement["costs"]
    if any(costs[name]["epsilon"] != guarantee["epsilon"] for name, guarantee in statement["guarantees"].items()):
        figures = " and ".join(
            f"epsilon = {epsilon_text(costs[name]['epsilon'])} under {name.upper()}"
            for name in sorted(costs, key=lambda name: name != own)
        )
        for_less = any(release["realised"] is not None for release in releases)
        what = "What happened" if for_less else "What was reserved so far"
        lines.append(f"{what} cost {figures} at delta = {exact_text(costs[own]['delta'])}:")
        lines.append(
            "    no guarantee, because what it is computed from was not fixed before the noise was drawn."
            if for_less
            else "    that of these releases alone. The budget holds for all that follow, too."
        )
    aggregator = statement["aggregator"]
    parameters = ", ".join(f"{name}={value}" for name, value in aggregator["init_args"].items())
    lines += [
        "",
        f"{statement['num_answered']} of {statement['num_queries']} queries were answered, each on"
        f" {statement['num_labels']} labels voted by {statement['num_teachers']} teachers, through",
        f"    {aggregator['class_path']}({parameters}).",
    ]
    queries = sum(release["count"] for release in releases)
    lost = sum(release["count"] for release in releases if not release["settled"])
    whose = "this run alone" if statement["ledger"]["of_this_run_alone"] else "the private data"
    lines.append(f"The ledger of {whose} holds {len(releases)} release(s) of {queries} queries in all; all count.")
    if statement["ledger"]["of_this_run_alone"]:
        lines.append("    What other runs released of the same private data is not in it, and adds up.")
    if lost:
        lines.append(f"    {lost} of them were reserved by runs that were broken off; they count in full.")
    lines += ["", *_arithmetic(statement)]
    versions = ", ".join(f"{name} {version}" for name, version in statement["versions"].items())
    lines += ["", f"Made with {versions}."]
    return "\n".join(lines) + "\n"


def _guarantee(
    budget: Budget | None,
    bounds: PrivacyFilter | None,
    reserved: Sequence[Charge],
    relation: NeighboringRelation,
    delta: float,
) -> dict[str, Any]:
    """Return the guarantee that was fixed beforehand under ``relation``, and what fixed it."""
    if budget is not None and bounds is not None and budget.neighboring_relation is relation:
        fixed: dict[str, Any] = {"epsilon": budget.max_epsilon, "delta": budget.delta, "delta0": bounds.max_delta0}
        return fixed | {"fixed_by": "budget"}
    return account(reserved, relation).guarantee(delta=delta).to_dict() | {"fixed_by": "reservation"}


def _expect_texts(statement: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless the texts that explain the figures are the standard ones."""
    names = [relation.value for relation in NeighboringRelation]
    own = statement["neighboring_relation"]
    expect(own in names, f"neighboring_relation among {', '.join(names)}", neighboring_relation=own)
    stated = statement["conversion"]
    expect(stated == _CONVERSION, f"conversion={_CONVERSION!r}", conversion=stated)
    for kind in ("guarantees", "costs"):
        found = sorted(statement[kind])
        expect(found == sorted(names), f"{kind} under {', '.join(names)}", **{kind: found})
    for relation, text in _PROTECTS.items():
        neighbors = statement["guarantees"][relation.value]["neighbors"]
        before, _, behind = text.partition("{unit}")
        known = isinstance(neighbors, str) and (
            re.fullmatch(rf"{re.escape(before)}\w+{re.escape(behind)}" if behind else re.escape(text), neighbors)
        )
        expect(known, f"neighbors under {relation.value}: {text}", neighbors=neighbors)


def _expect_counts(statement: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless the statement's numbers agree with its releases and with each other."""
    numbers = {name: statement[name] for name in ("num_queries", "num_answered", "num_teachers", "num_labels")}
    for name, number in numbers.items():
        expect(type(number) is int and number >= 0, f"an integer {name} >= 0", **{name: number})
    answered, queries, rows = numbers["num_answered"], numbers["num_queries"], statement["ledger"]["rows"]
    expect(answered <= queries, f"num_answered <= {queries}", num_answered=answered)
    releases = statement["releases"]
    if "release" in statement:  # the number of the release that it belongs to
        counts = dict(enumerate((release["count"] for release in releases), 1))
        asked = counts.get(statement["release"])
        expect(asked == queries, f"num_queries={asked} of release {statement['release']}", num_queries=queries)
    expect(type(rows) is int and rows >= len(releases), f"a row for each of {len(releases)} releases", rows=rows)
    after, most = statement["declared_after"], 0 if statement["budget"] is None else len(releases) - 1
    expect(type(after) is int and 0 <= after <= most, f"declared_after in 0 .. {most}", declared_after=after)


def _expect_no_more_than_reserved(releases: Sequence[Mapping[str, Any]]) -> None:
    for release in releases:
        if release["realised"] is None:
            continue
        for relation in NeighboringRelation:
            most, paid = (cost_of_charges(each, relation, DEFAULT_ORDERS) for each in _charges([release]))
            within = bool((paid.rdp <= most.rdp * ROUNDING).all()) and paid.mu_squared <= most.mu_squared * ROUNDING
            within &= -paid.log_survival <= -most.log_survival * ROUNDING
            reserved = f"at most what release {release['release']} reserved under {relation.value}"
            expect(within, reserved, realised="more")


def _expect_of_ledger(statement: Mapping[str, Any], book: Book) -> None:
    expect_continues(statement, book)
    listed, held = len(statement["releases"]), len(book.entries)
    expect(listed == held, f"a statement on all {held} releases of the ledger", releases=listed)
    for release, entry in zip(statement["releases"], book.entries, strict=True):
        expect(release == entry.to_dict(), f"release {entry.release} as the ledger has it", release=release)
    plain = None if book.budget is None else book.budget.to_dict()
    expect(statement["budget"] == plain, f"the budget of the ledger, {plain}", budget=statement["budget"])
    bounds = None if book.filter is None else book.filter.to_dict()
    expect(statement["filter"] == bounds, f"the filter of the ledger, {bounds}", filter=statement["filter"])
    after = book.declared_after
    declared = f"the releases before the budget of the ledger, {after}"
    expect(statement["declared_after"] == after, declared, declared_after=statement["declared_after"])


def _charges(releases: Sequence[Mapping[str, Any]]) -> tuple[list[Charge], list[Charge]]:
    """Return what was reserved and what was finally paid, from ``releases`` in plain JSON types."""

    def charge(each: Mapping[str, Any]) -> Charge:
        return {name: event_from_dict(each["events"][name.value]) for name in NeighboringRelation}, each["count"]

    reserved = [charge(release) for release in releases]
    paid = [
        each
        for release, whole in zip(releases, reserved, strict=True)
        for each in ([whole] if release["realised"] is None else map(charge, release["realised"]))
    ]
    return reserved, paid


def _arithmetic(statement: Mapping[str, Any]) -> list[str]:
    """Return the lines that derive the figures under the statement's own relation."""
    relation = NeighboringRelation(statement["neighboring_relation"])
    reserved, paid = _charges(statement["releases"])
    guarantee, cost = statement["guarantees"][relation.value], statement["costs"][relation.value]
    if guarantee["fixed_by"] == "budget":
        bounds = filter_from_dict(statement["filter"])
        keeps = ", ".join(f"{name} = {value!r}" for name, value in bounds.to_dict().items())
        spent = bounds.spent(cost_of_charges(paid, relation, bounds.orders))
        lines = [f"Under {relation.value.upper()} the ledger is kept by {type(bounds).__name__}, {keeps}:"]
        title = "What was reserved" if reserved == paid else "What happened"
        return [*lines, f"    spent are {spent}.", *_sum(paid, cost, relation, title)]
    lines = _sum(reserved, guarantee, relation, "What was reserved")
    return lines if reserved == paid else [*lines, *_sum(paid, cost, relation, "What happened")]


def _sum(charges: Sequence[Charge], figures: Mapping[str, Any], relation: NeighboringRelation, title: str) -> list[str]:
    """Return the lines that add ``charges`` up to ``figures``."""
    where = f"{title}, under {relation.value.upper()}"
    if figures["epsilon"] is None:
        return [f"{where}: delta0 = {figures['delta0']!r}, which is not below delta."]
    order, by_curve = figures.get("order", 2.0), "order" in figures
    lines = [f"{where}, " + (f"at the Renyi order a = {order!r}:" if by_curve else "in Gaussian differential privacy:")]
    for events, count in charges:
        for leaf, times in leaves(events[relation], count):
            known = {name: value for name, value in leaf.to_dict().items() if value is not None}
            shown = ", ".join(f"{name}={value!r}" for name, value in known.items() if name not in _SAID_BEFORE)
            once = leaf.cost(np.array([order]))
            each = f"rdp = {float(once.rdp[0])!r}" if by_curve else f"mu^2 = {once.mu_squared!r}"
            lines.append(f"    {times} x {type(leaf).__name__}({shown}): {each}, delta0 = {once.delta0!r} each")
    total = f"rdp = {figures['rdp']!r}" if by_curve else f"mu^2, mu = {figures['mu']!r}"
    return [
        *lines,
        f"    sum: {total}, delta0 = 1 - product of (1 - delta0) = {figures['delta0']!r}",
        "    d = (delta - delta0) / (1 - delta0)",
        *(_BY_CURVE if by_curve else _BY_GAUSSIAN),
    ]
