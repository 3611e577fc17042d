"""The file of a ledger: a SQLite table of rows, each with a digest of itself and all rows before.

The content of the rows does not concern this module.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from pate._files import draft_of
from pate._validation import one_line as escaped, require

_APPLICATION, _VERSION = 0x70617465, 2  # "pate"
# rows of version 1 do not say how many teachers a unit reaches: readers of that one overlook it
_READ = 1, _VERSION
_TABLE = (
    "CREATE TABLE log (row INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, digest"
    " TEXT NOT NULL)"
)
_FINAL = tuple(
    f"CREATE TRIGGER log_{change} BEFORE {change} ON log BEGIN SELECT RAISE(ABORT, 'a ledger is"
    " final'); END"
    for change in ("UPDATE", "DELETE")
)
_SCHEMA = (
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
    _TABLE,
    *_FINAL,
)
_ROWS = 4096  # read at once: a read keeps other processes from writing


class LedgerHead(NamedTuple):
    """The end of a log: its number of rows, and the digest of the last, which covers all."""

    rows: int = 0
    digest: str = ""


def make(path: Path) -> None:
    """Create an empty log at ``path`` in one step, unless another process was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(";".join(_SCHEMA))
        content = connection.serialize()
    with draft_of(path, once=True, permissions=0o644) as file:
        file.write(content)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def one_line(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into a one-line ``ValueError``."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise ValueError(
            f"Expected a readable and writable ledger at {path}, got: {escaped(str(error))}"
        ) from None


@contextmanager
def opened(path: Path, *, writable: bool) -> Iterator[sqlite3.Connection]:
    """Open the log at ``path``.

    Raises ``ValueError`` if it is not a log, or its journal mode was changed.

    Another journal mode keeps other files next to the log, and may lose the last rows in other
    ways.
    """
    # a transaction that a killed process left half-written is rolled back by the next writer,
    # before it reads
    mode = (
        "rw" if writable or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)) else "ro"
    )
    # never "rwc": SQLite would create an empty file in place of one deleted meanwhile
    address = f"{path.absolute().as_uri()}?mode={mode}"
    with (
        one_line(path),
        closing(sqlite3.connect(address, uri=True, timeout=60, isolation_level=None)) as connection,
    ):
        # the header shows it before any row is read
        marks = tuple(
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        # an empty file, which SQLite takes for a new database, has no marks
        require(
            marks in [(_APPLICATION, version) for version in _READ],
            f"a ledger of version {' or '.join(map(str, _READ))} at {path}",
            marks=marks,
        )
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        require(
            journal == "delete",
            f"a ledger with PRAGMA journal_mode = delete at {path}",
            journal_mode=journal,
        )
        yield connection


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the log at ``path`` for one transaction, which locks out all other writers."""
    with one_line(path):
        require_writable(path)
    with opened(path, writable=True) as connection:
        # EXTRA: the folder is synced too, so that no power failure brings back a log without the
        # last row
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


def require_writable(path: Path) -> None:
    """Raise ``ValueError`` if ``path`` is marked read-only.

    The superuser could write it nevertheless, but a ledger that somebody closed stays closed.
    """
    mode = path.stat().st_mode
    require(
        mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH),
        f"a writable ledger at {path}",
        mode=stat.filemode(mode),
    )


def require_intact(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ``ValueError`` unless the pages of the file fit together."""
    (state,) = connection.execute("PRAGMA quick_check").fetchone()
    require(state == "ok", "an intact ledger", path=str(path), state=state)


def require_final(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ``ValueError`` unless the file is intact and its rows are final."""
    (state,) = connection.execute("PRAGMA integrity_check").fetchone()
    require(state == "ok", "an intact ledger", path=str(path), state=state)
    statements = {
        sql
        for (sql,) in connection.execute(
            "SELECT sql FROM sqlite_master WHERE name <> 'sqlite_sequence'"
        )
    }
    # another trigger could drop rows while they are added
    require(
        statements == {_TABLE, *_FINAL},
        f"a ledger whose rows are final at {path}",
        schema=sorted(map(str, statements)),
    )


def rows_after(
    connection: sqlite3.Connection, head: LedgerHead, path: Path
) -> Iterator[tuple[str, str]]:
    """Yield the body and the digest of each row after ``head``.

    No lock is held between the rows. Raises ``ValueError`` if the row at ``head`` was changed, if a
    row does not follow from the rows before it, or if rows are missing at the end.
    """
    number, previous = head
    while True:
        block, last = _some_rows(connection, number)
        if number:
            require(
                bool(block) and (block[0][0], block[0][2]) == (number, previous),
                f"a ledger at {path} that continues row {number}",
            )
        for row, text, digest in block[1 if number else 0 :]:
            number, previous = number + 1, chained(previous, str(text))
            require(
                row == number and digest == previous,
                "an intact ledger",
                path=str(path),
                damage=f"row {row} does not follow from those before it",
            )
            yield text, digest
        if len(block) < _ROWS:
            break
    require(last == number, f"an intact ledger of {last} rows", path=str(path), rows=number)


def _some_rows(
    connection: sqlite3.Connection, number: int
) -> tuple[list[tuple[int, str, str]], int]:
    """Return row ``number`` and some rows after it, and the number of the last row ever written."""
    own_transaction = not connection.in_transaction
    if own_transaction:
        connection.execute("BEGIN")
    first = number or -(2**63)
    query = "SELECT row, body, digest FROM log WHERE row >= ? ORDER BY row LIMIT ?"
    rows = connection.execute(query, (first, _ROWS)).fetchall()
    last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'log'").fetchall()
    if own_transaction:
        connection.execute("COMMIT")
    return rows, last[0][0] if last else 0


def append(connection: sqlite3.Connection, head: LedgerHead, text: str) -> LedgerHead:
    """Add a row after ``head``, and return the new end of the log."""
    after = LedgerHead(head.rows + 1, chained(head.digest, text))
    row = (after.rows, text, after.digest)
    added = connection.execute("INSERT INTO log (row, body, digest) VALUES (?, ?, ?)", row).rowcount
    require(added == 1, "a ledger to which rows can be added", rows=head.rows)
    connection.execute(f"PRAGMA user_version = {_VERSION}")  # of the same transaction
    return after


def chained(previous: str, text: str) -> str:
    """Return the digest of a row that follows a row of digest ``previous``."""
    return hashlib.blake2b(f"{previous}\n{text}".encode(), digest_size=16).hexdigest()
