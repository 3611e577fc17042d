"""The ledger: a SQLite file that lists every release made from one private data set.

Its **place** is one for the same private data, under any of their paths.

The file is a **log**: rows are added, never changed, and each carries a digest of itself and all
rows before it. Functions of the log do not know the content of rows.

A release is **reserved** before its noise is drawn and **settled** once its labels are on disk. A
reservation that was never settled counts in full, so that a crash never hides a cost; whoever made
it finds it again by its token. `verify_ledger` computes everything in the ledger again.
"""

from __future__ import annotations

import filecmp
import gc
import hashlib
import json
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pate._core.accounting.charges import (
    Budget,
    Charge,
    Events,
    plain_charges,
    require_charged_count,
    require_events,
)
from pate._core.accounting.history import (
    History,
    LedgerEntry,
    LedgerHead,
    LedgerSnapshot,
    PrivacyUnit,
)
from pate._core.files.reading import regular
from pate._core.files.writing import draft_of, remove_abandoned, sync_folder
from pate._core.validation import (
    one_line,
    require,
    require_count,
    require_format,
)

_NAME = "ledger.sqlite"
_BESIDE = f".{_NAME}"
# endings of files that lie next to data of the same name
_NO_DATA = (".yaml", ".yml", ".json", ".md", ".py", ".log")


def ledger_in(folder: Path) -> Path:
    """Return the ledger of all data in a folder."""
    return folder / _NAME


def ledger_beside(data: Path) -> Path:
    """Return the ledger of a file, which lies next to it."""
    return data.with_suffix(_BESIDE)


def one_ledger(place: Path) -> Path:
    """Return the ledger of the private data for which ``place`` is the default. Writes nothing.

    ``ledger.sqlite`` counts all files of its folder, and ``x.ledger.sqlite`` the files ``x.*``,
    with hard links and copies of them in the same folder. A place of any other name stays as it is.

    Raises:
        ValueError: if another ledger there counts the same records, or may count them.
    """
    in_folder = ledger_in(place.parent)
    if place == in_folder:
        _require_folder_of_one_ledger(place)
        return place
    if not place.name.endswith(_BESIDE):
        return place
    entries = _entries(place.parent)
    others = [path for path in _beside_files(entries) if path != place]
    ledgers = [path for path in (place, in_folder) if path.exists()]
    ledgers += [
        path
        for path in others
        if any(
            filecmp.cmp(one, other, shallow=False)
            for one in _files_of(path, entries)
            for other in _files_of(place, entries)
        )
    ]
    require(
        len(ledgers) < 2,
        "one ledger of the same private data; move the others away, or name the one to pay"
        " into by `ledger`",
        ledgers=" and ".join(map(str, ledgers)),
    )
    if in_folder not in ledgers:
        # a file that was renamed has left its ledger behind
        left = [
            str(path)
            for path in others
            if all(file.suffix in _NO_DATA for file in _files_of(path, entries))
        ]
        require(
            not left,
            f"a ledger next to its data; if these are now named as {place} would be, rename it,"
            " else move it away or name a ledger by `ledger`",
            without_data=" and ".join(left),
        )
    return ledgers[0] if ledgers else place


def is_ledger_of(ledger: Path, place: Path) -> bool:
    """Whether ``ledger``, and no other there, counts the data with default ledger ``place``."""
    try:
        return one_ledger(place).resolve() == ledger.resolve()
    except ValueError:
        return False


def _require_folder_of_one_ledger(place: Path) -> None:
    """Raise ``ValueError`` if other ledgers may count files in the folder of ``place``."""
    entries = _entries(place.parent)
    others = _beside_files(entries)
    require(
        not others,
        f"{place} to count all files of its folder; move the other ledger there if it is the"
        " only one, or name one by `ledger`",
        other=" and ".join(map(str, others)),
    )
    links = [Path(entry) for entry in entries if entry.is_symlink() and entry.is_file()]
    elsewhere = [str(link) for link in links if link.resolve().parent != place.parent.resolve()]
    require(
        not elsewhere,
        f"files of its own in {place.parent}, because a ledger elsewhere may count them; name"
        " one by `ledger`",
        links=", ".join(elsewhere[:3]),
    )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _beside_files(entries: list[os.DirEntry[str]]) -> list[Path]:
    return [Path(entry) for entry in entries if entry.name.endswith(_BESIDE)]


