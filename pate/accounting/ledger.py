"""The ledger: a SQLite file that lists every release made from one private data set.

A release is reserved before its noise is drawn and settled once its labels are on disk. A reservation that was never
settled counts in full: a crash can waste budget, never hide it. The file is a log: rows are added, never changed, and
each carries a digest of itself and all rows before it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pate.accounting import log
from pate.accounting.accountant import conversion_overhead, remaining_delta
from pate.accounting.budget import Budget, PrivacyFilter, after, filter_from_dict, make_filter, refuse
from pate.accounting.charges import (
    Charge,
    Events,
    account,
    charged,
    expect_charge,
    expect_events,
    name_of,
    parse_events,
    plain_charges,
    plain_events,
)
from pate.accounting.curves import DEFAULT_ORDERS, Cost, FloatArray, cost
from pate.accounting.log import Head
from pate.accounting.relation import NeighboringRelation
from pate.accounting.search import largest_count_where
from pate.accounting.totals import Totals, as_cost, charge_values
from pate.validation import expect, expect_open_unit

__all__ = ["Book", "Charge", "Entry", "Events", "Head", "Ledger", "account", "read_ledger", "verify_ledger"]

_WITHIN = 1 + 1e-12  # sums of the same costs in another order differ by less


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One release: ``count`` queries of the event that each cost, under either relation."""

    release: int
    at: str
    run: str
    description: str
    events: Events
    count: int
    seeded: bool
    settled: bool
    realised: tuple[Charge, ...] | None = None
    """What was paid in the end, where that is less than what was reserved; None where it is the same."""
    stated: Mapping[str, Any] | None = None
    """``delta`` and the epsilon of each relation that this and all earlier releases came to when it was reserved."""

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What the release costs: what was reserved, until it is settled for less."""
        return ((self.events, self.count),) if self.realised is None else self.realised

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "release": self.release,
            "at": self.at,
            "run": self.run,
            "description": self.description,
            "events": plain_events(self.events),
            "count": self.count,
            "seeded": self.seeded,
            "settled": self.settled,
            "realised": None if self.realised is None else plain_charges(self.realised),
        }


@dataclass(frozen=True)
class Book:
    """What a ledger says: its releases, and the budget with its filter where one was declared."""

    entries: tuple[Entry, ...] = ()
    budget: Budget | None = None
    filter: PrivacyFilter | None = None
    home: Path | None = None
    """Where the file was when a release was last prepared, where it was said."""
    digests: tuple[str, ...] = field(default=(), repr=False)
    """Of each row; a release has one row or two, a budget and each home have one."""

    @property
    def head(self) -> Head:
        """How many rows the ledger had, and the digest of the last one."""
        return Head(len(self.digests), self.digests[-1] if self.digests else "")

    def follows(self, head: Head) -> bool:
        """Whether the ledger is the one that ended with ``head`` once: that one, or one with more rows after them."""
        rows, digest = head
        return rows == 0 or (0 < rows <= len(self.digests) and self.digests[rows - 1] == digest)

    def charges(self) -> list[Charge]:
        """Return what all releases cost, oldest first."""
        return [charge for entry in self.entries for charge in entry.charges]

    def spent(self, relation: NeighboringRelation, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        """Return the sum of all releases under ``relation`` on ``orders``."""
        return charged(self.charges(), relation, orders)


class Ledger:
    """The releases from one private data set, in a SQLite file shared by all runs on it.

    Opening reads all rows; from then on only rows that were added since are read, and the one before them is checked
    to be still what it was. No lock is held while rows are read at opening.

    Args:
        path: the file, made where it is missing.
        home: the absolute path at which the file lies now, without links. The log keeps it, so that a copy is told from
            a file that was moved. None to look for neither.

    Raises:
        ValueError: if the file is there but is not an intact ledger, or cannot be written, or if it is a copy of one
            that is still where this one says it was: two copies would be two budgets.
    """

    def __init__(self, path: Path, *, home: Path | None = None) -> None:
        self.path = Path(path)
        self._alone = threading.Lock()
        with log.one_line(self.path):
            if not self.path.exists():
                log.make(self.path)
            log.expect_writable(self.path)
        self._history = _History()
        with log.opened(self.path, writable=True) as connection:
            log.expect_intact(connection, self.path)
            self._catch_up(connection)
        self._history.prepare()
        if home is not None and home != self._history.home:
            with self._transaction() as connection:
                self._expect_no_copy()
                self._append(connection, {"kind": "home", "at": _now(), "path": str(home)})

    @property
    def head(self) -> Head:
        """How many rows the ledger has, and the digest of the last one."""
        with self._reading() as history:
            return history.head

    def book(self) -> Book:
        """Return what the ledger says."""
        with self._reading() as history:
            return history.book()

    def entries(self) -> tuple[Entry, ...]:
        """Return all releases, oldest first."""
        with self._reading() as history:
            return tuple(history.entries)

    def reserve(
        self,
        events: Events,
        *,
        count: int,
        run: str,
        description: str,
        seeded: bool,
        budget: Budget | None = None,
        delta: float | None = None,
    ) -> int:
        """Write down ``count`` queries before their noise is drawn, and return the number of the release.

        Args:
            events: the cost of one query, under either relation.
            count: how many queries are answered at most, ``1..2**53``.
            run: who asks.
            description: what is released.
            seeded: whether the noise comes from a fixed seed, so that nothing is private.
            budget: what all releases may cost together. The first one given stays the budget of the ledger.
            delta: the delta at which the epsilon of all releases is written beside this one; the budget's if None.

        Raises:
            ValueError: and writes nothing, if the ledger's budget cannot pay, or is another one than ``budget``.
        """
        expect_charge(1, count)
        expect_events(events)
        expect(isinstance(run, str) and isinstance(description, str), "texts", run=run, description=description)
        if delta is not None:
            expect_open_unit(delta=delta)
        self._prepare(events)
        with self._transaction() as connection:
            bodies = self._history.reservation(events, int(count), budget, None if delta is None else float(delta))
            bodies[-1] |= {"run": run, "description": description, "seeded": bool(seeded)}
            for body in bodies:
                self._append(connection, {"kind": body["kind"], "at": _now()} | body)
            return len(self._history.entries)

    def settle(self, release: int, *, realised: Sequence[Charge] | None = None) -> None:
        """Write down that what ``release`` reserved was published; once, however often it is said.

        Args:
            release: its number.
            realised: what it cost in the end, as ``(events, count)``. None for what was reserved.

        Raises:
            ValueError: and writes nothing, if nothing was reserved under this number, if ``realised`` costs more than
                what was reserved at some order, or if it was settled for something else before.
        """
        listed = realised is None or isinstance(realised, list | tuple)  # what can be read but once would cost nothing
        expect(listed, "a list of charges or None", realised=realised)
        for charge in realised or ():
            expect(isinstance(charge, tuple | list) and len(charge) == 2, "charges of events and count", charge=charge)
            events, count = charge
            expect_events(events)
            expect_charge(0, count)
        charges = None if realised is None else tuple((events, int(count)) for events, count in realised)
        self._prepare(*(events for events, _ in charges or ()))
        with self._transaction() as connection:
            entry = self._history.entry(release, self.path)
            if entry.settled:
                same = entry.realised == charges
                expect(same, f"release {release} settled once", realised="another cost than before")
                return
            plain = None if charges is None else plain_charges(charges)
            self._append(connection, {"kind": "settle", "at": _now(), "release": entry.release, "realised": plain})

    def _prepare(self, *events: Events) -> None:
        # curves that take long are computed before others have to wait
        with self._alone:
            self._history.prepare(*events)

    @contextmanager
    def _reading(self) -> Iterator[_History]:
        with self._alone, log.opened(self.path, writable=False) as connection:
            self._catch_up(connection)
            yield self._history

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._alone:
            before = self._history.head
            try:
                # the lock is taken before the budget is read: two processes never both count on what is left
                with log.locked(self.path) as connection:
                    self._catch_up(connection)
                    before = self._history.head
                    yield connection
            except BaseException:
                if self._history.head != before:  # rows that are not in the file
                    self._history = _History()
                raise

    def _expect_no_copy(self) -> None:
        last = self._history.home
        if last is None or not last.is_file() or last.samefile(self.path):
            return
        with log.opened(last, writable=False) as other:
            # another ledger may have taken the place of one that was moved away
            first = next((digest for _, digest in log.rows_after(other, Head(), last)), None)
        copied = first is not None and self._history.book().follows(Head(1, first))
        requirement = f"one ledger for the same private data; --ledger={last} names the original"
        expect(not copied, requirement, copy=str(self.path))

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        for text, digest in log.rows_after(connection, self._history.head, self.path):
            self._history.fold_row(text, digest, self.path)

    def _append(self, connection: sqlite3.Connection, body: Mapping[str, Any]) -> None:
        text = json.dumps(body, allow_nan=False)
        # what no reader could read is refused here, before it is written
        head = self._history.head
        self._history.fold(text, log.chained(head.digest, text))
        log.append(connection, head, text)


def read_ledger(path: Path) -> Book:
    """Return what the ledger at ``path`` says, without the right to write it. Raises ``ValueError`` like `Ledger`."""
    path = Path(path)
    expect(path.is_file(), "a ledger", path=str(path))
    history = _History()
    with log.opened(path, writable=False) as connection:
        log.expect_intact(connection, path)
        for text, digest in log.rows_after(connection, history.head, path):
            history.fold_row(text, digest, path)
    return history.book()


def verify_ledger(path: Path) -> Book:
    """Return what the ledger at ``path`` says after everything in it was computed again.

    Besides what every reader checks (an intact file, the chain of digests, well-formed events), each epsilon that was
    written beside a release is computed again from the events, and all releases are put through the filter again.

    Raises:
        ValueError: at the first figure that does not follow from the events.
    """
    path = Path(path)
    expect(path.is_file(), "a ledger", path=str(path))
    verifier = _Verifier(path)
    with log.opened(path, writable=False) as connection:
        log.expect_final(connection, path)
        for text, digest in log.rows_after(connection, Head(), path):
            verifier.take(text, digest)
    verifier.check(verifier.history.filter)
    return verifier.history.book()


class _History:
    """The rows of a ledger, folded one after another into what they say and what it costs."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.budget: Budget | None = None
        self.filter: PrivacyFilter | None = None
        self.home: Path | None = None
        self._digests: list[str] = []
        self._names: list[str] = []  # of the events of each release
        self._totals = Totals(DEFAULT_ORDERS)

    @property
    def head(self) -> Head:
        return Head(len(self._digests), self._digests[-1] if self._digests else "")

    def book(self) -> Book:
        return Book(tuple(self.entries), self.budget, self.filter, self.home, tuple(self._digests))

    def entry(self, release: int, where: object) -> Entry:
        number = isinstance(release, int | np.integer) and not isinstance(release, bool)
        known = number and 1 <= release <= len(self.entries)
        expect(known, f"a release among the {len(self.entries)} of {where}", release=release)
        return self.entries[release - 1]

    def prepare(self, *events: Events) -> None:
        """Compute what the next row is going to need."""
        for each in events:
            charge_values(name_of(plain_events(each)), 1, self._totals.orders)
        self._totals.values()

    def reserved(self, orders: FloatArray) -> FloatArray:
        """Return what all releases reserved on ``orders`` ``[K]``, also where they were settled for less."""
        totals = Totals(orders)
        for name, entry in zip(self._names, self.entries, strict=True):
            totals.add(name, entry.count)
        return totals.values()

    # reading

    def fold_row(self, text: str, digest: str, path: Path) -> list[tuple[str, int]]:
        """Take in one more row of ``path``, and return what it changed. Raises ``ValueError`` in one line."""
        try:
            return self.fold(text, digest)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ArithmeticError) as error:
            row = len(self._digests) + 1
            raise ValueError(f"Expected an intact ledger at {path}, got row {row}: {error}") from None

    def fold(self, text: str, digest: str) -> list[tuple[str, int]]:
        """Take in one more row, and return what it changed. Raises, and changes nothing, if it is malformed."""
        body, end = _DECODER.raw_decode(text)
        expect(end == len(text), "one JSON object", found=text[end : end + 20])
        kind = body["kind"]
        expect(kind in _KINDS, f"a row among {', '.join(_KINDS)}", kind=kind)
        changes: list[tuple[str, int]] = []
        if kind == "budget":
            self._fold_budget(body)
        elif kind == "home":
            expect(isinstance(body["path"], str), "the path of a ledger", path=body["path"])
            self.home = Path(body["path"])
        elif kind == "reserve":
            changes = self._fold_reserve(body)
        else:
            changes = self._fold_settle(body)
        for change in changes:
            self._totals.add(*change)
        self._digests.append(digest)
        return changes

    def _fold_budget(self, body: Mapping[str, Any]) -> None:
        expect(self.budget is None, "one budget", kind="budget")
        budget, bounds = Budget(**body["budget"]), filter_from_dict(body["filter"])
        bounds.expect_follows(budget)
        self._totals = self._totals.on(_grid(bounds))
        self.budget, self.filter = budget, bounds

    def _fold_reserve(self, body: Mapping[str, Any]) -> list[tuple[str, int]]:
        expect_charge(1, body["count"])
        _expect_stated(body["stated"])
        name = name_of(body["events"])
        entry = Entry(
            release=len(self.entries) + 1,
            at=body["at"],
            run=body["run"],
            description=body["description"],
            events=parse_events(name),
            count=body["count"],
            seeded=bool(body["seeded"]),
            settled=False,
            stated=body["stated"],
        )
        self.entries.append(entry)
        self._names.append(name)
        return [(name, entry.count)]

    def _fold_settle(self, body: Mapping[str, Any]) -> list[tuple[str, int]]:
        entry, realised = self.entry(body["release"], "the rows before"), body["realised"]
        expect(not entry.settled, "a release settled once", release=entry.release)
        charges, changes = None, []
        if realised is not None:
            paid = [(name_of(each["events"]), each["count"]) for each in realised]
            for _, count in paid:
                expect_charge(0, count)
            charges = tuple((parse_events(name), count) for name, count in paid)
            reserved = (self._names[entry.release - 1], entry.count)
            self._expect_within(reserved, paid, entry.release)
            changes = [(reserved[0], -reserved[1]), *(each for each in paid if each[1])]
        self.entries[entry.release - 1] = _settled(entry, charges)
        return changes

    def _expect_within(self, reserved: tuple[str, int], paid: Sequence[tuple[str, int]], release: int) -> None:
        orders = self._totals.orders
        most = charge_values(*reserved, orders)
        total = np.sum([np.zeros(most.shape), *(charge_values(*each, orders) for each in paid)], axis=0)
        for relation, within in zip(NeighboringRelation, (total <= most * _WITHIN).all(axis=1), strict=True):
            expect(within, f"at most what release {release} reserved under {relation.value}", realised="more")

    # the budget

    def reservation(
        self, events: Events, count: int, budget: Budget | None, delta: float | None
    ) -> list[dict[str, Any]]:
        """Return the rows that reserve ``count`` times ``events``. Raises ``ValueError`` if that cannot be paid."""
        plain, rows = plain_events(events), []
        name, own, bounds, totals = name_of(plain), self.budget, self.filter, self._totals
        if own is None and budget is not None:
            relation = budget.neighboring_relation
            # what was settled for less before is known only since its noise was drawn
            before = _on_default(as_cost(self.reserved(DEFAULT_ORDERS), relation))
            own, bounds = budget, make_filter(budget, before, cost(events[relation]))
            totals = totals.on(_grid(bounds))
            rows.append({"kind": "budget", "budget": own.to_dict(), "filter": bounds.to_dict()})
        expect(budget in (None, own), f"the budget of the ledger, {_say(own)}", budget=_say(budget))
        values = totals.values_after(name, count)
        if own is not None and bounds is not None:
            relation = own.neighboring_relation
            if not bounds.admits(_on_filter(as_cost(values, relation), bounds)):
                spent, query = (
                    _on_filter(as_cost(totals.values(), relation), bounds),
                    cost(events[relation], bounds.orders),
                )
                left = largest_count_where(lambda n: bounds.admits(after(spent, query, n)))
                refuse(own, bounds, after(spent, query, count), left)
        at = own.delta if delta is None and own is not None else delta
        stated = None
        if at is not None:
            (epsilons,) = _epsilons(values[None], [at])
            stated = {"delta": at} | dict(zip(_NAMES, _finite(epsilons), strict=True))
        row: dict[str, Any] = {"kind": "reserve", "events": plain, "count": count, "stated": stated}
        rows.append(row)
        return rows


