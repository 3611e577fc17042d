"""The wording of privacy statements: whom they protect, the release, and epsilon by hand.

The conditions on which figures of several releases hold are worded here for reports and commands
too. `Statement.verify` compares the sentences that a statement holds, so that a change of
``neighbors`` or ``missing`` comes with a new version of `pate`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pate._core.accounting.accountant import TIGHTEST
from pate._core.accounting.base import leaves
from pate._core.accounting.charges import Charge, for_group_size
from pate._core.accounting.cost import (
    NeighboringRelation,
    explain_epsilon,
    format_epsilon,
    format_exact,
)
from pate._core.accounting.history import LedgerSnapshot, PrivacyUnit
from pate._core.accounting.proofs import (
    Guarantee,
    Term,
)

AUDITED = "NOT PRIVATE: an audit. Its files tell who was among the private records."
"""The first line of every file that an audit writes."""
FIXED_BEFOREHAND = "no release decided the number, kinds or costs of later ones"
"""The condition that makes a sum of releases a guarantee without a budget."""
WORLD = "To the world, if all of them drew their noise and tell nobody,"
"""Begins the second figure of releases with noise from several parties."""

_SAID_BEFORE = ("type", "neighboring_relation")  # of an event, where its parameters are listed
AUDIT = "audit"
"""The scope of the ledger of an audit."""
_LEDGERS = {
    "private data": ("The ledger of the private data", "these data", None),
    "named": (
        "The ledger that was named for this run",
        "this ledger",
        "What another ledger of the same private data holds, such as one beside them, is not in"
        " it, and adds up.",
    ),
    "run": (
        "The ledger of this run alone",
        "this run",
        "What other runs released of the same private data is not in it, and adds up.",
    ),
    AUDIT: (
        "The ledger of an audit",
        "this audit",
        "It pays for nothing that is released of the private data.",
    ),
}
"""By the scope of a ledger: its name, the owner of its releases, and the releases that it lacks."""


Total = tuple[PrivacyUnit, LedgerSnapshot]
"""The unit with a total of releases, and the ledger with their events for it."""


def describe_neighbors(
    published: Mapping[str, Any],
    total: Total | None,
    relation: NeighboringRelation,
    word: str | None,
) -> str:
    """Return the difference between neighbors of a total, or of a release without one.

    Args:
        published: the published facts of the release.
        total: the total, if there is one.
        relation: its relation.
        word: the word for the unit of the total.
    """
    if total is None or len(total[1].entries) == 1:
        return _neighbors(relation, published)
    (unit, book), kept = total, ""
    if unit.unit == "group" and unit.grouping:
        same = f"a record has one `{unit.grouping}` in all these releases"
        word = f"group by `{unit.grouping}` ({same})"
    if unit.unit == "record" and any(e.privacy_unit.grouping for e in book.entries):
        kept = " and its group"
    elif unit.unit == "group" and any(e.privacy_unit.unit == "record" for e in book.entries):
        kept = ", as its records do,"
    return _neighbors(relation, {**published, "unit": word, "kept": kept})


def describe_missing_total(
    book: LedgerSnapshot, unit: PrivacyUnit, relation: NeighboringRelation
) -> str | None:
    """Return a sentence on why there is no total for a unit. None if there is one."""
    if book.for_unit(unit, relation) is not None:
        return None
    reasons: dict[str, list[int]] = {}
    for entry in book.entries:
        if entry.privacy_unit.held_by(unit, relation) is None:
            reasons.setdefault(entry.privacy_unit.why_alone(unit, relation), []).append(
                entry.release
            )
    which = "; ".join(
        f"{'release' if len(numbers) == 1 else 'releases'} {', '.join(map(str, numbers))}"
        f" {'is' if len(numbers) == 1 else 'are'} {reason}"
        for reason, numbers in reasons.items()
    )
    return (
        f"There is no total for {unit.describe(relation)} under {relation.value.upper()}: {which}."
    )


def describe(statement: Mapping[str, Any], book: LedgerSnapshot) -> str:
    """Return a statement as text.

    Args:
        statement: its content.
        book: the releases and the budget that it lists.
    """
    versions = ", ".join(f"{name} {version}" for name, version in statement["versions"].items())
    lines = [
        *describe_guarantee(statement, book),
        *_reach(statement),
        "",
        *_published_labels(statement),
        *describe_ledger(statement),
        "",
        *_arithmetic(statement, book),
        "",
        f"Made with {versions}.\n",
    ]
    return "\n".join(lines)


def describe_guarantee(statement: Mapping[str, Any], book: LedgerSnapshot) -> Iterator[str]:
    """Yield the first lines of a statement: its epsilons, their neighbors and their conditions."""
    if not statement["private"]:
        seeded = "NOT PRIVATE: the noise of at least one release was drawn from a fixed seed."
        yield AUDITED if statement["ledger"]["counts"] == AUDIT else seeded
        yield ""
    yield from _headline(statement, book)
    yield from describe_conditions(statement)


def describe_keeping(declared_after: int) -> str:
    """Return sentences on the promise of a budget that was declared after so many releases."""
    promise = "no release is made beyond it, whatever earlier ones showed."
    if declared_after == 0:
        return promise
    shown = "release 1" if declared_after == 1 else f"releases 1 .. {declared_after}"
    return (
        f"{promise} It was declared after release {declared_after}: it holds if neither that nor"
        " its figures followed"
        f" from what {shown} showed."
    )


def describe_reach(teachers: int, most: int) -> str:
    """Return a clause on the units of a figure; empty if no unit reaches more than one teacher."""
    return (
        ""
        if most == 1
        else f" for a unit that reaches {teachers} teacher{'s' * (teachers > 1)} at most"
    )


def describe_state(release: Mapping[str, Any]) -> str:
    """Return the state of a release of a ledger, as a statement lists it."""
    state = "settled" if release["settled"] else "reserved, counts in full"
    state += ", for less than reserved" if release["realised"] is not None else ""
    return state + (", SEEDED: not private" if release["seeded"] else "")


def describe_budget(book: LedgerSnapshot) -> str | None:
    """Return a line on the budget of a ledger, its limit, promise and use. None without one."""
    budget, bounds, unit = book.budget, book.filter, book.budget_unit
    if budget is None or bounds is None or unit is None:
        return None
    spent = bounds.describe_spent(book.spent(budget.neighboring_relation, bounds.orders))
    units = describe_reach(budget.max_teachers_per_unit, book.max_teachers_per_unit)
    if len(book.entries) > 1:
        units = f" for {unit.describe(budget.neighboring_relation)}{units}"
    return (
        f"Budget: epsilon <= {format_exact(budget.max_epsilon)} at delta ="
        f" {format_exact(budget.delta)} under"
        f" {budget.neighboring_relation.value.upper()}{units};"
        f" {describe_keeping(book.declared_after)} Spent are {spent}."
    )


def ledger_words(statement: Mapping[str, Any]) -> tuple[str, str, str | None]:
    """Return the name of a ledger, the owner of its releases, and a line on missing ones."""
    return _LEDGERS[statement["ledger"]["counts"]]


def by_relation(statement: Mapping[str, Any], part: str) -> list[tuple[str, Any]]:
    """Return one part of a statement by relation: one with a total first, and its own."""
    stated, own = statement["guarantees"], statement["neighboring_relation"]
    return sorted(
        statement[part].items(), key=lambda item: (stated[item[0]]["unit"] is None, item[0] != own)
    )


def _headline(statement: Mapping[str, Any], book: LedgerSnapshot) -> Iterator[str]:
    whose = ledger_words(statement)[1]
    own = book.entries[statement["release"] - 1].privacy_unit
    for name, guarantee in by_relation(statement, "guarantees"):
        relation = NeighboringRelation(name)
        at, epsilon = format_exact(guarantee["delta"]), format_epsilon(guarantee["epsilon"])
        total = book.total_for(own, relation)
        neighbors = "    neighbors are data sets where {}."
        differ = neighbors.format(describe_neighbors(statement, total, relation, guarantee["unit"]))
        if len(statement["releases"]) == 1:
            yield f"epsilon = {epsilon} at delta = {at} under {name.upper()}:"
            yield differ
            continue
        once = statement["this_release"][name]
        other = (
            ""
            if once["delta"] == guarantee["delta"]
            else f" at delta = {format_exact(once['delta'])}"
        )
        where = f"epsilon at delta = {at} under {name.upper()}"
        this = f"{where}: this release {format_epsilon(once['epsilon'])}{other}"
        if guarantee["missing"] is None:
            yield f"{this}; all releases of {whose} {epsilon}:"
            yield differ
            continue
        yield f"{this}:"
        yield neighbors.format(describe_neighbors(statement, None, relation, None))
        if total is not None:
            yield f"{where}: all releases of {whose} {epsilon}:"
            yield differ
    yield (
        "Any outcome is at most exp(epsilon) times as probable as it would be for a neighbor, plus"
        " delta."
    )
    _, first = by_relation(statement, "guarantees")[0]
    if first["unit"] is not None and (meaning := explain_epsilon(first["epsilon"])) is not None:
        yield meaning


def describe_conditions(statement: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on the adversaries and the conditions of epsilons."""
    guarantees = by_relation(statement, "guarantees")
    yield from dict.fromkeys(g["missing"] for _, g in guarantees if g["missing"])
    if "world" in statement:
        figures = " and ".join(
            f"{format_epsilon(figure['epsilon'])} under {name.upper()}"
            for name, figure in by_relation(statement, "world")
        )
        yield (
            f"This holds against those who take part, who know some of the noise. {WORLD} it is"
            f" {figures}."
        )
    unkept = [
        name.upper() for name, guarantee in guarantees if guarantee["fixed_by"] == "reservation"
    ]
    for name, guarantee in guarantees:
        if guarantee["fixed_by"].startswith("budget"):
            yield (
                f"Under {name.upper()} this is the budget of the ledger:"
                f" {describe_keeping(statement['declared_after'])}"
            )
    if len(statement["releases"]) > 1 and unkept:
        of_all = all(g["fixed_by"] in ("reservation", "nothing") for _, g in guarantees)
        where = (
            "No budget keeps this: it" if of_all else f"It has none under {unkept[0]}: that epsilon"
        )
        yield f"{where} holds if {FIXED_BEFOREHAND}."


