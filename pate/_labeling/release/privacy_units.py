"""For whom the releases of a run are priced: its units, their groups, and its teachers.

Two releases by groups add up for a group only where no record changed its group in between. A file
next to the ledger keeps the members of the groups, as keyed hashes, and a record in another group
is refused: if statements told that groups had changed, they would tell whether the only record that
moved is there. Rows of the ledger, which statements list, hold the random name of the file.
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

from pate._core.accounting.ledger import log_errors
from pate._core.accounting.privacy_unit import EACH, PrivacyUnit
from pate._core.validation import StrArray, require
from pate._labeling.data.records import Records
from pate._labeling.runs.released import sealing_key
from pate._labeling.runs.run import TEACHERS_FIT, Run, StageState, first_stage
from pate._labeling.teachers import uses_groups

_TABLES = (
    "CREATE TABLE IF NOT EXISTS grouping (name TEXT, key BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS member (record BLOB PRIMARY KEY, of BLOB) WITHOUT ROWID",
    "CREATE TEMP TABLE present (record BLOB PRIMARY KEY, of BLOB) WITHOUT ROWID",
)
_MOVED = "SELECT 1 FROM member JOIN present USING (record) WHERE member.of <> present.of LIMIT 1"


def members_file(ledger: Path) -> Path:
    """Return the file of the groups of a ledger. PRIVATE."""
    return ledger.with_name(f"{ledger.name}.groups")


def name_grouping(ledger: Path, private: Records) -> str:
    """Return the name of the groups of private records, and write down their members.

    Args:
        ledger: the ledger that will pay.
        private: the records, with their groups.

    Raises:
        ValueError: if there are none, or a record is in another group than it was in an earlier
            release.
    """
    groups = private.units("group")
    with _members(ledger) as (connection, name, key):
        rows = zip(_hashed(private.ids, key), _hashed(groups, key), strict=True)
        connection.executemany("INSERT INTO present VALUES (?, ?)", rows)
        require(
            connection.execute(_MOVED).fetchone() is None,
            f"each record in the group that it had in earlier releases of {ledger}. If groups were"
            f" corrected, delete {members_file(ledger)}: there is then no total for a group with"
            " earlier releases",
        )
        connection.execute("INSERT OR IGNORE INTO member SELECT record, of FROM present")
    return name


def unit_of(run: Run) -> PrivacyUnit:
    """Return for whom the releases of a run are priced, whose first stage has begun.

    Raises ``ValueError`` if its key is missing.
    """
    return unit_by(run.begun(first_stage(run)), sealing_key(run))


def unit_by(first: StageState, key: bytes) -> PrivacyUnit:
    """Return for whom the releases of a run are priced, by its first stage and its key."""
    settings = first.inputs.settings
    if "votes" in first.inputs.digests:  # imported
        return PrivacyUnit(
            unit=str(settings.get("unit", "record")),
            partition=_keyed(key, json.dumps(["imported votes", first.begun])),
        )
    return _unit(settings, first.grouping, first.begun, key)


def planned_unit(run: Run, plan: Any) -> PrivacyUnit:
    """Return for whom a run will release, as far as it is known before its first stage.

    Args:
        run: the run.
        plan: the plan of its teachers.
    """
    if run.state(TEACHERS_FIT) is not None and not run.overwrite:
        return unit_of(run)
    # no run has this key, and no ledger this name of its groups
    grouping = secrets.token_hex(8) if uses_groups(plan) else None
    if grouping and members_file(run.ledger_path).is_file():
        with _members(run.ledger_path) as (_, grouping, _):
            pass
    return _unit(vars(plan), grouping, 0, secrets.token_bytes(16))


def _unit(settings: Any, grouping: str | None, begun: int, key: bytes) -> PrivacyUnit:
    names = ("num_teachers", "unit", "max_teachers_per_group")
    number, unit, most = (settings.get(name) for name in names)
    each = number is None and most is None
    return PrivacyUnit(
        unit=unit,
        grouping=grouping,
        partition=EACH if each else _keyed(key, json.dumps([number, unit, most, begun])),
        max_teachers_per_group=most if grouping else None,
    )


def _keyed(key: bytes, text: str) -> str:
    return hashlib.blake2b(text.encode(), key=key, digest_size=8, person=b"partition").hexdigest()


def _hashed(texts: StrArray, key: bytes) -> Iterator[bytes]:
    for text in texts:
        yield hashlib.blake2b(str(text).encode(), key=key, digest_size=8).digest()


@contextmanager
def _members(ledger: Path) -> Iterator[tuple[sqlite3.Connection, str, bytes]]:
    """Open the groups of a ledger for one transaction, with their name and the key of hashes."""
    path = members_file(ledger)
    with log_errors(path):
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                connection.execute(table)
            if not connection.execute("SELECT 1 FROM grouping").fetchone():
                made = secrets.token_hex(8), secrets.token_bytes(32)
                connection.execute("INSERT INTO grouping VALUES (?, ?)", made)
            name, key = connection.execute("SELECT name, key FROM grouping").fetchone()
            yield connection, name, key
            connection.execute("COMMIT")
