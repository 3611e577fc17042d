"""Privacy statements: the facts of a release, its cost, and the events that the cost follows from.

A statement is a function of its ledger: the row that settles a release holds the published facts
(`LedgerEntry.published`), with a digest of the file. So a statement is verified by making it again.
The template `statement.txt` holds its wording. Sentences for reports and commands too are here, and
those that a statement holds: `Statement.verify` compares them, so that a change of ``neighbors`` or
``missing`` comes with a new version of `pate`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pate._core.accounting.accountant import Guarantee
from pate._core.accounting.adaptive import MOST_IN_ORDER
from pate._core.accounting.base import Event, leaves
from pate._core.accounting.charges import (
    Charge,
    account,
    for_group_size,
    merged,
    name_of,
    to_world,
)
from pate._core.accounting.cost import (
    EXCESS_LIMIT,
    LOSS_LIMIT,
    WIDTHS,
    Cost,
    NeighboringRelation,
    explain_epsilon,
    format_epsilon,
    format_exact,
)
from pate._core.accounting.history import (
    RESERVED,
    History,
    LedgerEntry,
    LedgerHead,
    LedgerSnapshot,
    PrivacyUnit,
)
from pate._core.accounting.ledger import read_ledger
from pate._core.files.reading import opened, read_bytes, read_json
from pate._core.files.writing import rendered
from pate._core.validation import require, require_format

AUDITED = "NOT PRIVATE: an audit. Its files tell who was among the private records."
"""The first line of every file that an audit writes."""
FIXED_BEFOREHAND = "no release decided the number, kinds or costs of later ones"
"""The condition that makes a sum of releases a guarantee without a budget."""
WORLD = "To the world, if all of them drew their noise and tell nobody,"
"""Begins the second figure of releases with noise from several parties."""

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

FORMAT = 2
"""The format of a statement: its keys, and the wording of the sentences that it holds."""
SCHEMA = f"urn:pate:statement:{FORMAT}"
"""The name of its JSON schema, in `statement.schema.json` here."""
KIND = "labels"
"""The kind of release that statements are made of."""
_MOST_BYTES = 1 << 28
"""The bytes of a statement, which lists the releases of its ledger, some kilobytes each."""
_MOST_PARTS, _LEAST_BYTES = 1 << 17, 32
"""The lists and objects in a small statement, and the bytes of each in a large one."""
_MOST_RELEASES = 1 << 17
"""The releases in a statement that is verified without its ledger."""
_LAST = 20
"""The releases that are listed one by one where there are very many."""
_OF_ONE = "release", "at", "run", "published"
"""The parts of a release that others of its kind do not share."""
_MOST_SHOWN = 100
"""Lines of a sum, and numbers of releases in a sentence."""


class Statement:
    """The public statement of one release, and of all releases in its ledger at the time.

    Its guarantees were fixed before any noise was drawn: the ledger's budget under the relation of
    the budget, and otherwise the reservations of all releases. ``costs`` is the final cost, which
    may be less. Figures are for a unit that reaches as many teachers of each release as any of
    them, or the budget, declared; ``reach`` gives epsilons for one of them and for so many.

    Releases add up for the ``unit`` of a guarantee. Where there is no total for the release's own
    unit it is a record. Without any total it is None, and so is epsilon.

    Statements are read like mappings: ``statement["guarantees"]["replace_record"]["epsilon"]``.

    Args:
        content: the statement in plain JSON types.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = dict(content)

    @cached_property
    def book(self) -> LedgerSnapshot:
        """The releases and the budget that it states, as a ledger would hold them.

        Raises ``ValueError`` if no ledger could.
        """
        return _listed(self.content)

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return type(self), (self.content,)  # the book cannot be pickled, and is listed in it

    def __getitem__(self, name: str) -> Any:
        return self.content[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a part of the statement, or the default."""
        return self.content.get(name, default)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statement) and self.content == other.content

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(cls, book: LedgerSnapshot, release: int) -> Statement:
        """Return the statement on a release of a ledger and on all others that it holds.

        Raises:
            ValueError: if the ledger does not hold the release, or lacks its published facts.
        """
        statement = cls(_content(book, book.head, release))
        statement.__dict__["book"] = book
        return statement

    @staticmethod
    def from_json(content: str | bytes | Mapping[str, Any]) -> Statement:
        """Return the statement of a ``privacy.json``, as text or in plain types, without checks.

        Raises:
            ValueError: in one line, if it is no statement.
        """
        try:
            plain = read_json(content) if isinstance(content, str | bytes) else content
        except ValueError as error:
            raise ValueError(f"Expected a readable statement, got: {error}") from None
        kind = plain.get("kind") if isinstance(plain, Mapping) else None
        require(kind == KIND, f"a statement of the kind {KIND}", kind=kind)
        require_format(FORMAT, plain.get("format"), "a statement")
        return Statement(plain)

    @staticmethod
    def read(path: Path) -> Statement:
        """Return the statement in a file. Raises ``ValueError`` in one line if it holds none."""
        try:
            content = read_bytes(path, _MOST_BYTES)
            parts = content.count(b"[") + content.count(b"{")
            most = _MOST_PARTS + len(content) // _LEAST_BYTES
            require(parts <= most, f"at most {most} lists and objects for its bytes", parts=parts)
            return Statement.from_json(content)
        except (OSError, ValueError) as error:
            raise ValueError(f"Expected a readable statement at {path}, got: {error}") from None

    def verify(
        self,
        *,
        ledger: Path | None = None,
        released: Path | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> int:
        """Make the statement again and compare every key of it.

        Without a ledger it is made from the releases that it lists. Whether these are all, for whom
        each was priced, their order, and the time of the budget then rest on the word of its
        author. With a ledger, it is made from the rows that the ledger held then, all of which it
        must still hold.

        Args:
            ledger: the file of the ledger.
            released: the released file. The ledger holds its digest.
            facts: the facts that the released file holds, by the keys of the statement.

        Returns:
            The number of releases that the ledger has had since.

        Raises:
            ValueError: in one line, at the first key that differs.
        """
        with self._whole():
            since = 0
            head = LedgerHead(self["ledger"]["rows"], self["ledger"]["digest"])
            if ledger is None:
                book = self.book
                rows, least = head.rows, len(book.digests)
                require(type(rows) is int and rows >= least, f"{least} rows or more", rows=rows)
            else:
                current = read_ledger(ledger)
                _require_follows(current, head)
                book = read_ledger(ledger, rows=head.rows)
                since = len(current.entries) - len(book.entries)
            require_same(_content(book, head, self["release"]), self.content)
            if released is not None:
                expected, actual = self["sha256"], sha256(released)
                require(
                    actual == expected,
                    f"the file of release {self['release']}, of sha256 {expected}",
                    file=str(released),
                )
            if facts is not None:
                require_same(facts, {name: self.content.get(name) for name in facts})
            return since

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Raise ``ValueError`` in one line where the statement lacks a part or has another type."""
        try:
            yield
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"Expected a whole {KIND} statement, got: {error!r}") from None

    def today(self, book: LedgerSnapshot) -> Statement:
        """Return the same statement on all releases that its ledger holds by now.

        Raises:
            ValueError: if the ledger lacks rows that it held when the statement was made.
        """
        _require_follows(book, LedgerHead(self["ledger"]["rows"], self["ledger"]["digest"]))
        return Statement.of(book, self["release"])

    @property
    def text(self) -> str:
        """The statement as text, with everything that is needed to compute its figures by hand.

        Raises ``ValueError`` in one line if parts of the statement are missing or malformed.
        """
        with self._whole():
            words = {"repr": repr, "EXCESS_LIMIT": EXCESS_LIMIT, "LOSS_LIMIT": LOSS_LIMIT}
            derived = _arithmetic(self.content, self.book)
            return _worded(self.content, whole=True, call=_call, **words, **derived)

    @property
    def guarantee(self) -> str:
        """The first lines of `text`: epsilons, their neighbors and their conditions.

        Raises ``ValueError`` as `text` does.
        """
        with self._whole():
            return _worded(self.content, whole=False).removesuffix("\n")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, as `sha256sum` prints it."""
    require(Path(path).is_file(), "the released file", missing=str(path))
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_same(computed: Any, stated: Any, place: str = "") -> None:
    """Raise ``ValueError`` unless plain ``stated`` equals ``computed`` but for rounding."""
    name = place.rpartition(".")[2] or "statement"
    if isinstance(computed, Mapping):
        require(
            isinstance(stated, Mapping), f"{place or 'a statement'} as an object", **{name: stated}
        )
        unknown, missing = sorted(set(stated) - set(computed)), sorted(set(computed) - set(stated))
        require(not unknown, f"only known keys{' in ' + place if place else ''}", unknown=unknown)
        require(not missing, f"all keys{' in ' + place if place else ''}", missing=missing)
        # a wrong epsilon tells most
        for key in sorted(computed, key=lambda key: key != "epsilon"):
            require_same(computed[key], stated[key], f"{place}.{key}".strip("."))
        return
    if isinstance(computed, list | tuple):
        require(
            isinstance(stated, list | tuple) and len(stated) == len(computed),
            f"{place} of {len(computed)}",
            **{name: stated},
        )
        for number, (value, other) in enumerate(zip(computed, stated, strict=True)):
            require_same(value, other, f"{place}[{number}]")
        return
    if (
        isinstance(computed, float)
        and isinstance(stated, float | int)
        and not isinstance(stated, bool)
    ):
        same = math.isclose(computed, stated, rel_tol=1e-9)
    else:
        same = type(computed) is type(stated) and computed == stated
    require(same, f"{place}={computed}, as it follows from the release", **{name: stated})


def _content(book: LedgerSnapshot, head: LedgerHead, release: Any) -> dict[str, Any]:
    """Return the statement on ``release`` of a ledger that ended at ``head``, in plain JSON types.

    The wording of its sentences, ``neighbors`` and ``missing``, is a part of `FORMAT`.
    """
    require(
        type(release) is int and 1 <= release <= len(book.entries),
        f"a release among the {len(book.entries)} of the ledger",
        release=release,
    )
    entry = book.entries[release - 1]
    published = dict(entry.published or {})
    kind, ledger = published.pop("kind", None), published.pop("ledger", None)
    require(
        kind == KIND,
        f"release {release} settled, with its published facts",
        published=entry.published,
    )
    delta, teachers, relations = (
        float(published["delta"]),
        book.max_teachers_per_unit,
        list(NeighboringRelation),
    )
    published["max_teachers_per_unit"] = teachers
    once, reserved = (
        for_group_size([(entry.events, entry.count)], teachers),
        merged(book.reserved()),
    )
    totals = {relation: book.total_for(entry.privacy_unit, relation) for relation in relations}
    # the word for the unit of imported votes may have been said later; rows keep theirs
    alone = published.get("unit", "user") if len(book.entries) == 1 else None
    words = {relation: total and (alone or total[0].unit) for relation, total in totals.items()}
    outside: dict[str, Any] = {}
    if to_world(reserved) != reserved:
        outside["world"] = {
            relation.value: _figures(
                None if total is None else to_world(total[1].reserved()), relation, delta
            )
            for relation, total in totals.items()
        }
    return {
        "$schema": SCHEMA,
        "format": FORMAT,
        "kind": kind,
        "private": ledger != AUDIT and not any(entry.seeded for entry in book.entries),
        "release": entry.release,
        "guarantees": {
            relation.value: _guarantee(book, total, relation, delta)
            | {
                "unit": words[relation],
                "neighbors": describe_neighbors(published, total, relation, words[relation]),
                "missing": describe_missing_total(book, entry.privacy_unit, relation),
            }
            for relation, total in totals.items()
        },
        "this_release": {relation.value: _figures(once, relation, delta) for relation in relations},
        **outside,
        "costs": {
            relation.value: _figures(None if total is None else total[1].charges(), relation, delta)
            for relation, total in totals.items()
        },
        "reach": [
            {"teachers": m}
            | {
                relation.value: _figures(
                    None if total is None else total[1].reserved(m),
                    relation,
                    delta,
                    in_order=m == teachers,
                )["epsilon"]
                for relation, total in totals.items()
            }
            for m in sorted({1, teachers})
        ],
        "budget": None if book.budget is None else book.budget.to_dict(),
        "budget_unit": None if book.budget_unit is None else book.budget_unit.to_dict(),
        "filter": None if book.filter is None else book.filter.to_dict(),
        "declared_after": book.declared_after,
        "num_queries": entry.count,
        **published,
        "ledger": {**head._asdict(), "counts": ledger},
        **_listing(book.entries, release),
    }


def _listing(entries: Sequence[LedgerEntry], stated: int) -> dict[str, Any]:
    """Return the releases of a statement; of very many the last ones, and all by kind in order."""
    if len(entries) <= MOST_IN_ORDER:
        return {"releases": [entry.to_dict() for entry in entries]}
    numbers: dict[tuple[Any, ...], int] = {}
    kinds: dict[str, int] = {}
    order: list[list[int]] = []
    for entry in entries:
        # mostly one object for equal ones
        parts = id(entry.events), id(entry.privacy_unit), id(entry.realised), entry.description
        key = *parts, entry.count, entry.settled, entry.seeded, entry.max_teachers_per_unit
        if key not in numbers:
            kind = {name: part for name, part in entry.to_dict().items() if name not in _OF_ONE}
            numbers[key] = kinds.setdefault(name_of(kind), len(kinds))
        if order and order[-1][0] == numbers[key]:
            order[-1][1] += 1
        else:
            order.append([numbers[key], 1])
    listed = {stated - 1, *range(len(entries) - _LAST, len(entries))}
    return {
        "releases": [entries[number].to_dict() for number in sorted(listed)],
        "kinds": [*map(json.loads, kinds)],
        "order": " ".join(f"{kind}x{times}" for kind, times in order),
    }


def _listed(content: Mapping[str, Any]) -> LedgerSnapshot:
    """Return the releases and the budget that a statement lists, as a ledger would hold them.

    Raises ``ValueError`` if no ledger could.
    """
    history, listed = History(), {release["release"]: release for release in content["releases"]}
    kinds = content.get("kinds", content["releases"])
    order = [run.split("x") for run in content.get("order", "").split()]
    order = order or [[number, 1] for number in range(len(kinds))]
    total = sum(abs(int(times)) for _, times in order)
    require(total <= _MOST_RELEASES, f"at most {_MOST_RELEASES} releases", releases=total)
    every = (kinds[int(kind)] for kind, times in order for _ in range(int(times)))
    for number, kind in enumerate(every):
        release = listed.get(number + 1) or dict.fromkeys(_OF_ONE) | {"at": "", "run": "", **kind}
        if content["budget"] is not None and number == content["declared_after"]:
            terms = {"budget": content["budget"], "filter": content["filter"]}
            unit = {"privacy_unit": content["budget_unit"]}
            history.fold({"kind": "budget", "at": "", **terms, **unit})
        reserved = {name: release[name] for name in ("at", *RESERVED)}
        history.fold({"kind": "reserve", **reserved, "delta": None, "token": None})
        if release["settled"]:
            settled = {name: release[name] for name in ("realised", "published")}
            history.fold({"kind": "settle", "at": "", "release": number + 1, **settled})
    return history.snapshot()


def _require_follows(book: LedgerSnapshot, head: LedgerHead) -> None:
    require(
        book.follows(head),
        "a ledger with all rows that it held when the statement was made (it may be an older copy)",
        **head._asdict(),
    )


def _figures(
    charges: Sequence[Charge] | None,
    relation: NeighboringRelation,
    delta: float,
    *,
    in_order: bool = True,
) -> dict[str, Any]:
    """Return the epsilon of ``charges``, and the figures of its proof; no epsilon without them."""
    if charges is None:
        return Guarantee(epsilon=math.inf, delta=delta, delta0=0.0).to_dict()
    return account(charges, relation, in_order=in_order).guarantee(delta=delta).to_dict()


def _guarantee(
    book: LedgerSnapshot,
    total: Total | None,
    relation: NeighboringRelation,
    delta: float,
) -> dict[str, Any]:
    """Return the guarantee fixed beforehand under ``relation``, by a budget or a reservation."""
    if total is None:
        return _figures(None, relation, delta) | {"fixed_by": "nothing"}
    unit, priced = total
    budget, bounds = book.budget, book.filter
    if (
        budget is not None
        and bounds is not None
        and budget.neighboring_relation is relation
        and book.budget_unit is not None
        and (len(book.entries) == 1 or book.budget_unit.held_by(unit, relation) == 1)
    ):
        later = f" declared after release {book.declared_after}" if book.declared_after else ""
        return {
            "epsilon": budget.max_epsilon,
            "delta": budget.delta,
            "delta0": bounds.max_delta0,
            "fixed_by": f"budget{later}",
        }
    return _figures(priced.reserved(), relation, delta) | {"fixed_by": "reservation"}


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


def _neighbors(relation: str, published: Mapping[str, Any]) -> str:
    teachers, unit = published["max_teachers_per_unit"], published["unit"]
    if relation == NeighboringRelation.ADD_REMOVE_TEACHER:
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


def describe_missing_total(
    book: LedgerSnapshot, unit: PrivacyUnit, relation: NeighboringRelation
) -> str | None:
    """Return a sentence on why there is no total for a unit. None if there is one."""
    if book.for_unit(unit, relation) is not None:
        return None
    reasons: dict[str, list[int]] = {}
    alone = {
        whose: reasons.setdefault(whose.why_alone(unit, relation), [])
        for whose in book.units
        if whose.held_by(unit, relation) is None
    }
    for entry in book.entries:
        if entry.privacy_unit in alone:
            alone[entry.privacy_unit].append(entry.release)
    which = "; ".join(
        f"{'release' if len(numbers) == 1 else 'releases'} {_some(numbers)}"
        f" {'is' if len(numbers) == 1 else 'are'} {reason}"
        for reason, numbers in reasons.items()
    )
    return (
        f"There is no total for {unit.describe(relation)} under {relation.value.upper()}: {which}."
    )


def _some(numbers: Sequence[int]) -> str:
    """Return numbers of releases; of very many the first ones, and how many there are."""
    more = len(numbers) - _MOST_SHOWN
    shown = ", ".join(map(str, numbers[:_MOST_SHOWN]))
    return f"{shown} and {more} more" if more > 0 else shown


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
    """Return one part of a statement by relation: one with a total first, and its own.

    Records that vote for themselves are no teachers, and have no relation of these.
    """
    stated, own = statement["guarantees"], statement["neighboring_relation"]
    shown = {own} if statement["num_teachers"] is None else {*statement[part]}
    return sorted(
        (item for item in statement[part].items() if item[0] in shown),
        key=lambda item: (stated[item[0]]["unit"] is None, item[0] != own),
    )


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


def _worded(content: Mapping[str, Any], **more: Any) -> str:
    return rendered(
        Path(__file__).with_suffix(".txt"),
        s=content,
        by_relation=by_relation,
        ledger_words=ledger_words,
        neighbors=_neighbors,
        keeping=describe_keeping,
        epsilon=format_epsilon,
        exact=format_exact,
        explained=explain_epsilon,
        AUDIT=AUDIT,
        AUDITED=AUDITED,
        WORLD=WORLD,
        FIXED_BEFOREHAND=FIXED_BEFOREHAND,
        **more,
    )


def _arithmetic(content: Mapping[str, Any], book: LedgerSnapshot) -> dict[str, Any]:
    """Return what the template says of the figures under the statement's own relation."""
    relation = NeighboringRelation(content["neighboring_relation"])
    entry, bounds = book.entries[content["release"] - 1], None
    total = book.total_for(entry.privacy_unit, relation)
    if total is None:
        part, title = "this_release", "What this release reserved"
        charges = for_group_size([(entry.events, entry.count)], book.max_teachers_per_unit)
    elif content["guarantees"][relation.value]["fixed_by"] == "reservation":
        part, title, charges = "guarantees", "What was reserved", total[1].reserved()
    else:
        part, title, charges = "costs", "What was spent", total[1].charges()
        bounds = book.filter
    figures = content[part][relation.value]
    order, width = np.array([figures.get("order", 2.0)]), figures.get("width", WIDTHS[0])
    charges = merged(charges) if len(charges) > MOST_IN_ORDER else charges
    events = [part for events, count in charges for part in leaves(events[relation], count)]
    if len(events) > _MOST_SHOWN:  # equal ones of different releases as one
        sums: Counter[Event] = Counter()
        for leaf, times in events:
            sums[leaf] += times
        events = [*sums.items()]
    at = int(np.searchsorted(WIDTHS, width))
    terms = [_term(leaf, times, leaf.cost(order), at) for leaf, times in events]
    return {
        "title": title,
        "figures": figures,
        "terms": terms,
        "most": _MOST_SHOWN,
        **_sums(book.entries),
        "weights": sum(term["times"] * term["weight"] for term in terms),
        "bits": sum(term["times"] * term["rounds"] for term in terms),
        "bounds": bounds,
        "spent": bounds and bounds.describe_spent(book.spent(relation, bounds.orders)),
    }


def _sums(entries: Sequence[LedgerEntry]) -> dict[str, int]:
    """Return the numbers of releases and queries of a ledger, and of queries of broken runs."""
    return {
        "num_releases": len(entries),
        "queries": sum(entry.count for entry in entries),
        "lost": sum(entry.count for entry in entries if not entry.settled),
    }


def _term(event: Event, times: int, cost: Cost, at: int) -> dict[str, Any]:
    """Return an event of a sum, with its prices by all proofs."""
    shown = (
        f"{name}={value!r}"
        for name, value in event.to_dict().items()
        if value is not None and name not in ("type", "neighboring_relation")
    )
    return {
        "times": times,
        "name": type(event).__name__,
        "shown": ", ".join(shown),
        "rdp": float(cost.rdp[0]),
        "mu_squared": cost.mu_squared,
        "weight": float(cost.narrow_weights[at]),
        "rounds": cost.rounds,
        "delta0": cost.delta0,
    }
