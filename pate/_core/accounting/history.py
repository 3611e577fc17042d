"""The state of a ledger, built from its rows: releases, a budget, sums, and their check.

The ledger's file knows no content of rows; here they get their meaning. `History` takes one row
after the other, and refuses a malformed one. `verified` also computes their figures
again.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from pate._core.accounting.charges import (
    Budget,
    Charge,
    Events,
    Totals,
    cost_of_charges,
    for_group_size,
    name_for_group_size,
    name_of,
    on_orders,
    parse_events,
    plain_charges,
    plain_events,
    require_charged_count,
)
from pate._core.accounting.cost import DEFAULT_ORDERS, Cost, NeighboringRelation
from pate._core.accounting.filters import (
    PersonalEvent,
    PrivacyFilter,
    describe_remainder,
    filter_from_dict,
    make_filter,
    refuse,
    require_filter_of_first,
    require_kept,
)
from pate._core.accounting.privacy_unit import RECORD, UNKNOWN, PrivacyUnit
from pate._core.files.reading import distinct_keys
from pate._core.validation import (
    FloatArray,
    given,
    require,
    require_count,
    require_given,
    require_in_open_unit_interval,
)

# of a release, in a statement
_LISTED = (
    *("release", "at", "run", "description", "events"),
    *("count", "max_teachers_per_unit", "privacy_unit"),
    *("seeded", "settled", "realised", "published"),
)
_KINDS = ("budget", "home", "reserve", "settle", "state")
_DECODER = json.JSONDecoder(object_pairs_hook=distinct_keys)


class LedgerHead(NamedTuple):
    """The end of a log: its number of rows, and the digest of the last, which covers all."""

    rows: int = 0
    digest: str = ""


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One release: ``count`` queries, each at the cost of ``events`` under the two relations."""

    release: int
    at: str
    run: str
    description: str
    events: Events
    count: int
    seeded: bool
    settled: bool
    realised: tuple[Charge, ...] | None = None
    """The final charges, if they are less than the reservation. None if they are the same."""
    delta: float | None = None
    """The delta of its epsilon, if the reservation gave one."""
    token: str | None = None
    """Its owner finds the reservation again by this text. None without one."""
    published: Mapping[str, Any] | None = None
    """The published facts in plain JSON types, for the statement; known once it is settled."""
    max_teachers_per_unit: int = 1
    """How many teachers one unit may reach, as it was declared for this release."""
    privacy_unit: PrivacyUnit = UNKNOWN
    """For whom it was priced; rows of earlier versions do not say it."""

    @property
    def charges(self) -> tuple[Charge, ...]:
        """The cost to a unit that reaches one teacher: the reservation, or the lower settlement."""
        return ((self.events, self.count),) if self.realised is None else self.realised

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {name: getattr(self, name) for name in _LISTED} | {
            "events": plain_events(self.events),
            "realised": None if self.realised is None else plain_charges(self.realised),
            "privacy_unit": self.privacy_unit.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Return the release that `to_dict` described.

        Raises ``ValueError`` on other keys or types.
        """
        fields = {name: content[name] for name in _LISTED}
        if fields["realised"] is not None:
            fields["realised"] = tuple(
                (parse_events(name_of(paid["events"])), paid["count"])
                for paid in fields["realised"]
            )
        fields["privacy_unit"] = PrivacyUnit.from_dict(fields["privacy_unit"])
        entry = cls(**fields | {"events": parse_events(name_of(fields["events"]))})
        require_charged_count(1, entry.count)
        require_count(1, max_teachers_per_unit=entry.max_teachers_per_unit)
        for _, count in entry.realised or ():
            require_charged_count(0, count)
        return entry

    def for_group_size(self, units: int) -> LedgerEntry:
        """Return the release with the events that it has for so many of its units together."""
        if units == 1:
            return self
        ((events, _),) = for_group_size([(self.events, self.count)], units)
        paid = None if self.realised is None else tuple(for_group_size(self.realised, units))
        return replace(self, events=events, realised=paid)


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
    budget_unit: PrivacyUnit = UNKNOWN
    """For whom the budget was declared; earlier versions did not say it."""
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
        held = [entry.privacy_unit.held_by(unit, relation) for entry in self.entries]
        if None in held:
            return None
        priced = (
            entry.for_group_size(units)
            for entry, units in zip(self.entries, held, strict=True)
            if units is not None
        )
        return replace(self, entries=tuple(priced))

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
        """Return the ledger as `for_unit` of the budget; ``ValueError`` if a release refuses."""
        if self.budget is None or self.budget_unit.unit is None:
            return self
        priced = self.for_unit(self.budget_unit, self.budget.neighboring_relation)
        return require_given(priced, "releases that are priced for the unit of the budget")

    @property
    def max_teachers_per_unit(self) -> int:
        """The number of teachers that a unit may reach in every release: the largest one declared.

        A release and the budget each declare a number. A ledger cannot tell whether two releases
        have the same units, so that a unit which reaches so many teachers of one release is covered
        in all others too.
        """
        budgeted = 1 if self.budget is None else self.budget.max_teachers_per_unit
        return max([budgeted, *(entry.max_teachers_per_unit for entry in self.entries)])

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
        return cost_of_charges(
            self.for_budget().charges(
                None if self.budget is None else self.budget.max_teachers_per_unit
            ),
            relation,
            orders,
        )


class History:
    """The state of a ledger, built from its rows in order: releases, budget and sums."""

    def __init__(self) -> None:
        self.entries: list[LedgerEntry] = []
        self.terms = LedgerSnapshot()  # without releases: the budget, its filter, and the place
        self._digests: list[str] = []
        self._names: list[str] = []  # of the events of each release, for the unit of the budget
        self._settled_by: dict[int, int] = {}  # the row that settled each release
        self._totals = Totals(DEFAULT_ORDERS)
        self._nothing = Totals(DEFAULT_ORDERS)  # on all orders, and on those of the filter
        self._personal = False  # whether a release names personal budgets

    @property
    def head(self) -> LedgerHead:
        """Where the ledger ends: its number of rows and the digest of the last one."""
        return LedgerHead(len(self._digests), self._digests[-1] if self._digests else "")

    def snapshot(self) -> LedgerSnapshot:
        """Return an immutable copy of the releases and the budget."""
        return replace(self.terms, entries=tuple(self.entries), digests=tuple(self._digests))

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

    def prepare(self, *events: Events) -> None:
        """Compute in advance the costs that the next row will need."""
        charges = [(name_of(plain_events(query)), 1) for query in events]
        for relation in NeighboringRelation:
            self._nothing.cost(relation, charges)
            self._totals.cost(relation, charges)

    # reading

    def fold_row(self, text: str, digest: str, path: Path) -> list[tuple[str, int]]:
        """Process the next row of ``path`` as `fold` does; ``ValueError`` if malformed."""
        try:
            return self.fold(text, digest)
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            ArithmeticError,
        ) as error:
            row = len(self._digests) + 1
            raise ValueError(
                f"Expected an intact ledger at {path}, got row {row}: {error}"
            ) from None

    def fold(self, text: str, digest: str) -> list[tuple[str, int]]:
        """Process the next row and return the changes to the sums.

        Raises, and changes nothing, if it is malformed.
        """
        body, end = _DECODER.raw_decode(text)
        require(end == len(text), "one JSON object", remainder=text[end : end + 20])
        kind = body["kind"]
        require(kind in _KINDS, f"a row among {', '.join(_KINDS)}", kind=kind)
        changes: list[tuple[str, int]] = getattr(self, f"_fold_{kind}")(body) or []
        for change in changes:
            self._totals.add(*change)
        self._digests.append(digest)
        return changes

    def _fold_budget(self, body: Mapping[str, Any]) -> None:
        require(self.terms.budget is None, "one budget")
        budget, bounds = Budget(**body["budget"]), filter_from_dict(body["filter"])
        unit = PrivacyUnit.from_dict(body.get("privacy_unit", {}))
        bounds.require_follows(budget)
        if (
            "max_teachers_per_unit" in body["budget"]
        ):  # earlier versions kept budgets for units that reach one
            self._require_covered(budget)
        self._require_one_unit(unit, budget.neighboring_relation)
        self.terms = replace(
            self.terms,
            budget=budget,
            filter=bounds,
            declared_after=len(self.entries),
            budget_unit=unit,
        )
        priced = self.snapshot().for_budget()
        self._names = [name_of(plain_events(entry.events)) for entry in priced.entries]
        self._totals = totals_of(priced, bounds.orders, budget.max_teachers_per_unit)
        orders = np.union1d(DEFAULT_ORDERS, bounds.orders)
        self._nothing = Totals(orders, budget.max_teachers_per_unit)

    def _fold_home(self, body: Mapping[str, Any]) -> None:
        require(isinstance(body["path"], str), "the path of a ledger", path=body["path"])
        self.terms = replace(self.terms, home=Path(body["path"]))

    def _fold_reserve(self, body: Mapping[str, Any]) -> list[tuple[str, int]]:
        require_charged_count(1, body["count"])
        delta, token, name = body.get("delta"), body.get("token"), name_of(body["events"])
        require(isinstance(delta, float | None), "a delta or null", delta=delta)
        require_in_open_unit_interval(**given(delta=delta))
        require(isinstance(token, str | None), "a token as a text", token=token)
        teachers = body.get("max_teachers_per_unit", 1)
        _require_reach(self.terms.budget, teachers)
        unit = PrivacyUnit.from_dict(body.get("privacy_unit", {}))
        entry = LedgerEntry(
            release=len(self.entries) + 1,
            **{field: body[field] for field in ("at", "run", "description", "count")},
            events=parse_events(name),
            seeded=bool(body["seeded"]),
            settled=False,
            delta=delta,
            token=token,
            max_teachers_per_unit=teachers,
            privacy_unit=unit,
        )
        name = name_for_group_size(name, self._held_by_budget(unit))
        self._require_kept(name, parse_events(name), entry.count, teachers)
        self._personal |= _names_budgets(name)
        self.entries.append(entry)
        self._names.append(name)
        return [(name, entry.count)]

    def _fold_settle(self, body: Mapping[str, Any]) -> list[tuple[str, int]]:
        entry, realised = self.entry(body["release"], "the rows before"), body["realised"]
        require(not entry.settled, "a release settled once", release=entry.release)
        charges, changes = None, []
        if realised is not None:
            paid = [(name_of(charge["events"]), charge["count"]) for charge in realised]
            for _, count in paid:
                require_charged_count(0, count)
            charges = tuple((parse_events(name), count) for name, count in paid)
            units = self._held_by_budget(entry.privacy_unit)
            paid = [(name_for_group_size(name, units), count) for name, count in paid if count]
            name = self._names[entry.release - 1]
            require(
                not _names_budgets(name),
                "a release of personal budgets settled for what it reserved",
            )
            self._require_within((name, entry.count), paid, entry.release)
            changes = [(name, -entry.count), *paid]
        published = body.get("published")
        require(
            isinstance(published, dict | None),
            "published facts as an object",
            published=published,
        )
        self.entries[entry.release - 1] = replace(
            entry,
            settled=True,
            realised=charges,
            published=published,
            max_teachers_per_unit=_reach(entry, published),
        )
        self._settled_by[entry.release] = len(self._digests) + 1
        return changes

    def _fold_state(self, body: Mapping[str, Any]) -> None:
        entry, published = self.entry(body["release"], "the rows before"), body["published"]
        require(
            entry.settled and isinstance(published, dict),
            "published facts as an object",
            published=published,
        )
        self.entries[entry.release - 1] = replace(
            entry, published=published, max_teachers_per_unit=_reach(entry, published)
        )

    def _require_within(
        self, reserved: tuple[str, int], paid: Sequence[tuple[str, int]], release: int
    ) -> None:
        for relation in NeighboringRelation:
            most, total = (self._nothing.cost(relation, part) for part in ([reserved], paid))
            require(
                # a sum of many charges is rounded up by more than one of few
                total.is_within(most * (1 + 2.0**-52 * len(paid))),
                f"at most what release {release} reserved under {relation.value}",
            )

    # the budget

    def _require_covered(self, budget: Budget) -> None:
        most = max((entry.max_teachers_per_unit for entry in self.entries), default=1)
        require(
            budget.max_teachers_per_unit >= most,
            f"a budget of max_teachers_per_unit >= {most}, as a release before it declared",
            max_teachers_per_unit=budget.max_teachers_per_unit,
        )

    def _require_one_unit(self, unit: PrivacyUnit, relation: NeighboringRelation) -> None:
        """Raise ``ValueError`` unless all releases so far are priced for the unit of a budget."""
        for entry in self.entries:
            require(
                unit.unit is None or entry.privacy_unit.held_by(unit, relation) is not None,
                f"a budget for the units of all releases of the ledger: release {entry.release} was"
                f" not priced for {unit.describe(relation)}",
            )

    def _held_by_budget(self, unit: PrivacyUnit) -> int:
        """Return how many units of a release one unit of the budget holds.

        Raises ``ValueError`` if it is not known.
        """
        budget, whose = self.terms.budget, self.terms.budget_unit
        if budget is None or whose.unit is None:
            return 1
        relation = budget.neighboring_relation
        return require_given(
            unit.held_by(whose, relation),
            f"a release priced for {whose.describe(relation)}, for whom the budget of"
            " the ledger holds",
            priced_for=unit.describe(relation),
        )

    def _require_kept(self, name: str, events: Events, count: int, teachers: int) -> None:
        if self._personal or _names_budgets(name):
            charges, reach = self._totals.charges(), self.snapshot().max_teachers_per_unit
            require_kept([*charges, (events, count)], max(teachers, reach))

    def reservation(
        self,
        events: Events,
        count: int,
        budget: Budget | None,
        *,
        delta: float | None,
        teachers: int,
        unit: PrivacyUnit,
    ) -> list[dict[str, Any]]:
        """Return the rows that reserve ``count`` times ``events`` for units of so many teachers.

        Raises ``ValueError`` if the budget cannot pay, or holds for other units or units of fewer
        teachers.
        """
        plain, rows = plain_events(events), []
        current, bounds, totals = self.terms.budget, self.terms.filter, self._totals
        name = name_for_group_size(name_of(plain), self._held_by_budget(unit))
        if current is None and budget is not None:
            relation = budget.neighboring_relation
            self._require_one_unit(unit, relation)
            declared = replace(self.snapshot(), budget=budget, budget_unit=unit).for_budget()
            # of the first release even if more followed: the choice of a budget may rest on the
            # outputs of later ones
            first = declared.entries[0].events if self.entries else events
            reach = budget.max_teachers_per_unit
            self._require_covered(budget)
            require(
                teachers <= reach,
                f"max_teachers_per_unit <= {reach}, as the budget has",
                max_teachers_per_unit=teachers,
            )
            once = first[relation].for_group_size(reach).cost()
            require(
                np.isfinite(once.rdp).any() or math.isfinite(once.mu_squared),
                f"a first release of known cost for units that reach {reach} teachers",
            )
            current, bounds = budget, make_filter(budget, once)
            totals = totals_of(declared, bounds.orders, reach)
            # reserved, not settled: the final cost of a release depends on its noise
            before = cost_of_charges(declared.reserved(reach), relation, bounds.orders)
            if not bounds.admits(before):
                refuse(current, bounds, before, when="before this release")
            rows.append(
                {
                    "kind": "budget",
                    "budget": current.to_dict(),
                    "filter": bounds.to_dict(),
                    "privacy_unit": unit.to_dict(),
                }
            )
        require(
            budget in (None, current),
            f"the budget of the ledger, {_describe(current)}",
            budget=_describe(budget),
        )
        _require_reach(current, teachers)
        if current is not None and bounds is not None:
            relation = current.neighboring_relation
            total = totals.cost(relation, [(name, count)])
            if not bounds.admits(total):
                spent = totals.cost(relation)
                query = parse_events(name)[relation].for_group_size(totals.teachers)
                once = on_orders(bounds.orders, query.cost)
                left = describe_remainder(bounds, spent, once, count)
                refuse(current, bounds, total, remainder=left)
        reach = current.max_teachers_per_unit if current else teachers
        self._require_kept(name, parse_events(name), count, reach)
        return [
            *rows,
            {
                "kind": "reserve",
                "events": plain,
                "count": count,
                "delta": current.delta if delta is None and current else delta,
                "max_teachers_per_unit": teachers,
                "privacy_unit": unit.to_dict(),
            },
        ]


def totals_of(book: LedgerSnapshot, orders: FloatArray, teachers: int) -> Totals:
    """Return the sum of all charges of a ledger, for units that reach ``teachers``."""
    totals = Totals(orders, teachers)
    for entry in book.entries:
        for events, count in entry.charges:
            if count:
                totals.add(name_of(plain_events(events)), count)
    return totals


def _require_reach(budget: Budget | None, teachers: int) -> None:
    """Raise ``ValueError`` if a unit reaches more teachers than one of a budget does."""
    require_count(1, max_teachers_per_unit=teachers)
    most = teachers if budget is None else budget.max_teachers_per_unit
    require(
        teachers <= most,
        f"max_teachers_per_unit <= {most}, the units that the budget of the ledger holds for",
        max_teachers_per_unit=teachers,
    )


def _names_budgets(events: str) -> bool:
    return f'"{PersonalEvent.__name__}"' in events


def _reach(entry: LedgerEntry, published: Mapping[str, Any] | None) -> int:
    """Return the group size of a release; in version 1 only its published facts declare it."""
    stated = 1 if published is None else published.get("max_teachers_per_unit", 1)
    require_count(1, max_teachers_per_unit=stated)
    return max(entry.max_teachers_per_unit, int(stated))


def _describe(budget: Budget | None) -> str:
    return (
        "none"
        if budget is None
        else ", ".join(f"{name}={value}" for name, value in budget.to_dict().items())
    )


def verified(rows: Iterable[tuple[str, str]], path: Path) -> History:
    """Return the state of a ledger after computing the figures in all of its rows again.

    Raises ``ValueError`` if a row does not follow from the events.
    """
    history, declared = History(), None
    later: list[tuple[int, str, int]] = []  # the changes by each row after the budget
    for text, digest in rows:
        changes = history.fold_row(text, digest, path)
        if declared is not None:
            later += [(history.head.rows, *change) for change in changes]
        elif history.terms.budget is not None:
            declared = history.snapshot()
    if declared is not None:
        _require_admitted(declared, later, path)
    return history


def _require_admitted(
    declared: LedgerSnapshot, later: Sequence[tuple[int, str, int]], path: Path
) -> None:
    """Raise ``ValueError`` unless the budget of a ledger admits the sum after each row from it on.

    Args:
        declared: the ledger as the budget was declared.
        later: by later row: its number, and the events whose count it changes, by how much.
        path: the file.
    """
    budget, bounds, priced = declared.budget, declared.filter, declared.for_budget()
    assert budget is not None and bounds is not None
    relation, reach = budget.neighboring_relation, budget.max_teachers_per_unit
    reserved, totals = priced.reserved(reach), totals_of(priced, bounds.orders, reach)

    def require_admitted(total: Cost, row: int) -> None:
        if not bounds.admits(total):
            try:
                refuse(budget, bounds, total)
            except ValueError as error:
                raise ValueError(
                    f"Expected row {row} of {path} to be within the budget. {error}"
                ) from None

    if reserved:
        require_filter_of_first(bounds, budget, reserved[0][0][relation].cost())
    require_admitted(cost_of_charges(reserved, relation, bounds.orders), declared.head.rows)
    added = Counter[str]()
    for _, events, count in later:
        added[events] += max(count, 0)
    # bounds that admit the sum of all additions admit each sum on the way to it
    if bounds.admits(totals.cost(relation, (+added).items())):
        return
    for row, events, count in later:
        totals.add(events, count)
        if count > 0:
            require_admitted(totals.cost(relation), row)
