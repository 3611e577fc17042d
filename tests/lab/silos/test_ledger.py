"""One ledger for the votes of a silo: `pate silo` and `pate label` of the same votes."""

from pathlib import Path

import pytest

from pate import cli
from tests.lab.silos.exchanges import Hospitals
from tests.labeling.release.test_one_ledger import Captured, label, ledgers


class TestSilo:
    """`pate silo` and `pate label` of the same votes."""

    @pytest.fixture
    def hospitals(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hospitals:
        monkeypatch.chdir(tmp_path)
        return Hospitals(tmp_path)

    @staticmethod
    def send(hospitals: Hospitals, capsys: Captured, *words: str) -> str:
        """Let north send what it can, and return what it says on stderr."""
        hospitals.advance("south", "west", rounds=3)
        files = ["--votes=north/votes.npz", "--state=north/private", "--signing_key=north/silo.pem"]
        files += ["--public_keys=keys", "--wait=0"]
        for _ in range(3):
            cli.main(["silo", "exchange", "--name=north", *files, *words])
            hospitals.advance("south", "west")
        return capsys.readouterr().err

    def test_first_label(self, hospitals: Hospitals, capsys: Captured) -> None:
        assert label("north", "run") == 0
        assert "Expected epsilon <= 1" in self.send(hospitals, capsys)
        assert (
            ledgers()["north/ledger.sqlite"] == 1 and "north/votes.ledger.sqlite" not in ledgers()
        )
        assert not (hospitals.folder / "exchange" / "masked-north.npz").exists()

    def test_first_silo(self, hospitals: Hospitals, capsys: Captured) -> None:
        assert not self.send(hospitals, capsys, "--max_epsilon=9", "--delta=1e-6")
        assert ledgers()["north/votes.ledger.sqlite"] == 1
        assert label("north", "run") == 2
        assert "other=" in capsys.readouterr().err and "north/ledger.sqlite" not in ledgers()
        assert label("north/votes.npz", "run") == 2
        assert "Expected the budget of the ledger" in capsys.readouterr().err
