"""JSON of a stranger is refused in one line, wherever it is read."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pate._core.accounting.ledger import chained
from pate._core.files.reading import read_json, read_yaml
from pate.accounting import verify_ledger
from tests.networks.conftest import finished as finished

HOSTILE = {
    "nested": ("[" * 30_000, "JSON of at most 100 levels"),
    "closed": ("[" * 30_000 + "]" * 30_000, "JSON of at most 100 levels"),
    "deep": ('{"a": ' * 101 + "1" + "}" * 101, "JSON of at most 100 levels"),
    "large": ('{"cuts": [' + "1" * 400 + "]}", "whole numbers of at most 308 digits"),
    "larger": ('{"cuts": [-' + "1" * 5000 + "]}", "whole numbers of at most 308 digits"),
    "twice": ('{"a": 1, "a": 2}', "keys of an object that occur once"),
    "bytes": (b"\xff", "utf-8"),
}
hostile = pytest.mark.parametrize(("content", "message"), HOSTILE.values(), ids=list(HOSTILE))


@hostile
def test_it_is_refused(content: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        read_json(content)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 1}', b'[{"b": {"a": 1, "c": 2, "a": 3}}]', '{"a": 1, "\\u0061": 2}']
)
def test_a_key_that_occurs_twice_is_refused(text: str | bytes) -> None:
    with pytest.raises(
        ValueError, match=r"^Expected keys of an object that occur once, got twice=\['a'\]$"
    ):
        read_json(text)


def test_yaml_has_words_of_digits_and_no_larger_numbers_than_json() -> None:
    assert read_yaml("[x², ², --5, +-3, -, -7]") == ["x²", "²", "--5", "+-3", "-", -7]
    for sign in ("", "+", "-"):
        with pytest.raises(ValueError, match="whole numbers of at most 308 digits"):
            read_yaml(f"[{sign}{'1' * 309}]")


def test_no_row_of_a_ledger_says_two_things(copied: Path) -> None:
    path = copied / "ledger.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        triggers = [
            sql
            for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")
        ]
        for change in ("UPDATE", "DELETE"):
            connection.execute(f"DROP TRIGGER log_{change}")
        previous = ""
        for row, body in connection.execute("SELECT row, body FROM log ORDER BY row").fetchall():
            lie = body.replace("{", '{"kind": "home", ', 1)
            previous = chained(previous, lie)
            connection.execute(
                "UPDATE log SET body = ?, digest = ? WHERE row = ?", (lie, previous, row)
            )
        for trigger in triggers:
            connection.execute(trigger)
        connection.commit()
    with pytest.raises(
        ValueError, match=r"^Expected an intact ledger at [^\n]* row 1: [^\n]*occur once"
    ):
        verify_ledger(path)