def _files_of(ledger: Path, entries: list[os.DirEntry[str]]) -> list[Path]:
    stem = ledger.name.removesuffix(_BESIDE)
    return [path for entry in entries if (path := Path(entry)).stem == stem and entry.is_file()]


_MARKS = 0x70617465, 4
"""The application ("pate") and the format of its rows."""
_TABLE = (
    "CREATE TABLE log (row INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, digest"
    " TEXT NOT NULL)"
)
_FINAL = tuple(
    f"CREATE TRIGGER log_{change} BEFORE {change} ON log BEGIN SELECT RAISE(ABORT, 'a ledger is"
    " final'); END"
    for change in ("UPDATE", "DELETE")
)
_SCHEMA = {
    ("table", "log", "log", _TABLE),
    ("table", "sqlite_sequence", "sqlite_sequence", "CREATE TABLE sqlite_sequence(name,seq)"),
    *(("trigger", sql.split()[2], "log", sql) for sql in _FINAL),
}
_LONGEST = 1 << 26  # bytes of a row, which may hold the names of labels
_STEPS = 1_000_000  # of SQLite's machine, before the schema is known
_SHOWN = 80  # letters of a foreign part of a schema
_ROWS = 4096  # read at once: a read keeps other processes from writing
_SOME_ROWS = (
    "SELECT coalesce(max(seq), 0), NULL, NULL FROM sqlite_sequence WHERE name = 'log' UNION ALL"
    " SELECT * FROM (SELECT row, body, digest FROM log WHERE row >= ? ORDER BY row LIMIT ?)"
)


def make_log(path: Path) -> None:
    """Create an empty log at ``path`` in one step, unless another process was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(":memory:")) as connection:
        marks = "PRAGMA application_id = {}; PRAGMA user_version = {}".format(*_MARKS)
        connection.executescript(";".join((marks, _TABLE, *_FINAL)))
        content = connection.serialize()
    with draft_of(path, once=True, permissions=0o644) as file:
        file.write(content)
    sync_folder(path.parent)


class LedgerAccessError(ValueError):
    """A ledger could not be read or written. A change that was begun may be there all the same."""


@contextmanager
def log_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into a one-line `LedgerAccessError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise LedgerAccessError(
            f"Expected a readable and writable ledger at {path}, got: {one_line(str(error))}"
        ) from None


@contextmanager
def opened_log(path: Path, *, writable: bool) -> Iterator[sqlite3.Connection]:
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
    with ExitStack() as stack:
        stack.enter_context(log_errors(path))
        for end in ("", "-journal", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                regular(f"{path}{end}")  # SQLite would wait for a pipe
        connection = stack.enter_context(
            closing(sqlite3.connect(address, uri=True, timeout=60, isolation_level=None))
        )
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        connection.set_progress_handler(lambda: 1, _STEPS)
        # the header shows it before any row is read
        marks = tuple(
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        # an empty file, which SQLite takes for a new database, has no marks
        require(marks[0] == _MARKS[0], f"a ledger at {path}", application_id=marks[0])
        require_format(_MARKS[1], marks[1], path)
        (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
        require(
            journal == "delete",
            f"a ledger with PRAGMA journal_mode = delete at {path}",
            journal_mode=journal,
        )
        _require_schema(connection, path)
        connection.set_progress_handler(None, 0)
        yield connection


def _require_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise ``ValueError`` unless the file has one plain table, whose rows are final.

    Another one could compute endless rows as it is read, and another trigger drop them as they are
    added.
    """
    schema = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchmany(9)
    others = [str(part)[:_SHOWN] for part in schema if part not in _SCHEMA]
    require(
        sorted(schema) == sorted(_SCHEMA),
        f"a ledger whose rows are final at {path}",
        others=others,
        tables=len(schema),
    )


