"""The state of a ledger, built from its rows: releases, a budget, and their check.

The ledger's file knows no content of rows; here they get their meaning. `History` takes one row
after the other. It refuses a row that is malformed, that does not follow from the rows before it,
or that the budget cannot pay, so that to read a ledger is to compute its figures again.

Each row names its **privacy unit**: for whom the release was priced. Epsilons of releases add up
only for one and the same change of the private data. A release that was priced for one record says
nothing about all records of a person, and one that was priced for one teacher nothing about the
teachers of another partition: a teacher that leaves takes its records out of the other release,
too. A total exists for a unit whose part in each release is known.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from pate._core.accounting.charges import (
    Budget,
    Charge,
    Events,
    PrivacyFilter,
    Totals,
    describe_remainder,
    filter_from_dict,
    for_group_size,
    make_filter,
    merged,
    name_of,
    on_orders,
    parse_events,
    plain_charges,
    plain_events,
    refuse,
    require_charged_count,
    require_filter_of_first,
    summed,
)
from pate._core.accounting.cost import DEFAULT_ORDERS, Cost, NeighboringRelation
from pate._core.files.reading import distinct_keys
from pate._core.validation import (
    FloatArray,
    given,
    require,
    require_count,
    require_given,
    require_in_open_unit_interval,
)

RESERVED = (
    *("run", "description", "events", "count", "max_teachers_per_unit", "privacy_unit"),
    "seeded",
)
"""What a release reserves, in a row of the ledger and in the list of a statement."""
_ROWS: Mapping[str, tuple[str, ...]] = {
    "budget": ("budget", "filter", "privacy_unit"),
    "home": ("path",),
    "reserve": (*RESERVED, "delta", "token"),
    "settle": ("release", "realised", "published"),
}
"""The kinds of rows, with what they hold beside their kind and their time."""
_TEXT = r'"([^"\\\x00-\x1f]*)"'
_RESERVED = re.compile(
    rf'{{"at": {_TEXT}, "kind": "reserve", "run": {_TEXT}, (.*), "token": "([0-9a-f]+)"}}'
)
_SETTLED = re.compile(
    rf'{{"at": {_TEXT}, "kind": "settle", "release": ([1-9][0-9]{{0,15}}), (.*"sha256": )'
    r'"([0-9a-f]{64})"(.*)}'
)
"""Rows as they are mostly written. If the third groups are equal, and the fifth, rows differ only
in numbers and texts that end where they end in both, so that they are read alike."""
_DECODER = json.JSONDecoder(object_pairs_hook=distinct_keys)
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError)


EACH = "each"
"""The partition of a release with a vote for every unit."""


@dataclass(frozen=True, kw_only=True)
class PrivacyUnit:
    """The unit that a release was priced for, and who its teachers were.

    >>> record = PrivacyUnit(unit="record")
    >>> person = PrivacyUnit(unit="group", grouping="2f", partition="7c")
    >>> person.held_by(record, NeighboringRelation.REPLACE_RECORD)
    1
    >>> record.held_by(person, NeighboringRelation.REPLACE_RECORD) is None
    True

    Args:
        unit: ``record``, ``group``, ``user``, or the word of imported votes, such as ``patient``.
        grouping: the public name of the groups of records, such as ``patient``, which the owner of
            the data declares. Releases by groups of one name add up: that each record was in one
            group in all of them is the owner's promise, and statements print it. None without
            groups.
        partition: a keyed digest of who the teachers were, or `EACH`. None if it is not known.
        max_teachers_per_group: the largest number of teachers that the records of one group reach,
            enforced before training, in a release that was priced for a record. None without a
            bound.

    Raises:
        ValueError: if a part is no text, or the bound comes without a grouping.
    """

    unit: str
    grouping: str | None = None
    partition: str | None = None
    max_teachers_per_group: int | None = None

    def __post_init__(self) -> None:
        texts = given(grouping=self.grouping, partition=self.partition)
        for name, text in {"unit": self.unit, **texts}.items():
            require(isinstance(text, str) and text, f"{name} as a text", **{name: text})
        if self.max_teachers_per_group is not None:
            require_count(1, max_teachers_per_group=self.max_teachers_per_group)
            require(self.grouping is not None, "a grouping with max_teachers_per_group")

    def to_dict(self) -> dict[str, Any]:
        """Return the parts that are known, in plain JSON types."""
        return given(**asdict(self))

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> PrivacyUnit:
        """Return the unit that `to_dict` described. Raises ``ValueError`` on other content."""
        unknown = sorted({*content} - {*PrivacyUnit.__dataclass_fields__})
        require(not unknown, "the parts of a privacy unit", unknown=unknown)
        return _made(*content.items())

    def held_by(self, other: PrivacyUnit, relation: NeighboringRelation) -> int | None:
        """Return how many units of this release one unit of another holds. None if unknown.

        Under ``REPLACE_RECORD`` a record is a part of its group, so that a release which protects
        groups protects it, too. A group holds as many records of a release as its bound says, if
        the groups are the same. Under ``ADD_REMOVE_TEACHER`` both must have the same teachers: a
        record that leaves *changes* the ballot of a teacher of many, which is a move of
        ``REPLACE_RECORD``.

        Args:
            other: the unit that is added, removed or altered.
            relation: the relation of its guarantee.
        """
        same = self.unit == other.unit and self.grouping == other.grouping
        if relation is NeighboringRelation.ADD_REMOVE_TEACHER:
            agree = self.partition is not None and self.partition == other.partition
            return 1 if agree and (same or self.partition != EACH) else None
        if other.unit == "record":
            return 1 if self.unit in ("record", "group") else None
        if other.unit != "group":
            return 1 if self.unit == other.unit else None
        if other.grouping is None or self.grouping != other.grouping:
            return None
        return 1 if self.unit == "group" else self.max_teachers_per_group

    def describe(self, relation: NeighboringRelation) -> str:
        """Return the unit in words, as it is protected under a relation."""
        if relation is NeighboringRelation.ADD_REMOVE_TEACHER and self.partition != EACH:
            return "one teacher"
        by = f" by `{self.grouping}`" if self.unit == "group" and self.grouping else ""
        return f"one {self.unit}{by}"

    def why_alone(self, other: PrivacyUnit, relation: NeighboringRelation) -> str:
        """Return the reason why this release says nothing about ``other``."""
        if relation is NeighboringRelation.ADD_REMOVE_TEACHER:
            return "of teachers not known to be the same"
        other_groups = ", by other groups" * (self.unit == other.unit)
        return f"priced for {self.describe(relation)}{other_groups}"


@lru_cache(maxsize=4096)  # few are distinct in a ledger
def _made(*parts: tuple[str, Any]) -> PrivacyUnit:
    return PrivacyUnit(**dict(parts))


RECORD = PrivacyUnit(unit="record")
"""A record with any teachers: enough under ``REPLACE_RECORD``."""


class LedgerHead(NamedTuple):
    """The end of a log: its number of rows, and the digest of the last, which covers all."""

    rows: int = 0
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One release: ``count`` queries, each at the cost of ``events`` under the two relations.

    Raises ``ValueError`` on values of other types.
    """

    release: int
    at: str
    run: str
    description: str
    events: Events
    count: int
    seeded: bool
    privacy_unit: PrivacyUnit
    """For whom it was priced."""
    max_teachers_per_unit: int
    """How many teachers one unit may reach, as it was declared for this release."""
    delta: float | None = None
    """The delta of its epsilon, if the reservation gave one."""
    token: str | None = None
    """Its owner finds the reservation again by this text. None without one."""
    settled: bool = False
    realised: tuple[Charge, ...] | None = None
    """The final charges, if they are less than the reservation. None if they are the same."""
    published: Mapping[str, Any] | None = None
    """The published facts in plain JSON types, for the statement; known once it is settled."""

    def __post_init__(self) -> None:
        require_charged_count(1, self.count)
        object.__setattr__(self, "count", int(self.count))
        require_count(1, max_teachers_per_unit=self.max_teachers_per_unit)
        for _, count in self.realised or ():
            require_charged_count(0, count)
        if self.delta is not None:
            require_in_open_unit_interval(delta=self.delta)
            object.__setattr__(self, "delta", float(self.delta))
        texts = {"run": self.run, "description": self.description, "at": self.at}
        for name, text in {**texts, **given(token=self.token)}.items():
            right = isinstance(text, str) and (text or name in texts)
            require(right, f"{name} as a text", **{name: text})
        unit = self.privacy_unit
        require(isinstance(unit, PrivacyUnit), "a PrivacyUnit", privacy_unit=unit)
        require(isinstance(self.seeded, bool), "seeded as true or false", seeded=self.seeded)
        facts, most = self.published, self.max_teachers_per_unit
        require(isinstance(facts, dict | None), "published facts as an object", published=facts)
        stated = (facts or {}).get("max_teachers_per_unit", most)
        require(stated == most, f"facts of max_teachers_per_unit={most}", published=stated)

    @property
    def charges(self) -> tuple[Charge, ...]:
        """The cost to a unit that reaches one teacher: the reservation, or the lower settlement."""
        return ((self.events, self.count),) if self.realised is None else self.realised

    def to_dict(self) -> dict[str, Any]:
        """Return what statements list of it, in plain JSON types."""
        names = ("release", "at", *RESERVED, "settled", "realised", "published")
        return {name: getattr(self, name) for name in names} | {
            "events": plain_events(self.events),
            "realised": None if self.realised is None else plain_charges(self.realised),
            "privacy_unit": self.privacy_unit.to_dict(),
        }

    def row(self) -> dict[str, Any]:
        """Return what the row that reserves it holds."""
        plain = self.to_dict() | {"delta": self.delta, "token": self.token}
        return {name: plain[name] for name in ("at", *_ROWS["reserve"])}

    @classmethod
    def from_row(cls, release: int, row: Mapping[str, Any]) -> Self:
        """Return the release with this number that a row reserves.

        Raises ``ValueError`` on other keys or types.
        """
        plain = {name: row[name] for name in ("at", *_ROWS["reserve"])}
        events = parse_events(name_of(plain["events"]))
        unit = PrivacyUnit.from_dict(plain["privacy_unit"])
        return cls(release=release, **plain | {"events": events, "privacy_unit": unit})

    def again(self, **changes: Any) -> LedgerEntry:
        """Return a release of equal parts but for some that need no check."""
        other = object.__new__(LedgerEntry)
        other.__dict__.update(self.__dict__, **changes)
        return other

    def for_group_size(self, units: int) -> LedgerEntry:
        """Return the release with the events that it has for so many of its units together."""
        if units == 1:
            return self
        ((events, _),) = for_group_size([(self.events, self.count)], units)
        paid = None if self.realised is None else tuple(for_group_size(self.realised, units))
        return self.again(events=events, realised=paid)


