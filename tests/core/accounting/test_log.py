"""The file of a ledger: damaged, altered, exchanged or incomplete rows stop every reader."""

import gc
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pate._core.accounting import ledger as _ledger
from pate.accounting import Ledger, LedgerHead, read_ledger, verify_ledger
from tests.core.accounting.ledgers import ONE_LINE, bodies, filled, gaussian, require_stop, reserve


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.999])
def test_a_truncated_ledger_stops(path: Path, keep: float) -> None:
    filled(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    require_stop(path)


@pytest.mark.parametrize("seed", range(3))
def test_a_corrupted_ledger_stops_or_says_the_same(path: Path, seed: int) -> None:
    book = filled(path).snapshot()
    content = bytearray(path.read_bytes())
    chance = random.Random(seed)
    start = chance.randrange(len(content) - 64)
    content[start : start + 64] = chance.randbytes(64)
    path.write_bytes(content)
    try:
        found = verify_ledger(path)
    except ValueError as error:
        stopped = str(error)
    else:
        stopped = ""
        assert found == book  # unused space, or the file's own statistics
    assert not stopped or re.match(ONE_LINE, stopped)


def test_a_deleted_ledger_is_not_created_again(path: Path) -> None:
    ledger = filled(path)
    path.unlink()
    with pytest.raises(ValueError, match=ONE_LINE):
        reserve(ledger, gaussian(60), 1)
    assert not path.exists()


def test_a_read_only_ledger_can_be_read_and_no_more(path: Path) -> None:
    ledger = filled(path)
    path.chmod(0o444)
    with pytest.raises(ValueError, match="Expected a writable ledger"):
        Ledger(path)
    with pytest.raises(ValueError, match=ONE_LINE):
        reserve(ledger, gaussian(60), 1)
    assert len(verify_ledger(path).entries) == 40


def tamper(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for change in ("UPDATE", "DELETE"):
            connection.execute(f"DROP TRIGGER log_{change}")
        connection.execute(statement, values)
        for change in ("UPDATE", "DELETE"):
            connection.execute(
                f"CREATE TRIGGER log_{change} BEFORE {change} ON log BEGIN SELECT 1; END"
            )
        connection.commit()


def test_rows_are_final(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        for change in (
            "UPDATE log SET body = '{}'",
            "DELETE FROM log",
            "DELETE FROM log WHERE row = 3",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="a ledger is final"):
                connection.execute(change)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log SET body = replace(body, '\"count\": 3', '\"count\": 2')",
        "DELETE FROM log WHERE row = 3",
        "UPDATE log SET digest = 'ff' WHERE row = 5",
        "INSERT INTO log (body, digest) VALUES ('{}', 'ff')",
        # numbers that the digests do not depend on
        "UPDATE log SET row = row + 1 WHERE row = (SELECT max(row) FROM log)",
        "UPDATE log SET row = 0 WHERE row = 1",
        "UPDATE log SET row = -1 WHERE row = 1",
    ],
)
def test_a_row_that_was_changed_is_noticed(path: Path, statement: str) -> None:
    filled(path)
    tamper(path, statement)
    require_stop(path)
    assert gc.isenabled()  # which reading pauses


@pytest.mark.parametrize("rows", [1, 3])
def test_another_ledger_in_its_place_is_noticed_by_who_had_it_open(path: Path, rows: int) -> None:
    ledger, other = Ledger(path), Ledger(path.with_name("other"))
    reserve(ledger, gaussian(60), 1)
    for _ in range(rows):
        reserve(other, gaussian(70), 1)
    path.write_bytes(other.path.read_bytes())
    for use in (ledger.entries, lambda: reserve(ledger, gaussian(60), 1)):
        with pytest.raises(ValueError, match=r"^Expected a ledger at [^\n]* that continues row 1$"):
            use()


def test_rows_that_never_reached_the_file_are_forgotten(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = filled(path)
    with monkeypatch.context() as patch:

        def full(*_: object) -> LedgerHead:
            raise sqlite3.OperationalError("database or disk is full")

        patch.setattr("pate._core.accounting.ledger.append_row", full)
        with pytest.raises(ValueError, match="disk is full"):
            reserve(ledger, gaussian(600), 1)
    assert len(ledger.entries()) == 40
    assert reserve(ledger, gaussian(600), 1) == 41
    verify_ledger(path)


@pytest.mark.parametrize("keep", [0, 1, 80])
def test_rows_missing_at_the_end_are_noticed(path: Path, keep: int) -> None:
    filled(path)
    tamper(path, "DELETE FROM log WHERE row > ?", keep)
    require_stop(path)


@pytest.mark.parametrize("journal", ["WAL", "PERSISTENT WAL"])
def test_another_journal_stops(path: Path, journal: str) -> None:
    ledger = filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        if journal != "WAL":
            require_stop(path)  # while somebody has it open
    require_stop(path)
    with pytest.raises(ValueError, match="Expected a ledger with PRAGMA journal_mode = delete"):
        reserve(ledger, gaussian(60), 1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    reserve(ledger, gaussian(6000), 1)


def test_rows_that_may_be_changed_are_noticed(path: Path) -> None:
    filled(path)
    tamper(path, "UPDATE log SET body = body")
    with pytest.raises(ValueError, match="Expected a ledger whose rows are final"):
        verify_ledger(path)


def test_a_ledger_that_drops_what_is_added_is_noticed(path: Path) -> None:
    filled(path)
    rows = len(bodies(path))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TRIGGER gone BEFORE INSERT ON log BEGIN SELECT RAISE(IGNORE); END"
        )
        connection.commit()
    with pytest.raises(ValueError, match="Expected a ledger whose rows are final"):
        reserve(Ledger(path), gaussian(600), 1)
    assert len(bodies(path)) == rows


def test_reading_holds_no_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = filled(path)
    monkeypatch.setattr(_ledger, "_ROWS", 8)
    with _ledger.opened_log(path, writable=False) as connection:
        rows = _ledger.rows_after(connection, LedgerHead(), path)
        next(rows)
        reserve(ledger, gaussian(6000), 1)  # while the others are not read yet
        assert sum(map(len, rows)) == 82 - 8  # with the new one
    assert len(verify_ledger(path).entries) == 41


@pytest.mark.parametrize("version", [3, 5])
def test_a_ledger_of_another_format_is_refused(path: Path, version: int) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    require_stop(path)
    with pytest.raises(ValueError, match=rf"^Expected format 4 in [^\n]*, got format={version}$"):
        read_ledger(path)


def test_a_file_whose_pages_do_not_fit_together_is_refused(path: Path) -> None:
    """Its rows are as they were: only the number of free pages is another."""
    reserve(Ledger(path), gaussian(60), 1)
    content = bytearray(path.read_bytes())
    content[39] = 5
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^Expected an intact ledger, got [^\n]*state="):
        read_ledger(path)
