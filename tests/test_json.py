"""JSON of a stranger is refused in one line, wherever it is read."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pate import cli, load_student
from pate._core.accounting.ledger import chained
from pate._core.files.reading import read_json
from pate._labeling.runs.run import TEACHERS_FIT, Run
from pate.accounting import Statement, verify_ledger
from pate.teachers import VoteManifest
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


@hostile
def test_a_statement_is(content: str | bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "privacy.json").write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    with pytest.raises(ValueError, match=message):
        Statement.read(tmp_path / "privacy.json")


@hostile
def test_a_model_is(
    content: str | bytes,
    message: str,
    copied: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = copied / "public" / "student" / "model"
    (model / "model.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert (
        cli.main(
            ["predict", str(model), str(tmp_path / "data.npz"), "--output", str(tmp_path / "a.csv")]
        )
        == 2
    )
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1 and not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 1}', b'[{"b": {"a": 1, "c": 2, "a": 3}}]', '{"a": 1, "\\u0061": 2}']
)
def test_a_key_that_occurs_twice_is_refused(text: str | bytes) -> None:
    with pytest.raises(
        ValueError, match=r"^Expected keys of an object that occur once, got twice=\['a'\]$"
    ):
        read_json(text)


def doubled(path: Path) -> None:
    """Write the first key of an object twice, the second time as it was."""
    text = path.read_text()
    key = next(iter(json.loads(text)))
    path.write_text(text.replace("{", f'{{"{key}": "another", ', 1))


READERS: dict[str, Callable[[Path], object]] = {
    "private/votes/manifest.json": lambda root: VoteManifest.read(
        root / "private" / "votes" / "manifest.json"
    ),
    "private/teachers_fit.json": lambda root: Run(root).state(TEACHERS_FIT),
    "public/student/model/model.json": lambda root: load_student(
        root / "public" / "student" / "model"
    ),
    "public/privacy.json": lambda root: Statement.read(root / "public" / "privacy.json"),
    "public/student/model/privacy.json": lambda root: load_student(
        root / "public" / "student" / "model"
    ),
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