class _Verifier:
    """Computes again what the rows of a ledger say, in blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.history = _History()
        self._totals = Totals(DEFAULT_ORDERS)
        self._rows: list[int] = []
        self._releases: list[Entry] = []
        self._changes: list[tuple[str, int]] = []
        self._ends: list[int] = []  # of the changes by each release

    def take(self, text: str, digest: str) -> None:
        """Take in one more row. Raises ``ValueError`` where it, or one before it, does not follow."""
        releases, bounds = len(self.history.entries), self.history.filter
        self._changes += self.history.fold_row(text, digest, self.path)
        if len(self.history.entries) > releases:
            self._rows.append(self.history.head.rows)
            self._releases.append(self.history.entries[-1])
            self._ends.append(len(self._changes))
        declared = self.history.filter
        if declared is not None and bounds is None:
            self.check(None)
            self._expect_begun_within(declared)
            self._totals = self._totals.on(_grid(declared))
        elif len(self._changes) >= _BLOCK:
            self.check(declared)

    def _expect_begun_within(self, bounds: PrivacyFilter) -> None:
        """Raise ``ValueError`` unless ``bounds`` admit what was reserved before they were declared."""
        assert self.history.budget is not None
        reserved, row = self.history.reserved(_grid(bounds)), f"row {self.history.head.rows} of {self.path}"
        _expect_admitted(reserved[None], self.history.budget, bounds, [row])

    def check(self, bounds: PrivacyFilter | None) -> None:
        """Raise ``ValueError`` unless ``bounds`` admit all new sums, and what is stated beside them follows."""
        if self._changes:
            sums = self._totals.through(self._changes)
            if self._ends:
                after_each = sums[np.array(self._ends) - 1]
                rows = [f"row {row} of {self.path}" for row in self._rows]
                if self.history.budget is not None and bounds is not None:
                    _expect_admitted(after_each, self.history.budget, bounds, rows)
                _expect_followed(after_each, self._releases, rows)
        self._rows, self._releases, self._changes, self._ends = [], [], [], []


_NAMES = tuple(relation.value for relation in NeighboringRelation)
_STATED = {"delta", *_NAMES}
_KINDS = ("budget", "home", "reserve", "settle")
_BLOCK = 128  # changes verified at once
_DECODER = json.JSONDecoder()


def _grid(bounds: PrivacyFilter) -> FloatArray:
    """Return the orders on which sums are kept: `DEFAULT_ORDERS`, and behind them what a filter asks for besides."""
    known = np.isin(bounds.orders, DEFAULT_ORDERS).all()
    return DEFAULT_ORDERS if known else np.append(DEFAULT_ORDERS, bounds.orders)


def _on_default(total: Cost) -> Cost:
    return total._replace(rdp=total.rdp[: DEFAULT_ORDERS.size])


def _on_filter(total: Cost, bounds: PrivacyFilter) -> Cost:
    kept = _grid(bounds)
    at = np.searchsorted(DEFAULT_ORDERS, bounds.orders) if kept is DEFAULT_ORDERS else slice(DEFAULT_ORDERS.size, None)
    return total._replace(rdp=total.rdp[at])


def _expect_admitted(after_each: FloatArray, budget: Budget, bounds: PrivacyFilter, rows: Sequence[str]) -> None:
    """Raise ``ValueError`` unless ``bounds`` admit the sums after each release."""
    relation = budget.neighboring_relation
    # what admits the largest of all sums admits each
    if bounds.admits(_on_filter(as_cost(after_each.max(axis=0), relation), bounds)):
        return
    for values, row in zip(after_each, rows, strict=True):
        total = _on_filter(as_cost(values, relation), bounds)
        if not bounds.admits(total):
            try:
                refuse(budget, bounds, total, 0)
            except ValueError as error:
                raise ValueError(f"Expected {row} to be within the budget. {error}") from None


def _expect_followed(after_each: FloatArray, releases: Sequence[Entry], rows: Sequence[str]) -> None:
    """Raise ``ValueError`` unless the epsilons that each release states are those of the sums after it."""
    stated = [release.stated for release in releases]
    deltas = [0.5 if each is None else each["delta"] for each in stated]
    computed = _epsilons(after_each, deltas)
    found = np.array([[np.nan] * len(_NAMES) if each is None else _stated(each) for each in stated])
    with np.errstate(invalid="ignore"):
        # an epsilon next to 0 is a difference of larger numbers
        same = (found == computed) | (np.abs(found - computed) <= 1e-9 * computed + 1e-12) & np.isfinite(computed)
    same |= np.array([each is None for each in stated])[:, None]
    for i, j in np.argwhere(~same):
        name = _NAMES[j]
        expect(False, f"{name}={computed[i, j]} in {rows[i]}, computed from its events", **{name: found[i, j]})


def _expect_stated(stated: Mapping[str, Any] | None) -> None:
    if stated is not None:
        expect(stated.keys() == _STATED, "delta and two epsilons", stated=stated)
        kinds = {type(value) for value in stated.values()}
        expect(kinds <= {float, int, type(None)}, "epsilons as numbers or null", stated=stated)
        expect_open_unit(delta=stated["delta"])


def _stated(stated: Mapping[str, Any]) -> list[float]:
    return [float("inf") if stated[name] is None else float(stated[name]) for name in _NAMES]


def _epsilons(values: FloatArray, deltas: Sequence[float]) -> FloatArray:
    """Return epsilon of sums ``[N, 2, K + 2]``, whose curve begins with `DEFAULT_ORDERS`, at N ``deltas``."""
    log_survival = (0.0 - values[:, :, -2]).tolist()
    left = [[remaining_delta(delta, each) for each in row] for delta, row in zip(deltas, log_survival, strict=True)]
    rest = np.array(left).reshape(values.shape[:2])
    overhead = conversion_overhead(DEFAULT_ORDERS, np.where(rest > 0, rest, 0.5)[:, :, None])
    epsilons = (values[:, :, : DEFAULT_ORDERS.size] + overhead).min(axis=2)
    return np.where(rest > 0, np.maximum(epsilons, 0.0), np.inf)


def _finite(epsilons: FloatArray) -> list[float | None]:
    return [value if value < float("inf") else None for value in epsilons.tolist()]


def _settled(entry: Entry, charges: tuple[Charge, ...] | None) -> Entry:
    settled = object.__new__(Entry)  # `replace` takes five times as long, and a ledger has a hundred thousand
    vars(settled).update(vars(entry), settled=True, realised=charges)
    return settled


def _say(budget: Budget | None) -> str:
    return "none" if budget is None else ", ".join(f"{name}={value}" for name, value in budget.to_dict().items())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