@contextmanager
def locked_log(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the log at ``path`` for one transaction, which locks out all other writers."""
    with log_errors(path):
        require_writable(path)
    with opened_log(path, writable=True) as connection:
        # EXTRA: the folder is synced too, so that no power failure brings back a log without the
        # last row
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


def require_writable(path: Path) -> None:
    """Raise ``ValueError`` if ``path`` is marked read-only.

    The superuser could write it nevertheless, but a closed ledger stays closed.
    """
    mode = path.stat().st_mode
    require(
        mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH),
        f"a writable ledger at {path}",
        mode=stat.filemode(mode),
    )


def rows_after(
    connection: sqlite3.Connection, head: LedgerHead, path: Path
) -> Iterator[list[tuple[str, str]]]:
    """Yield the bodies and the digests of some rows after ``head`` at a time.

    No lock is held between them. Raises ``ValueError`` if the row at ``head`` was changed, if a
    row does not follow from the rows before it, or if rows are missing at the end.
    """
    number, previous = head
    while True:
        # one statement sees one state of the file
        block = connection.execute(_SOME_ROWS, (number or -(2**63), _ROWS)).fetchall()
        last, *_ = block.pop(0)
        require(
            not number or (bool(block) and (block[0][0], block[0][2]) == (number, previous)),
            f"a ledger at {path} that continues row {number}",
        )
        rows = block[1 if number else 0 :]
        for row, text, digest in rows:
            number, previous = number + 1, chained(previous, str(text))
            if row != number or digest != previous:
                rule = "an intact ledger, where each row follows from those before it"
                require(False, rule, path=str(path), row=row)
        if rows:
            yield [(text, digest) for _, text, digest in rows]
        if len(block) < _ROWS:
            break
    require(last == number, f"an intact ledger of {last} rows", path=str(path), rows=number)


def append_row(connection: sqlite3.Connection, head: LedgerHead, text: str) -> LedgerHead:
    """Add a row after ``head``, and return the new end of the log."""
    after = LedgerHead(head.rows + 1, chained(head.digest, text))
    added = connection.execute(
        "INSERT INTO log (row, body, digest) VALUES (?, ?, ?)", (after.rows, text, after.digest)
    )
    require(added.rowcount == 1, "a ledger that takes new rows", rows=head.rows)
    return after


def chained(previous: str, text: str) -> str:
    """Return the digest of a row that follows a row of digest ``previous``."""
    return hashlib.blake2b(f"{previous}\n{text}".encode(), digest_size=16).hexdigest()


class Ledger:
    """The releases from one private data set, in a SQLite file shared by all runs on it.

    Opening reads all rows, without a lock. Later reads take only the rows added since, after
    checking that the row before them is unchanged.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(Path(folder) / "ledger.sqlite")
    ...     len(ledger.entries())
    0

    Args:
        path: the file, created if it is missing.
        home: the absolute path of the file now, with links resolved. The log records it, so that a
            copy can be told from a file that was moved. None to skip this check.
        max_teachers_per_unit: how many teachers one unit may reach in the releases that are
            reserved here.

    Raises:
        ValueError: if the file exists but is not an intact ledger, if it cannot be written, or if
            it is a copy of a ledger that still lies in the recorded place: two copies would be two
            budgets.
    """

    def __init__(
        self, path: Path, *, home: Path | None = None, max_teachers_per_unit: int = 1
    ) -> None:
        require_count(1, max_teachers_per_unit=max_teachers_per_unit)
        self.path, self.max_teachers_per_unit = Path(path), int(max_teachers_per_unit)
        self._alone = threading.Lock()
        with log_errors(self.path):
            if not self.path.exists():
                make_log(self.path)
            remove_abandoned(self.path)  # of processes that were killed as they made it
            require_writable(self.path)
        self._history = _read_history(self.path)
        if home is not None and home != self._history.terms.home:
            with self._transaction() as connection:
                self._require_no_copy()
                self._append(connection, {"kind": "home", "path": str(home)})

    def snapshot(self) -> LedgerSnapshot:
        """Return the content of the ledger."""
        with self._reading() as history:
            return history.snapshot()

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all releases, oldest first."""
        return self.snapshot().entries

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
        token: str | None = None,
        privacy_unit: PrivacyUnit,
    ) -> int:
        """Reserve the cost of ``count`` queries before their noise; return the release number.

        With a token that is in the ledger already, nothing is written and its release is returned.
        So a process that was killed before it learned the number can ask again.

        Args:
            events: the cost of one query under each relation.
            count: the largest number of queries that may be answered, ``1..2**53``.
            run: the run that asks.
            description: a description of the release, for readers of the ledger.
            seeded: whether the noise comes from a fixed seed, so that nothing is private.
            budget: the limit on all releases together. The first one given is final for this
                ledger.
            delta: the delta of this release's epsilon. None for the delta of
                the budget.
            token: a text unique to this release, for finding it again. None for none.
            privacy_unit: for whom it is priced.

        Raises:
            ValueError: if the ledger's budget cannot pay for the release, holds for other units or
                for units that reach fewer teachers, or differs from ``budget``, or if the token
                belongs to a release of another cost. Nothing is written then.
            LedgerAccessError: if the ledger cannot be written, and a fresh connection finds no
                release with the token; or if that cannot read either: then one may be there.
        """
        require_events(events)  # also computes slow curves before the lock makes others wait
        asked = LedgerEntry(
            release=1,
            at=_now(),
            run=run,
            description=description,
            events=dict(events),
            count=count,
            seeded=bool(seeded),
            privacy_unit=privacy_unit,
            max_teachers_per_unit=self.max_teachers_per_unit,
            delta=delta,
            token=token,
        )
        try:
            with self._transaction() as connection:
                if (before := self._with_token_of(asked)) is not None:
                    return before
                for body in self._history.rows_for(asked, budget):
                    self._append(connection, body)
                return len(self._history.entries)
        except LedgerAccessError:
            # a commit whose last sync failed is there
            with log_errors(self.path):
                sync_folder(self.path.parent)
            with self._reading():
                written = self._with_token_of(asked)
            if written is None:
                raise
            return written

    def _with_token_of(self, asked: LedgerEntry) -> int | None:
        """Return the release that has the token of ``asked`` already, at the same cost."""
        before = () if asked.token is None else self._history.entries
        for entry in (entry for entry in before if entry.token == asked.token):
            require(
                (entry.events, entry.count, entry.seeded)
                == (asked.events, asked.count, asked.seeded),
                f"the cost that release {entry.release} reserved with this token",
            )
            return entry.release
        return None

    def settle(
        self,
        release: int,
        *,
        realised: Sequence[Charge] | None = None,
        published: Mapping[str, Any] | None = None,
    ) -> LedgerHead:
        """Record that a reserved release was published. Repeating a settlement changes nothing.

        Where only the published facts have changed, the new ones are recorded.

        Args:
            release: the number of the release.
            realised: the final charges, as pairs ``(events, count)``. None if they are the
                reservation.
            published: the published facts in plain JSON types, with the ``sha256`` of the file.
                None for a release without a statement.

        Returns:
            Where the ledger ended when the release was settled: at the row that settled it.

        Raises:
            ValueError: if nothing was reserved under this number, if ``realised`` costs more than
                the reservation at some order, or if the release was settled for another cost, or as
                another file, before. Nothing is written then.
        """
        # a spent iterator would cost nothing
        require(
            realised is None or isinstance(realised, list | tuple),
            "a list of charges or None",
            realised=realised,
        )
        for charge in realised or ():
            require(
                isinstance(charge, tuple | list) and len(charge) == 2,
                "charges of events and count",
                charge=charge,
            )
            events, count = charge
            require_events(events)
            require_charged_count(0, count)
        charges = (
            None if realised is None else tuple((events, int(count)) for events, count in realised)
        )
        plain_published = None if published is None else json.loads(json.dumps(published))
        with self._transaction() as connection:
            entry = self._history.entry(release, self.path)
            same = entry.realised == charges and plain_published in (None, entry.published)
            if entry.settled and same:
                return self._history.settled_at(entry.release)
            self._append(
                connection,
                {
                    "kind": "settle",
                    "release": entry.release,
                    "realised": None if charges is None else plain_charges(charges),
                    "published": plain_published,
                },
            )
            return self._history.head

    @contextmanager
    def _reading(self) -> Iterator[History]:
        with self._alone, opened_log(self.path, writable=False) as connection:
            self._catch_up(connection)
            yield self._history

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._alone:
            before = self._history.head
            try:
                # the lock is taken before the budget is read: two processes never both spend the
                # same remainder
                with locked_log(self.path) as connection:
                    self._catch_up(connection)
                    before = self._history.head
                    yield connection
            except BaseException:
                if self._history.head != before:  # the history has rows that the file has not
                    self._history = History()
                raise

    def _require_no_copy(self) -> None:
        last = self._history.terms.home
        if last is None or not last.is_file() or last.samefile(self.path):
            return
        with opened_log(last, writable=False) as other:
            # another ledger may have taken the place of one that was moved away
            (_, first), *_ = [*next(rows_after(other, LedgerHead(), last), []), ("", None)]
        copied = first is not None and self._history.snapshot().follows(LedgerHead(1, first))
        require(
            not copied,
            f"one ledger for the same private data; `ledger` {last} names the original",
            copy=str(self.path),
        )

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        for rows in rows_after(connection, self._history.head, self.path):
            self._history.fold_rows(rows, self.path)

    def _append(self, connection: sqlite3.Connection, body: dict[str, Any]) -> None:
        text = json.dumps({"at": _now()} | body, allow_nan=False)
        # a row that no reader could read is refused here, before it is written
        head = self._history.head
        self._history.fold(json.loads(text), chained(head.digest, text))
        append_row(connection, head, text)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_ledger(path: Path, *, rows: int | None = None) -> LedgerSnapshot:
    """Return the content of the ledger at ``path``, read-only; only the first ``rows`` if given.

    Every reader checks the file, the chain of digests and the form of events, and all releases
    pass through the filter again.

    Returns:
        the releases, and the budget and its filter if one was declared.

    Raises:
        ValueError: if there is no file, or it is no ledger or was changed.
    """
    return _read_history(Path(path), rows=rows).snapshot()


