"""The ledger: a SQLite file that lists every release made from one private data set.

A release is reserved before its noise is drawn and settled once its labels are on disk. A reservation that was never
settled counts in full: a crash can waste budget, never hide it. The file is a log: rows are added, never changed, and
each carries a digest of itself and all rows before it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from pate.accounting.accountant import RDPAccountant
from pate.accounting.budget import Budget, PrivacyFilter, after, filter_from_dict, make_filter, refuse
from pate.accounting.curves import DEFAULT_ORDERS, Cost, FloatArray, cost, total_cost
from pate.accounting.events import Event, event_from_dict
from pate.accounting.relation import NeighboringRelation
from pate.accounting.search import largest_count_where
from pate.validation import expect, expect_count, expect_open_unit

Events = Mapping[NeighboringRelation, Event]
Charge = tuple[Events, int]
"""How often an event, given under either relation, is paid for."""

_APPLICATION, _VERSION = 0x70617465, 1  # "pate"
_FINAL = "CREATE TRIGGER log_{0} BEFORE {0} ON log BEGIN SELECT RAISE(ABORT, 'a ledger is final'); END"
_TABLE = "CREATE TABLE log (row INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, digest TEXT NOT NULL)"
_SCHEMA = (
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
    _TABLE,
    *(_FINAL.format(change) for change in ("UPDATE", "DELETE")),
)


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
            "events": _plain_events(self.events),
            "count": self.count,
            "seeded": self.seeded,
            "settled": self.settled,
            "realised": None if self.realised is None else _plain_charges(self.realised),
        }


@dataclass(frozen=True)
class Book:
    """What a ledger says: its releases, and the budget with its filter where one was declared."""

    entries: tuple[Entry, ...] = ()
    budget: Budget | None = None
    filter: PrivacyFilter | None = None
    digests: tuple[str, ...] = ()
    """That of each row."""

    @property
    def head(self) -> tuple[int, str]:
        """How many rows the log has, and the digest of the last one."""
        return len(self.digests), self.digests[-1] if self.digests else ""

    def follows(self, row: int, digest: str) -> bool:
        """Whether the log once ended with this row."""
        return 0 <= row <= len(self.digests) and (self.digests[row - 1] if row else "") == digest

    def charges(self) -> list[Charge]:
        """Return what all releases cost, oldest first."""
        return [charge for entry in self.entries for charge in entry.charges]

    def spent(self, relation: NeighboringRelation, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        """Return the sum of all releases under ``relation`` on ``orders``."""
        return _sum(self.charges(), relation, orders)


class Ledger:
    """The releases from one private data set, in a SQLite file shared by all runs on it.

    Args:
        path: the file, made where it is missing.

    Raises:
        ValueError: if the file is there but is not an intact ledger, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        with _one_line(self.path):
            if not self.path.exists():
                _make(self.path)
        with self._transaction() as connection:
            _expect_ledger(connection, self.path)
            _read(connection, self.path)

    def book(self) -> Book:
        """Return what the ledger says."""
        with _one_line(self.path), closing(_connect(self.path)) as connection:
            return _read(connection, self.path)

    def entries(self) -> tuple[Entry, ...]:
        """Return all releases, oldest first."""
        return self.book().entries

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
            count: how many queries are answered at most.
            run: who asks.
            description: what is released.
            seeded: whether the noise comes from a fixed seed, so that nothing is private.
            budget: what all releases may cost together. The first one given stays the budget of the ledger.
            delta: the delta at which the epsilon of all releases is written beside this one; the budget's if None.

        Raises:
            ValueError: and writes nothing, if the ledger's budget cannot pay, or is another one than ``budget``.
        """
        expect_count(1, count=count)
        _expect_events(events)
        if delta is not None:
            expect_open_unit(delta=delta)
        with self._transaction() as connection:
            book = _read(connection, self.path)
            if book.budget is None and budget is not None:
                book = _declare(connection, book, budget, events)
            expect(budget in (None, book.budget), f"the budget of the ledger, {_say(book.budget)}", budget=_say(budget))
            _expect_affordable(book, events, count)
            body = {
                "kind": "reserve",
                "at": _now(),
                "run": run,
                "description": description,
                "events": _plain_events(events),
                "count": int(count),
                "seeded": bool(seeded),
                "stated": _state(book, (events, count), delta),
            }
            _append(connection, body)
            return len(book.entries) + 1

    def settle(self, release: int, *, realised: Sequence[Charge] | None = None) -> None:
        """Write down that what ``release`` reserved was published; once, however often it is said.

        Args:
            release: its number.
            realised: what it cost in the end, as ``(events, count)``. None for what was reserved.

        Raises:
            ValueError: and writes nothing, if nothing was reserved under this number, if ``realised`` costs more than
                what was reserved at some order, or if it was settled for something else before.
        """
        charges = None if realised is None else tuple((events, int(count)) for events, count in realised)
        for events, count in charges or ():
            _expect_events(events)
            expect_count(0, count=count)
        with self._transaction() as connection:
            entries = _read(connection, self.path).entries
            expect(1 <= release <= len(entries), f"a release among the {len(entries)} of {self.path}", release=release)
            entry = entries[release - 1]
            if entry.settled:
                expect(
                    entry.realised == charges, f"release {release} settled once", realised="another cost than before"
                )
                return
            _expect_within(entry, charges)
            plain = None if charges is None else _plain_charges(charges)
            _append(connection, {"kind": "settle", "at": _now(), "release": int(release), "realised": plain})

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _one_line(self.path), closing(_connect(self.path)) as connection:
            _expect_writable(self.path)
            # EXTRA: the folder is synced too, so that no power failure brings back a log without the last row
            connection.execute("PRAGMA synchronous = EXTRA")
            # the lock is taken before the budget is read: two processes never both count on what is left
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")


def read_ledger(path: Path) -> Book:
    """Return what the ledger at ``path`` says, without the right to write it. Raises ``ValueError`` like `Ledger`."""
    path = Path(path)
    expect(path.is_file(), "a ledger", path=str(path))
    with _one_line(path), closing(_connect(path, _reading_mode(path))) as connection:
        _expect_ledger(connection, path)
        return _read(connection, path)


def verify_ledger(path: Path) -> Book:
    """Return what the ledger at ``path`` says after everything in it was computed again.

    Besides what every reader checks (an intact file, the chain of digests, well-formed events), each epsilon that was
    written beside a release is computed again from the events, and all releases are put through the filter again.

    Raises:
        ValueError: at the first figure that does not follow from the events.
    """
    path = Path(path)
    book = read_ledger(path)
    with _one_line(path), closing(_connect(path, _reading_mode(path))) as connection:
        (state,) = connection.execute("PRAGMA integrity_check").fetchone()
        expect(state == "ok", "an intact ledger", path=str(path), found=state)
        triggers = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
        expect(triggers >= {"log_UPDATE", "log_DELETE"}, "a ledger whose rows are final", triggers=sorted(triggers))
        bodies = [json.loads(body) for (body,) in connection.execute("SELECT body FROM log ORDER BY row")]
    before = Book()
    for number, body in enumerate(bodies, 1):
        if body["kind"] == "reserve":
            (events, count) = charge = (_events(body["events"]), body["count"])
            try:
                _expect_affordable(before, events, count)
            except ValueError as error:
                raise ValueError(f"Expected row {number} of {path} to be within the budget. {error}") from None
            if body["stated"] is not None:
                _expect_same(_state(before, charge, body["stated"]["delta"]), body["stated"], number, path)
        before = _fold(before, body)
    return book


def account(releases: Sequence[Charge], relation: NeighboringRelation) -> RDPAccountant:
    """Compose releases, each ``(events, count)``, under one relation."""
    accountant = RDPAccountant(neighboring_relation=relation)
    return accountant.compose([events[relation] for events, _ in releases], [count for _, count in releases])


# The budget


def _declare(connection: sqlite3.Connection, book: Book, budget: Budget, events: Events) -> Book:
    relation = budget.neighboring_relation
    chosen = make_filter(budget, book.spent(relation), cost(events[relation]))
    body = {"kind": "budget", "at": _now(), "budget": budget.to_dict(), "filter": chosen.to_dict()}
    _append(connection, body)
    return _fold(book, body)


def _expect_affordable(book: Book, events: Events, count: int) -> None:
    budget, bounds = book.budget, book.filter
    if budget is None or bounds is None:
        return
    relation = budget.neighboring_relation
    spent, query = book.spent(relation, bounds.orders), cost(events[relation], bounds.orders)
    if not bounds.admits(after(spent, query, count)):
        left = largest_count_where(lambda n: bounds.admits(after(spent, query, n)))
        refuse(budget, bounds, after(spent, query, count), left)


def _expect_within(entry: Entry, charges: tuple[Charge, ...] | None) -> None:
    for relation in NeighboringRelation if charges is not None else ():
        reserved = _sum([(entry.events, entry.count)], relation, DEFAULT_ORDERS)
        paid = _sum(charges or (), relation, DEFAULT_ORDERS)
        within = (paid.rdp <= reserved.rdp * (1 + 1e-12)).all()
        within &= paid.log_survival >= reserved.log_survival * (1 + 1e-12)
        expect(within, f"at most what release {entry.release} reserved under {relation.value}", realised="more")


def _state(book: Book, charge: Charge, delta: float | None) -> dict[str, Any] | None:
    if delta is None:
        if book.budget is None:
            return None
        delta = book.budget.delta
    stated: dict[str, Any] = {"delta": delta}
    for relation in NeighboringRelation:
        epsilon = account([*book.charges(), charge], relation).get_epsilon(delta=delta, conversion="optimal")
        stated[relation.value] = epsilon if epsilon < float("inf") else None
    return stated


def _expect_same(computed: Mapping[str, Any] | None, stated: Mapping[str, Any], number: int, path: Path) -> None:
    assert computed is not None
    for name, value in computed.items():
        found = stated.get(name)
        same = found is value if None in (found, value) else abs(found - value) <= 1e-9 * abs(value)
        expect(same, f"{name}={value} in row {number} of {path}, computed from its events", **{name: found})


def _sum(charges: Sequence[Charge], relation: NeighboringRelation, orders: FloatArray) -> Cost:
    return total_cost([events[relation] for events, _ in charges], [count for _, count in charges], orders)


def _say(budget: Budget | None) -> str:
    return "none" if budget is None else ", ".join(f"{name}={value}" for name, value in budget.to_dict().items())


# The file


def _connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    # never "rwc": SQLite would make an empty file for one that was deleted meanwhile
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=60, isolation_level=None)


def _make(path: Path) -> None:
    """Make an empty ledger beside ``path`` and put it there, unless another process was first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with closing(sqlite3.connect(beside)) as connection:
            connection.executescript(";".join(_SCHEMA))
        with suppress(FileExistsError):
            os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _reading_mode(path: Path) -> str:
    # what a killed process left half written is undone by the next one that may write, before it reads
    return "rw" if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK) else "ro"


