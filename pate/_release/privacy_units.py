"""For whom the releases of a run are priced: its units, their groups, and its teachers.

Two releases by groups add up for a group only where no record changed its group in between. A file
next to the ledger keeps the members of each grouping, as keyed hashes. Rows of the ledger, which
statements list, hold only the random name of a grouping. It is the same on neighboring data: a
record that is there or not contradicts no other.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pate._runs import TEACHERS_FIT, Run, StageState, first_stage
from pate._runs.released import sealing_key
from pate._validation import StrArray
from pate.accounting._ledger import log_errors
from pate.accounting._privacy_unit import EACH, PrivacyUnit
from pate.data._records import Records

_TABLES = (
    "CREATE TABLE IF NOT EXISTS secret (key BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS grouping (name TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS member (grouping TEXT, record BLOB, of BLOB,"
    " PRIMARY KEY (grouping, record)) WITHOUT ROWID",
    "CREATE TEMP TABLE present (record BLOB PRIMARY KEY, of BLOB) WITHOUT ROWID",
)
# a grouping by which a record that is present belongs to another group
_CONTRADICTED = (
    "SELECT DISTINCT grouping FROM member JOIN present USING (record) WHERE member.of <> present.of"
)


def members_file(ledger: Path) -> Path:
    """Return the file of the groupings of a ledger. PRIVATE."""
    return ledger.with_suffix(".groups")


def name_grouping(ledger: Path, private: Records) -> str:
    """Return the name of the groups of private records, for the releases of a ledger.

    It is the first grouping that no record contradicts; a new one is written down if there is none.

    Args:
        ledger: the ledger that will pay.
        private: the records, which have groups.
    """
    assert private.groups is not None
    with _members(ledger) as (connection, key):
        rows = zip(_hashed(private.ids, key), _hashed(private.groups, key), strict=True)
        connection.executemany("INSERT INTO present VALUES (?, ?)", rows)
        others = {name for (name,) in connection.execute(_CONTRADICTED)}
        known = [name for (name,) in connection.execute("SELECT name FROM grouping ORDER BY rowid")]
        same = [name for name in known if name not in others]
        name = same[0] if same else secrets.token_hex(8)
        connection.execute("INSERT OR IGNORE INTO grouping VALUES (?)", (name,))
        connection.execute(
            "INSERT OR IGNORE INTO member SELECT ?, record, of FROM present", (name,)
        )
    return name


def forget_members(ledger: Path, ids: StrArray) -> None:
    """Remove records from all groupings of a ledger."""
    if members_file(ledger).is_file():
        with _members(ledger) as (connection, key):
            rows = ((record,) for record in _hashed(ids, key))
            connection.executemany("DELETE FROM member WHERE record = ?", rows)


def unit_of(run: Run) -> PrivacyUnit:
    """Return for whom the releases of a run are priced, whose first stage has begun.

    Raises ``ValueError`` if its key is missing.
    """
    return unit_by(run.state(first_stage(run)), sealing_key(run))


def unit_by(first: StageState | None, key: bytes) -> PrivacyUnit:
    """Return for whom the releases of a run are priced, by its first stage and its key."""
    assert first is not None, "a stage begins before anything is released"
    settings = first.inputs.settings
    if "votes" in first.inputs.digests:  # imported
        return PrivacyUnit(
            unit=str(settings.get("unit", "record")), partition=_keyed(key, "imported votes")
        )
    return _unit(settings, first.grouping, key)


def planned_unit(run: Run, plan: Any) -> PrivacyUnit:
    """Return for whom a run will release, as far as it is known before its first stage.

    Args:
        run: the run.
        plan: the plan of its teachers.
    """
    if run.state(TEACHERS_FIT) is not None and not run.overwrite:
        return unit_of(run)
    # nobody has this key
    return _unit(vars(plan), None, secrets.token_bytes(16))


def _unit(settings: Any, grouping: str | None, key: bytes) -> PrivacyUnit:
    names = ("num_teachers", "unit", "max_teachers_per_group")
    number, unit, most = (settings.get(name) for name in names)
    each = number is None and most is None
    return PrivacyUnit(
        unit=unit,
        grouping=grouping,
        partition=EACH if each else _keyed(key, json.dumps([number, unit, most])),
        max_teachers_per_group=most if grouping else None,
    )


def _keyed(key: bytes, text: str) -> str:
    return hashlib.blake2b(text.encode(), key=key, digest_size=8, person=b"partition").hexdigest()


def _hashed(texts: StrArray, key: bytes) -> Iterator[bytes]:
    for text in texts:
        yield hashlib.blake2b(str(text).encode(), key=key, digest_size=8).digest()


@contextmanager
def _members(ledger: Path) -> Iterator[tuple[sqlite3.Connection, bytes]]:
    """Open the groupings of a ledger for one transaction, with the key of their hashes."""
    path = members_file(ledger)
    with log_errors(path):
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
            # what is forgotten is overwritten
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                connection.execute(table)
            rows = connection.execute("SELECT key FROM secret").fetchall()
            key = rows[0][0] if rows else secrets.token_bytes(32)
            if not rows:
                connection.execute("INSERT INTO secret VALUES (?)", (key,))
            yield connection, key
            connection.execute("COMMIT")