@dataclass(frozen=True)
class LedgerSnapshot:
    """The content of a ledger: its releases, and its budget and filter if a budget was declared."""

    entries: tuple[LedgerEntry, ...] = ()
    budget: Budget | None = None
    filter: PrivacyFilter | None = None
    home: Path | None = None
    """Where the file lay when a release was last prepared. None if it was never recorded."""
    declared_after: int = 0
    """How many releases there were when the budget was declared."""
    budget_unit: PrivacyUnit | None = None
    """For whom the budget was declared."""
    digests: tuple[str, ...] = field(default=(), repr=False)
    """The digest of each row. A release has one or two rows. A budget and each home have one."""

    @property
    def head(self) -> LedgerHead:
        """The number of rows of the ledger, and the digest of the last one."""
        return LedgerHead(len(self.digests), self.digests[-1] if self.digests else "")

    def follows(self, head: LedgerHead) -> bool:
        """Whether the ledger once ended at ``head``: it is that ledger, possibly with more rows."""
        rows, digest = head
        return rows == 0 or (0 < rows <= len(self.digests) and self.digests[rows - 1] == digest)

    def for_unit(self, unit: PrivacyUnit, relation: NeighboringRelation) -> LedgerSnapshot | None:
        """Return the ledger with the events that each release has for one ``unit``.

        None where a release says nothing about it, so that there is no total. The only release of a
        ledger needs no other to agree with.

        Args:
            unit: the unit that is added, removed or altered.
            relation: the relation of the total.
        """
        if len(self.entries) == 1 and self.entries[0].privacy_unit == unit:
            return self
        held = {whose: whose.held_by(unit, relation) for whose in self.units}
        if None in held.values():
            return None
        if {*held.values()} <= {1}:
            return self
        priced = (entry.for_group_size(held[entry.privacy_unit] or 1) for entry in self.entries)
        return replace(self, entries=tuple(priced))

    @cached_property
    def units(self) -> tuple[PrivacyUnit, ...]:
        """The units that releases were priced for, each once, in order."""
        units = {id(entry.privacy_unit): entry.privacy_unit for entry in self.entries}
        return tuple(dict.fromkeys(units.values()))

    def total_for(
        self, unit: PrivacyUnit, relation: NeighboringRelation
    ) -> tuple[PrivacyUnit, LedgerSnapshot] | None:
        """Return the ledger as `for_unit` does, with the unit. None if there is no total.

        Where there is none for a group there may be one for each of its records.
        """
        record = unit.unit == "group" and relation is NeighboringRelation.REPLACE_RECORD
        for whom in (unit, RECORD)[: 1 + record]:
            if (priced := self.for_unit(whom, relation)) is not None:
                return whom, priced
        return None

    def for_budget(self) -> LedgerSnapshot:
        """Return the ledger with the events that each release has for the unit of the budget.

        Raises ``ValueError`` if a release says nothing about that unit.
        """
        budget, whose = self.budget, self.budget_unit
        if (
            budget is None
            or whose is None
            or all(unit.held_by(whose, budget.neighboring_relation) == 1 for unit in self.units)
        ):
            return self
        return replace(self, entries=tuple(self.priced(entry) for entry in self.entries))

    def priced(self, entry: LedgerEntry) -> LedgerEntry:
        """Return a release as it is for the unit of the budget, as in `for_budget`."""
        if self.budget is None or self.budget_unit is None:
            return entry
        whose, relation = self.budget_unit, self.budget.neighboring_relation
        units = require_given(
            entry.privacy_unit.held_by(whose, relation),
            f"release {entry.release} priced for {whose.describe(relation)}, for whom the budget of"
            " the ledger holds",
            priced_for=entry.privacy_unit.describe(relation),
        )
        return entry.for_group_size(units)

    @cached_property
    def max_teachers_per_unit(self) -> int:
        """The number of teachers that a unit may reach in every release: the largest one declared.

        A release and the budget each declare a number. A ledger cannot tell whether two releases
        have the same units, so that a unit which reaches so many teachers of one release is covered
        in all others too.
        """
        budgeted = 1 if self.budget is None else self.budget.max_teachers_per_unit
        return max({budgeted, *(entry.max_teachers_per_unit for entry in self.entries)})

    def reserved(self, teachers: int | None = None) -> list[Charge]:
        """Return the reservations of all releases, oldest first: they were fixed before the noise.

        Args:
            teachers: the number of teachers that a unit reaches in every release. None for
                `max_teachers_per_unit`.
        """
        return for_group_size(
            [(entry.events, entry.count) for entry in self.entries],
            self.max_teachers_per_unit if teachers is None else teachers,
        )

    def charges(self, teachers: int | None = None) -> list[Charge]:
        """Return the final charges of all releases, oldest first, for a unit as in `reserved`."""
        return for_group_size(
            [charge for entry in self.entries for charge in entry.charges],
            self.max_teachers_per_unit if teachers is None else teachers,
        )

    def spent(self, relation: NeighboringRelation, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        """Return the total cost under ``relation`` on ``orders``, for the units of the budget."""
        reach = None if self.budget is None else self.budget.max_teachers_per_unit
        return summed(merged(self.for_budget().charges(reach)), relation, orders, 1)


_Alike = str | tuple[str, str, str]
"""The parts that rows which are read alike share: of a reservation, and with it of a settlement."""


class History:
    """The state of a ledger, built from its rows in order: releases, budget and sums."""

    def __init__(self) -> None:
        self.entries: list[LedgerEntry] = []
        self.terms = LedgerSnapshot()  # without releases: the budget, its filter, and the place
        self._digests: list[str] = []
        self._snapshot = LedgerSnapshot()
        self._settled_by: dict[int, int] = {}  # the row that settled each release
        self._totals = Totals(DEFAULT_ORDERS)
        self._orders = DEFAULT_ORDERS  # with those of the filter
        self._above = Cost.nothing(DEFAULT_ORDERS)  # all that was reserved under the budget
        self._alike: dict[_Alike, LedgerEntry] = {}  # the first release of rows that are read alike
        self._parts: list[str] = []  # of each release, the part of its row that others share

    def copied(self) -> History:
        """Return a state of its own, for further rows."""
        other = copy(self)
        other.entries, other._digests = [*self.entries], [*self._digests]
        other._alike, other._parts = {**self._alike}, [*self._parts]
        other._settled_by, other._totals = {**self._settled_by}, self._totals.copied()
        return other

    @property
    def head(self) -> LedgerHead:
        """Where the ledger ends: its number of rows and the digest of the last one."""
        return LedgerHead(len(self._digests), self._digests[-1] if self._digests else "")

    def snapshot(self) -> LedgerSnapshot:
        """Return an immutable copy of the releases and the budget."""
        if self._snapshot.head != self.head:
            entries, digests = tuple(self.entries), tuple(self._digests)
            self._snapshot = replace(self.terms, entries=entries, digests=digests)
        return self._snapshot

    def entry(self, release: int, where: object) -> LedgerEntry:
        """Return release number ``release``, from 1 on; errors name the ledger by ``where``."""
        require(
            isinstance(release, int | np.integer)
            and not isinstance(release, bool)
            and 1 <= release <= len(self.entries),
            f"a release among the {len(self.entries)} of {where}",
            release=release,
        )
        return self.entries[release - 1]

    def settled_at(self, release: int) -> LedgerHead:
        """Return where the ledger ended when ``release``, which is settled, was settled."""
        row = self._settled_by[release]
        return LedgerHead(row, self._digests[row - 1])

    def rows_for(self, entry: LedgerEntry, budget: Budget | None) -> list[dict[str, Any]]:
        """Return the rows that reserve ``entry``, the first one with the ledger's ``budget``.

        Raises ``ValueError`` if the ledger has another budget, or none can be made of this one.
        """
        current, rows = self.terms.budget, list[dict[str, Any]]()
        entry = replace(entry, release=len(self.entries) + 1)
        if current is None and budget is not None:
            relation, reach = budget.neighboring_relation, budget.max_teachers_per_unit
            terms = replace(self.terms, budget=budget, budget_unit=entry.privacy_unit)
            # of the first release even if more followed: the choice of a budget may rest on the
            # outputs of later ones
            first = terms.priced((*self.entries, entry)[0]).events[relation]
            once = first.for_group_size(reach).cost()
            require(
                np.isfinite(once.rdp).any() or math.isfinite(once.mu_squared),
                f"a first release of known cost for units that reach {reach} teachers",
            )
            current = budget
            rows.append(
                {
                    "kind": "budget",
                    "budget": budget.to_dict(),
                    "filter": make_filter(budget, once).to_dict(),
                    "privacy_unit": entry.privacy_unit.to_dict(),
                }
            )
        require(
            budget in (None, current),
            f"the budget of the ledger, {_describe(current)}",
            budget=_describe(budget),
        )
        delta = current.delta if entry.delta is None and current else entry.delta
        return [*rows, {"kind": "reserve"} | entry.row() | {"delta": delta}]

    def fold_rows(self, rows: Sequence[tuple[str, str]], path: Path) -> None:
        """Process the next rows of ``path``, texts with digests; ``ValueError`` if one is refused.

        Rows that are read alike are counted, and their sum is held against the budget. Only where
        it is beyond are they processed one by one.
        """
        counted = self.copied()
        if counted._fold_counted(rows, path):
            self.__dict__ = counted.__dict__
            return
        if self.terms.budget is not None:  # settlements took back a part of what is above
            self._above = self._totals.cost(self.terms.budget.neighboring_relation)
        for text, digest in rows:
            self.fold_row(text, digest, path)

    def _fold_counted(self, rows: Sequence[tuple[str, str]], path: Path) -> bool:
        due = Counter[_Alike]()
        for text, digest in rows:
            if self._fold_alike(text, due):
                self._digests.append(digest)
            elif self._is_paid(due):
                self.fold_row(text, digest, path)
            else:
                return False
        return self._is_paid(due)

    def _fold_alike(self, text: str, due: Counter[_Alike]) -> bool:
        """Process a row, except its cost, if one that is read alike was processed before."""
        if row := _RESERVED.fullmatch(text):
            at, run, part, token = row.groups()
            if (first := self._alike.get(part)) is None:
                return False
            number = len(self.entries) + 1
            self.entries.append(first.again(release=number, at=at, run=run, token=token))
            self._parts.append(part)
            due[part] += 1
            return True
        if not (row := _SETTLED.fullmatch(text)):
            return False
        number, sha256 = int(row[2]), row[4]
        if number > len(self.entries) or (entry := self.entries[number - 1]).settled:
            return False
        key = self._parts[number - 1], row[3], row[5]
        if (first := self._alike.get(key)) is None:
            return False
        published = {**(first.published or {}), "sha256": sha256}
        self.entries[number - 1] = entry.again(
            settled=True, realised=first.realised, published=published
        )
        self._settled_by[number] = len(self._digests) + 1
        if first.realised is not None:
            due[key] += 1
        return True

    def _is_paid(self, due: Counter[_Alike]) -> bool:
        """Add what is due, and return whether the budget certainly holds it."""
        budget, bounds = self.terms.budget, self.terms.filter
        for key in sorted(due, key=lambda key: isinstance(key, tuple)):
            first, number = self.terms.priced(self._alike[key]), due.pop(key)
            charges = [(events, count * number) for events, count in first.charges if count]
            if isinstance(key, tuple):
                charges.append((first.events, -first.count * number))
            elif budget is not None and bounds is not None:
                reach, relation = budget.max_teachers_per_unit, budget.neighboring_relation
                self._above += summed(charges, relation, bounds.orders, reach)
            self._totals.add(*charges)
        return bounds is None or bounds.admits(self._above * (1 + 1e-9))

    def fold_row(self, text: str, digest: str, path: Path) -> None:
        """Process the next row of ``path``, as text; ``ValueError`` if it is refused."""
        try:
            body, end = _DECODER.raw_decode(text)
            require(end == len(text), "one JSON object", remainder=text[end : end + 20])
            self.fold(body, digest)
        except _MALFORMED as error:
            row = len(self._digests) + 1
            raise ValueError(
                f"Expected an intact ledger at {path}, got row {row}: {error}"
            ) from None
        self._remember(text)

    def _remember(self, text: str) -> None:
        """Keep the release of a row that was processed, for further rows that are read alike."""
        if row := _RESERVED.fullmatch(text):
            self._parts[-1] = part = row[3]
            self._alike[part] = self.entries[-1]
        elif row := _SETTLED.fullmatch(text):
            entry, last = self.entries[int(row[2]) - 1], len(self._digests)
            facts = entry.published or {}
            first = self._settled_by[entry.release] == last
            if first and facts.get("sha256") == row[4] and text.count(row[4]) == 1:
                self._alike[self._parts[entry.release - 1], row[3], row[5]] = entry

    def fold(self, body: Mapping[str, Any], digest: str = "") -> None:
        """Process the next row. Raises, and changes nothing, if it is refused."""
        kind = body["kind"]
        require(kind in _ROWS, f"a row among {', '.join(_ROWS)}", kind=kind)
        expected = {"kind", "at", *_ROWS[kind]}
        require(body.keys() == expected, f"a row of {sorted(expected)}", keys=sorted(body))
        getattr(self, f"_fold_{kind}")(body)
        self._digests.append(digest)

    def _fold_home(self, body: Mapping[str, Any]) -> None:
        require(isinstance(body["path"], str), "the path of a ledger", path=body["path"])
        self.terms = replace(self.terms, home=Path(body["path"]))

    def _fold_budget(self, body: Mapping[str, Any]) -> None:
        require(self.terms.budget is None, "one budget")
        budget, bounds = Budget(**body["budget"]), filter_from_dict(body["filter"])
        bounds.require_follows(budget)
        relation, reach = budget.neighboring_relation, budget.max_teachers_per_unit
        most = max((entry.max_teachers_per_unit for entry in self.entries), default=1)
        require(
            reach >= most,
            f"a budget of max_teachers_per_unit >= {most}, as a release before it declared",
            max_teachers_per_unit=reach,
        )
        terms = replace(
            self.terms,
            budget=budget,
            filter=bounds,
            declared_after=len(self.entries),
            budget_unit=PrivacyUnit.from_dict(body["privacy_unit"]),
        )
        priced = replace(terms, entries=tuple(self.entries)).for_budget()
        if self.entries:
            # reserved, not settled: the final cost of a release depends on its noise
            reserved = priced.reserved(reach)
            require_filter_of_first(bounds, budget, reserved[0][0][relation].cost())
            before = summed(merged(reserved), relation, bounds.orders, 1)
            if not bounds.admits(before):
                refuse(budget, bounds, before, when="before this release")
        self.terms, self._totals = terms, Totals(bounds.orders, reach)
        for entry in priced.entries:
            self._totals.add(*entry.charges)
        self._orders = np.union1d(DEFAULT_ORDERS, bounds.orders)
        self._alike = {}  # which the budget has to hold
        self._above = self._totals.cost(relation)

    def _fold_reserve(self, body: Mapping[str, Any]) -> None:
        entry = LedgerEntry.from_row(len(self.entries) + 1, body)
        charge = self.terms.priced(entry).charges[0]
        budget, bounds, totals = self.terms.budget, self.terms.filter, self._totals
        if budget is not None and bounds is not None:
            reach, relation = budget.max_teachers_per_unit, budget.neighboring_relation
            require(
                entry.max_teachers_per_unit <= reach,
                f"max_teachers_per_unit <= {reach}, the units that the budget of the ledger holds"
                " for",
                max_teachers_per_unit=entry.max_teachers_per_unit,
            )
            # a sum that takes nothing back, beyond its roundings: mostly it is within the bounds
            above = self._above + summed([charge], relation, bounds.orders, reach)
            within = bounds.admits(above * (1 + 1e-9))
            total = above if within else totals.cost(relation, [charge])
            if not (within or bounds.admits(total)):
                query = charge[0][relation].for_group_size(reach)
                once, spent = on_orders(bounds.orders, query.cost), totals.cost(relation)
                left = describe_remainder(bounds, spent, once)
                refuse(budget, bounds, total, remainder=left)
            self._above = above
        totals.add(charge)
        self.entries.append(entry)
        self._parts.append("")

    def _fold_settle(self, body: Mapping[str, Any]) -> None:
        entry, realised = self.entry(body["release"], "the rows before"), body["realised"]
        charges = realised and tuple(
            (parse_events(name_of(paid["events"])), paid["count"]) for paid in realised
        )
        settled = replace(
            entry,
            settled=True,
            realised=None if charges is None else tuple(charges),
            published=body["published"],
        )
        if entry.settled:  # facts that are stated anew
            digest = (entry.published or {}).get("sha256")
            require(settled.realised == entry.realised, f"release {entry.release} settled once")
            require(
                settled.published is not None and digest in (None, settled.published.get("sha256")),
                f"the file of sha256 {digest} of release {entry.release}",
                sha256=(settled.published or {}).get("sha256"),
            )
        elif settled.realised is not None:
            ((reserved, count),) = self.terms.priced(entry).charges
            paid = [charge for charge in self.terms.priced(settled).charges if charge[1]]
            for relation in NeighboringRelation:
                most, total = (
                    summed(part, relation, self._orders, self._totals.teachers)
                    for part in ([(reserved, count)], paid)
                )
                require(
                    # a sum of many charges is rounded up by more than one of few
                    total.is_within(most * (1 + 2.0**-52 * len(paid))),
                    f"at most what release {entry.release} reserved under {relation.value}",
                )
            self._totals.add((reserved, -count), *paid)
        self.entries[entry.release - 1] = settled
        self._settled_by.setdefault(entry.release, len(self._digests) + 1)


def _describe(budget: Budget | None) -> str:
    return (
        "none"
        if budget is None
        else ", ".join(f"{name}={value}" for name, value in budget.to_dict().items())
    )