def _reach(statement: Mapping[str, Any]) -> Iterator[str]:
    names = [name for name, _ in by_relation(statement, "costs")]
    unit = by_relation(statement, "guarantees")[0][1]["unit"] or statement["unit"]
    yield (
        f"Epsilon of all releases, as reserved, at delta = {format_exact(statement['delta'])} if"
        f" a {unit} reaches m teachers:"
    )
    yield "    m" + "".join(f"{name.upper():>22}" for name in names)
    guarantees = statement["guarantees"]
    for row in statement["reach"]:
        epsilons = (
            "none" if guarantees[name]["unit"] is None else format_epsilon(row[name])
            for name in names
        )
        yield f"    {row['teachers']}" + "".join(f"{epsilon:>22}" for epsilon in epsilons)
    yield f"    Replacing a {unit} by one with a new id counts as two changes: read the row 2m."


def describe_ledger(statement: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines on the releases that a statement counts, and on those that it may lack."""
    releases, (ledger, _, unknown) = statement["releases"], ledger_words(statement)
    queries = sum(release["count"] for release in releases)
    lost = sum(release["count"] for release in releases if not release["settled"])
    yield f"{ledger} holds {len(releases)} release(s) of {queries} queries in all; all count."
    if unknown is not None:
        yield f"    {unknown}"
    if lost:
        yield f"    {lost} of them were reserved by runs that were broken off; they count in full."
    if "fits" in statement:
        (features, labels), number = statement["fits"]["shape"], statement["fits"]["number"]
        yield (
            f"    This is fit {number} of its process without a ledger, to records of {features}"
            f" features and {labels} labels: what fits to the same records cost adds up."
        )


def _arithmetic(statement: Mapping[str, Any], book: LedgerSnapshot) -> list[str]:
    """Return the lines that derive the figures under the statement's own relation."""
    relation = NeighboringRelation(statement["neighboring_relation"])
    entry = book.entries[statement["release"] - 1]
    total = book.total_for(entry.privacy_unit, relation)
    if total is None:
        once = for_group_size([(entry.events, entry.count)], book.max_teachers_per_unit)
        return _sum(
            once, statement["this_release"][relation.value], relation, "What this release reserved"
        )
    reserved, paid = total[1].reserved(), total[1].charges()
    guarantee, cost = statement["guarantees"][relation.value], statement["costs"][relation.value]
    if guarantee["fixed_by"] == "reservation":
        return _sum(reserved, guarantee, relation, "What was reserved")
    bounds = book.filter
    assert bounds is not None
    keeps = ", ".join(f"{name} = {value!r}" for name, value in bounds.to_dict().items())
    spent = bounds.describe_spent(book.spent(relation, bounds.orders))
    return [
        f"Under {relation.value.upper()} the ledger is kept by {type(bounds).__name__}, {keeps}:",
        f"    spent are {spent}.",
        *_sum(paid, cost, relation, "What was spent"),
    ]


def _line(term: Term, price: str) -> str:
    """Return the line of an event in a sum, with its ``price`` in figures of the proof."""
    shown = ", ".join(
        f"{name}={value!r}"
        for name, value in term.event.to_dict().items()
        if value is not None and name not in _SAID_BEFORE
    )
    return (
        f"    {term.times} x {type(term.event).__name__}({shown}):"
        f" {price}{', ' * bool(price)}delta0 = {term.cost.delta0!r} each"
    )


def _sum(
    charges: Sequence[Charge], figures: Mapping[str, Any], relation: NeighboringRelation, title: str
) -> list[str]:
    """Return the lines that add ``charges`` up to ``figures``, the plain form of a `Guarantee`."""
    where = f"{title}, under {relation.value.upper()}"
    guarantee = Guarantee.from_dict(figures)
    if math.isinf(guarantee.epsilon):
        return [f"{where}: delta0 = {guarantee.delta0!r}, and no epsilon is known at this delta."]
    order = np.array([guarantee.order or 2.0])
    terms = [
        Term(leaf, times, leaf.cost(order))
        for events, count in charges
        for leaf, times in leaves(events[relation], count)
    ]
    given = {name for name, value in vars(guarantee).items() if value is not None}
    figures_of_proof = given - {"epsilon", "delta", "delta0"}
    (accountant,) = (each for each in TIGHTEST if {*each.figures} == figures_of_proof)
    proof = accountant.words(guarantee, terms)
    return [
        f"{where}, {proof.method}:",
        *map(_line, terms, proof.prices),
        f"    sum: {proof.total}, delta0 = 1 - product of (1 - delta0) = {guarantee.delta0!r}",
        *proof.formulas,
    ]


def _neighbors(relation: NeighboringRelation, published: Mapping[str, Any]) -> str:
    teachers, unit = published["max_teachers_per_unit"], published["unit"]
    if relation is NeighboringRelation.ADD_REMOVE_TEACHER:
        return (
            "one teacher takes part or does not"
            if teachers == 1
            else f"{teachers} teachers at most take part or do not"
        )
    far = "" if teachers == 1 else f", which reaches {teachers} teachers at most,"
    kept = published.get("kept", "")
    return (
        f"one {unit} of the private data{far} is added, removed or altered, and keeps its id{kept}"
        " where it is altered"
    )


def _published_labels(statement: Mapping[str, Any]) -> list[str]:
    number = statement["num_teachers"]
    teachers = f"a teacher for each {statement['unit']}" if number is None else f"{number} teachers"
    return [
        f"{statement['num_answered']} of {statement['num_queries']} queries were answered, each on"
        f" {statement['num_labels']} labels voted by {teachers}, through",
        *(f"    {line}" for line in f"{_call(statement['aggregator'])}.".splitlines()),
        "The samples that were asked about are public: nothing protects them.",
    ]


def _call(value: Any) -> str:
    """Return settings as Python would write them, each object of a list on its own line."""
    if isinstance(value, Mapping) and "class_path" in value:
        arguments = ", ".join(
            f"{name}={_call(argument)}" for name, argument in value["init_args"].items()
        )
        return f"{value['class_path']}({arguments})"
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return "".join(["[", *(f"\n    {_call(item)}," for item in value), "\n]"])
    return str(value)