def require_payable(
    path: Path,
    charge: Charge,
    *,
    budget: Budget | None,
    delta: float,
    max_teachers_per_unit: int,
    privacy_unit: PrivacyUnit,
) -> None:
    """Raise ``ValueError`` as `Ledger.reserve` would, of a ledger that may be yet to be made.

    Writes nothing.
    """
    history, (events, count) = _read_history(path) if path.exists() else History(), charge
    entry = LedgerEntry(
        release=1,
        at=_now(),
        run="",
        description="",
        events=events,
        count=count,
        seeded=False,
        privacy_unit=privacy_unit,
        max_teachers_per_unit=max_teachers_per_unit,
        delta=delta,
    )
    for row in history.rows_for(entry, budget):
        history.fold({"at": entry.at} | row)


def _read_history(path: Path, *, rows: int | None = None, final: bool = False) -> History:
    require(path.is_file(), "a ledger", path=str(path))
    history, before = History(), _marks_of(path)
    if not final and rows is None and path in _READ and _READ[path][0] == before:
        return _READ[path][1].copied()
    with opened_log(path, writable=False) as connection, ExitStack() as after:
        if gc.isenabled():  # it would walk over all rows again and again
            gc.disable()
            after.callback(gc.enable)
        check = "integrity_check" if final else "quick_check"
        (state,) = connection.execute(f"PRAGMA {check}").fetchone()
        require(state == "ok", "an intact ledger", path=str(path), state=state)
        for block in rows_after(connection, history.head, path):
            history.fold_rows(block if rows is None else block[: rows - history.head.rows], path)
            if history.head.rows == rows:
                break
    # a change within the same tick of the clock would leave the same marks
    settled = time.time_ns() - max(before[3:]) > _TICK
    if rows is None and settled and _marks_of(path) == before:
        _READ.clear()
        _READ[path] = before, history.copied()
    return history


_READ: dict[Path, tuple[tuple[int, ...], History]] = {}
"""The last large state that this process has read, with the marks of its file, by path."""
_TICK = 2_000_000_000  # nanoseconds


def _marks_of(path: Path) -> tuple[int, ...]:
    status = path.stat()
    changed = status.st_mtime_ns, status.st_ctime_ns
    return status.st_dev, status.st_ino, status.st_size, *changed


def verify_ledger(path: Path) -> LedgerSnapshot:
    """Return the content of the ledger at ``path`` as `read_ledger` does, after more checks.

    All pages of the file are read, and its rows must be final.

    Raises:
        ValueError: at the first figure that does not follow from the events.
    """
    return _read_history(Path(path), final=True).snapshot()
