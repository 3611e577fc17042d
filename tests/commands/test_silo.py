"""`pate silo`."""

import threading
from pathlib import Path

import pytest

from pate import cli
from pate._silos.exchange import waiting
from tests.silos.exchanges import Hospitals


def words(hospitals: Hospitals, name: str, *more: str) -> list[str]:
    folder = hospitals.folder
    files = ["--votes", str(hospitals.votes(name)), "--state", str(folder / name / "private")]
    return ["silo", str(folder / "exchange"), "--name", name, *files, *more]


def test_a_silo_says_what_it_awaits_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hospitals = Hospitals(tmp_path, colluding=1, dropouts=0)
    assert cli.main(words(hospitals, "north", "--wait", "0")) == 0
    invited = (
        "2 labels of 4 samples, from north, south, west. The noise of a count is 3 votes or more, of each silo 2.121"
    )
    assert capsys.readouterr().out.splitlines() == [
        f"north: {invited}, though 1 tell what they drew and 0 drop out",
        "north: waiting for keys of south, west",
        "north: the same command goes on from here",
    ]
    hospitals.advance()
    assert cli.main(words(hospitals, "north", "--wait", "0.1")) == 0
    digest = hospitals.exchange.roster_digest
    assert f"north: the digest of all keys, the same at each silo, is {digest}" in capsys.readouterr().out


def test_silos_that_wait_finish_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pate._silos.exchange._POLL_SECONDS", 0.01)
    hospitals = Hospitals(tmp_path)
    silos = [threading.Thread(target=cli.main, args=(words(hospitals, name),)) for name in hospitals.teachers]
    for silo in silos:
        silo.start()
    waiting(hospitals.server().open, 30)
    for silo in silos:
        silo.join()
    assert "west: done. In the sum: north, south, west" in capsys.readouterr().out


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hospitals = Hospitals(tmp_path)
    assert cli.main(words(hospitals, "south", "--name", "charite")) == 2
    assert capsys.readouterr().err.startswith("pate silo: Expected a silo among north, south, west, got name='charite'")
    assert cli.main(words(hospitals, "south", "--max_epsilon", "2")) == 2
    assert capsys.readouterr().err.startswith("pate silo: Expected --max_epsilon with --delta, got max_epsilon=2.0")
