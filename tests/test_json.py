"""JSON of a stranger is refused in one line, wherever it is read."""

import json
from pathlib import Path

import pytest

from pate import cli
from pate._json import read_json
from pate.accounting._statement import Statement
from tests.silos.exchanges import Hospitals

HOSTILE = {
    "nested": ("[" * 100_000, "JSON of at most 100 levels"),
    "closed": ("[" * 100_000 + "]" * 100_000, "JSON of at most 100 levels"),
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
    (tmp_path / "privacy.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        Statement.read(tmp_path / "privacy.json")


@hostile
def test_a_model_is(
    content: str | bytes, message: str, copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = copied / "public" / "student" / "model"
    (model / "model.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert cli.main(["predict", str(model), str(tmp_path / "data.npz"), "--output", str(tmp_path / "a.csv")]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1 and not (tmp_path / "a.csv").exists()


@hostile
def test_a_silos_keys_and_an_invitation_are(content: str | bytes, message: str, tmp_path: Path) -> None:
    silos = Hospitals(tmp_path)
    silos.advance()
    written = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "exchange" / "keys" / "south.json").write_bytes(written)
    with pytest.raises(ValueError, match=message):
        silos.member("north").advance()
    (tmp_path / "exchange" / "invitation.json").write_bytes(written)
    with pytest.raises(ValueError, match=message):
        silos.member("north").advance()


def test_what_is_ordinary_is_read() -> None:
    content = {"a": [{"b": [1, -(10**307), 0.5, None, "[[[{"]}], "c": {}}
    assert read_json(json.dumps(content)) == content
    assert read_json("[" * 100 + "]" * 100) == json.loads("[" * 100 + "]" * 100)
    assert read_json("7") == 7 and read_json('"x"') == "x"
