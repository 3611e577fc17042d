"""The ledger: a SQLite file that lists every release made from one private data set.

A release is reserved before its noise is drawn and settled once its labels are on disk. A reservation that was never
settled counts in full: a crash can waste budget, never hide it. Rows are added, never changed.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pate.accounting.accountant import RDPAccountant
from pate.accounting.events import Event, event_from_dict
from pate.accounting.relation import NeighboringRelation
from pate.validation import expect, expect_count

Events = Mapping[NeighboringRelation, Event]

_FINAL = "CREATE TRIGGER IF NOT EXISTS {0}_{1} BEFORE {1} ON {0} BEGIN SELECT RAISE(ABORT, 'a ledger is final'); END"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS reserved (release INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL,"
    " run TEXT NOT NULL, description TEXT NOT NULL, events TEXT NOT NULL, count INTEGER NOT NULL CHECK (count > 0),"
    " seeded INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS settled (release INTEGER PRIMARY KEY REFERENCES reserved (release), at TEXT NOT NULL)",
    *(_FINAL.format(table, change) for table in ("reserved", "settled") for change in ("UPDATE", "DELETE")),
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "release": self.release,
            "at": self.at,
            "run": self.run,
            "description": self.description,
            "events": {relation.value: event.to_dict() for relation, event in self.events.items()},
            "count": self.count,
            "seeded": self.seeded,
            "settled": self.settled,
        }


class Ledger:
    """The releases from one private data set, in a SQLite file shared by all runs on it.

    Args:
        path: the file, made where it is missing.

    Raises:
        ValueError: if the file is there but is not a ledger, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        try:
            if not self.path.exists():
                _make(self.path)
            # SQLite would take an empty file for a new database, and forget what was released
            expect(self.path.stat().st_size > 0, "an intact ledger", path=str(self.path), found="an empty file")
            with self._transaction() as connection:
                (state,) = connection.execute("PRAGMA quick_check").fetchone()
                connection.execute("SELECT 1 FROM reserved, settled LIMIT 1")
        except (sqlite3.DatabaseError, OSError) as error:
            raise ValueError(f"Expected a readable and writable ledger at {self.path}, got: {error}") from None
        expect(state == "ok", "an intact ledger", path=str(self.path), found=state)
        self.entries()

    def entries(self) -> tuple[Entry, ...]:
        """Return all releases, oldest first."""
        with self._transaction() as connection:
            rows = connection.execute(
                "SELECT r.release, r.at, r.run, r.description, r.events, r.count, r.seeded, s.release IS NOT NULL"
                " FROM reserved r LEFT JOIN settled s ON s.release = r.release ORDER BY r.release"
            ).fetchall()
        try:
            return tuple(_entry(row) for row in rows)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"Expected an intact ledger at {self.path}, got: {error}") from None

    def reserve(self, events: Events, *, count: int, run: str, description: str, seeded: bool) -> int:
        """Write down ``count`` queries before their noise is drawn, and return the number of the release."""
        expect_count(1, count=count)
        expect(set(events) == set(NeighboringRelation), "an event under either relation", events=sorted(events))
        for relation, event in events.items():
            expect(
                event.neighboring_relation is NeighboringRelation(relation),
                f"an event under {relation}",
                neighboring_relation=event.neighboring_relation.value,
            )
        text = json.dumps({NeighboringRelation(r).value: event.to_dict() for r, event in events.items()})
        with self._transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO reserved (at, run, description, events, count, seeded) VALUES (?, ?, ?, ?, ?, ?)",
                (_now(), run, description, text, count, int(seeded)),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def settle(self, release: int) -> None:
        """Write down that what ``release`` reserved was published; once, however often it is said."""
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO settled (release, at) VALUES (?, ?)", (release, _now()))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()


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


def account(releases: list[tuple[Events, int]], relation: NeighboringRelation) -> RDPAccountant:
    """Compose releases, each ``(events, count)``, under one relation."""
    accountant = RDPAccountant(neighboring_relation=relation)
    for events, count in releases:
        accountant.compose(events[relation], count)
    return accountant


def _entry(row: tuple[Any, ...]) -> Entry:
    release, at, run, description, events, count, seeded, settled = row
    described = {NeighboringRelation(name): event_from_dict(event) for name, event in json.loads(events).items()}
    return Entry(
        release=release,
        at=at,
        run=run,
        description=description,
        events=described,
        count=count,
        seeded=bool(seeded),
        settled=bool(settled),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