def _expect_writable(path: Path) -> None:
    # the superuser may write a file that is marked read-only, and a ledger that somebody closed stays closed
    mode = path.stat().st_mode
    expect(
        mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH), f"a writable ledger at {path}", mode=stat.filemode(mode)
    )


def _expect_ledger(connection: sqlite3.Connection, path: Path) -> None:
    marks = tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    # an empty file, which SQLite takes for a new database, has no marks
    expect(marks == (_APPLICATION, _VERSION), f"a ledger of version {_VERSION} at {path}", found=marks)
    (state,) = connection.execute("PRAGMA quick_check").fetchone()
    expect(state == "ok", "an intact ledger", path=str(path), found=state)


@contextmanager
def _one_line(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise ValueError(f"Expected a readable and writable ledger at {path}, got: {error}") from None


# The log


def _append(connection: sqlite3.Connection, body: Mapping[str, Any]) -> None:
    last = connection.execute("SELECT digest FROM log ORDER BY row DESC LIMIT 1").fetchone()
    text = json.dumps(body, allow_nan=False)
    digest = _digest("" if last is None else last[0], text)
    connection.execute("INSERT INTO log (body, digest) VALUES (?, ?)", (text, digest))


def _read(connection: sqlite3.Connection, path: Path) -> Book:
    """Return the log's content. Raises ``ValueError`` if a row is missing, changed or malformed."""
    book, previous = Book(), ""
    for number, (row, text, digest) in enumerate(
        connection.execute("SELECT row, body, digest FROM log ORDER BY row"), 1
    ):
        previous = _digest(previous, str(text))
        intact = row == number and digest == previous
        expect(intact, "an intact ledger", path=str(path), found=f"row {row} does not follow from the rows before it")
        try:
            book = _fold(book, json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"Expected an intact ledger at {path}, got row {row}: {error}") from None
        book = replace(book, digests=(*book.digests, digest))
    return book


def _fold(book: Book, body: Mapping[str, Any]) -> Book:
    """Return ``book`` after one more row."""
    kind = body["kind"]
    if kind == "budget":
        expect(book.budget is None, "one budget", kind=kind)
        return replace(book, budget=Budget(**body["budget"]), filter=filter_from_dict(body["filter"]))
    if kind == "reserve":
        expect_count(1, count=body["count"])
        entry = Entry(
            release=len(book.entries) + 1,
            at=body["at"],
            run=body["run"],
            description=body["description"],
            events=_events(body["events"]),
            count=body["count"],
            seeded=bool(body["seeded"]),
            settled=False,
            stated=body["stated"],
        )
        return replace(book, entries=(*book.entries, entry))
    expect(kind == "settle", "a row among budget, reserve, settle", kind=kind)
    release, realised = body["release"], body["realised"]
    expect(1 <= release <= len(book.entries), "a release that was reserved", release=release)
    entry = book.entries[release - 1]
    expect(not entry.settled, "a release settled once", release=release)
    charges = None if realised is None else tuple((_events(each["events"]), each["count"]) for each in realised)
    for _, count in charges or ():
        expect_count(0, count=count)
    _expect_within(entry, charges)
    settled = replace(entry, settled=True, realised=charges)
    return replace(book, entries=(*book.entries[: release - 1], settled, *book.entries[release:]))


def _digest(previous: str, body: str) -> str:
    return hashlib.blake2b(f"{previous}\n{body}".encode(), digest_size=16).hexdigest()


def _events(described: Mapping[str, Any]) -> Events:
    return dict(_parsed_events(json.dumps(described)))


@lru_cache(maxsize=4096)  # a log says the same over and over
def _parsed_events(described: str) -> Events:
    events = {NeighboringRelation(name): event_from_dict(event) for name, event in json.loads(described).items()}
    _expect_events(events)
    return events


def _expect_events(events: Events) -> None:
    expect(set(events) == set(NeighboringRelation), "an event under either relation", events=sorted(events))
    for relation, event in events.items():
        expect(
            isinstance(event, Event) and event.neighboring_relation is NeighboringRelation(relation),
            f"an event under {NeighboringRelation(relation).value}",
            event=event,
        )
        cost(event)  # an event without a curve is refused before anything is written


def _plain_events(events: Events) -> dict[str, Any]:
    return {NeighboringRelation(relation).value: event.to_dict() for relation, event in events.items()}


def _plain_charges(charges: Sequence[Charge]) -> list[dict[str, Any]]:
    return [{"events": _plain_events(events), "count": count} for events, count in charges]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
