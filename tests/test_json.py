"""JSON that others may have written."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pate import load_student
from pate._json import read_json
from pate._runs import TEACHERS_FIT, Run
from pate._vote_store import VoteManifest
from pate.accounting._log import chained
from pate.accounting._statement import Statement
from pate.accounting._verification import verify_ledger


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', b'[{"b": {"a": 1, "c": 2, "a": 3}}]', '{"a": 1, "\\u0061": 2}'])
def test_a_key_that_occurs_twice_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"^Expected keys of an object that occur once, got twice=\['a'\]$"):
        read_json(text)


def test_other_content_is_read_as_it_is() -> None:
    content = {"a": [{"a": 1}, {"a": 2}], "b": {"a": None}}
    assert read_json(json.dumps(content)) == content


def test_what_is_nested_too_deeply_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"^Expected JSON that is nested less deeply$"):
        read_json("[" * 100_000)


def doubled(path: Path) -> None:
    """Write the first key of an object twice, the second time as it was."""
    text = path.read_text()
    key = next(iter(json.loads(text)))
    path.write_text(text.replace("{", f'{{"{key}": "another", ', 1))


READERS: dict[str, Callable[[Path], object]] = {
    "private/votes/manifest.json": lambda root: VoteManifest.read(root / "private" / "votes" / "manifest.json"),
    "private/teachers_fit.json": lambda root: Run(root).state(TEACHERS_FIT),
    "public/student/model/model.json": lambda root: load_student(root / "public" / "student" / "model"),
    "public/privacy.json": lambda root: Statement.read(root / "public" / "privacy.json"),
    "public/student/model/privacy.json": lambda root: load_student(root / "public" / "student" / "model"),
}


@pytest.mark.parametrize("name", READERS)
def test_no_file_of_a_run_says_two_things(name: str, copied: Path) -> None:
    READERS[name](copied)
    doubled(copied / name)
    with pytest.raises(ValueError, match=r"^[^\n]*occur once[^\n]*$"):
        READERS[name](copied)


def test_no_row_of_a_ledger_says_two_things(copied: Path) -> None:
    path = copied / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        triggers = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
        for change in ("UPDATE", "DELETE"):
            connection.execute(f"DROP TRIGGER log_{change}")
        previous = ""
        for row, body in connection.execute("SELECT row, body FROM log ORDER BY row").fetchall():
            lie = body.replace("{", '{"kind": "home", ', 1)
            previous = chained(previous, lie)
            connection.execute("UPDATE log SET body = ?, digest = ? WHERE row = ?", (lie, previous, row))
        for trigger in triggers:
            connection.execute(trigger)
        connection.commit()
    with pytest.raises(ValueError, match=r"^Expected an intact ledger at [^\n]* row 1: [^\n]*occur once"):
        verify_ledger(path)
