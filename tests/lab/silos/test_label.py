"""`pate label --silos`: what it waits for, pays for and releases."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from pate import ReleasedLabels, cli
from pate._core.mechanisms.noise import decode
from pate.accounting import read_ledger
from pate.lab.silos.exchange import Exchange
from pate.lab.silos.parties import Server
from tests.lab.silos.exchanges import LABELS, Hospitals

QUERIES = 6


class Labelling(Hospitals):
    """The silos, with the server's command in place of its part."""

    def __init__(self, folder: Path, *more: str, silos: int = 3) -> None:
        super().__init__(folder, silos=silos, queries=QUERIES, invited=False)
        self.more = [
            f"--aggregator.sigma_silos={3.0}",
            f"--aggregator.silos={silos}",
            "--aggregator.dropouts=1",
            "--aggregator.single_sums=true",
            *more,
        ]
        rows = QUERIES + 3
        np.savez(
            folder / "scans.npz",
            X=np.ones((rows, 2), dtype=np.float32),
            Y=np.zeros((rows, len(LABELS)), dtype=np.uint8),
            ids=np.array([*self.ids, "test-0", "test-1", "test-2"]),
            label_names=np.array(LABELS),
            split=np.repeat([1, 2], [QUERIES, 3]),
        )

    def label(self, *more: str, run: str = "run") -> int:
        """Run the server's command, which does what it can and says what it awaits."""
        words = [
            "label",
            "--silos",
            str(self.shared),
            "--run",
            str(self.folder / run),
            "--wait",
            "0",
        ]
        words += [f"--teachers.{name}={number}" for name, number in self.teachers.items()]
        words += [
            "--public_keys",
            str(self.folder / "keys"),
            "--signing_key",
            str(self.signing_key("server")),
        ]
        words += [
            "--data",
            "Arrays",
            "--data.path",
            str(self.folder / "scans.npz"),
            "--unit",
            "patient",
        ]
        return cli.main([*words, "--delta", "1e-6", "--aggregator", "SiloVotes", *self.more, *more])

    def num_paid(self) -> int:
        ledger = self.folder / "run" / "ledger.sqlite"
        return len(read_ledger(ledger).entries) if ledger.is_file() else 0

    def release(self) -> ReleasedLabels:
        return ReleasedLabels.load(self.folder / "run")

    def require_curators(self, *names: str) -> None:
        """Compare what is released with the release of a curator who has the same noise, bit by
        bit."""
        terms = self.exchange.invitation
        words, silos = self.curators(*names)
        noisy_counts = decode(words, terms.mechanism.share_sigma, silos)
        released = self.release()
        assert released.ids.tolist() == list(terms.ids) and released.num_teachers == sum(
            self.teachers.values()
        )
        np.testing.assert_array_equal(released.noisy_counts, noisy_counts)
        np.testing.assert_array_equal(released.labels, noisy_counts > released.num_teachers / 2)
        assert released.noise_std == pytest.approx(3.0 * np.sqrt(len(names)))


def test_it_pays_before_the_sum_can_be_unmasked_and_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    silos = Labelling(tmp_path)
    assert silos.label() == 0
    assert "Waiting for keys of north, south, west. Nothing is lost" in capsys.readouterr().out
    silos.advance(rounds=3)
    assert not silos.num_paid() and not (tmp_path / "exchange" / "survivors.json").exists()
    paid_before = []
    real = Exchange.send

    def send(exchange: Exchange, path: Path, content: bytes) -> None:
        if path.name == "survivors.json":
            paid_before.append(silos.num_paid())
        real(exchange, path, content)

    monkeypatch.setattr(Exchange, "send", send)
    assert silos.label() == 0
    assert "Waiting for unmasking of north, south, west" in capsys.readouterr().out
    assert [*paid_before] == [1] and not (tmp_path / "run" / "public" / "labels.npz").exists()
    silos.advance()
    assert silos.label() == 0
    assert "one patient of the private data is added, removed or altered" in capsys.readouterr().out
    silos.require_curators("north", "south", "west")
    files = {
        path: path.read_bytes()
        for path in (tmp_path / "run" / "public").iterdir()
        if path.suffix != ".json"
    }
    assert silos.label() == 0 and silos.num_paid() == 1
    assert {path: path.read_bytes() for path in files} == files
    assert cli.main(["verify", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert silos.label("--aggregator.sigma_silos", "9") == 2
    assert "was begun with, got other votes" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("when", ["survivors", "open", "after"])
def test_a_server_that_is_killed_goes_on(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silos = Labelling(tmp_path)
    silos.label()
    silos.advance(rounds=3)

    class KilledError(BaseException):
        """What ends a process."""

    real = Server.open

    def dying(server: Server) -> object:
        if when == "survivors":
            raise KilledError
        opened = real(server)
        raise KilledError(opened)

    monkeypatch.setattr(Server, "open", dying)
    if when == "after":
        monkeypatch.setattr(Server, "open", real)
        silos.label()
        silos.advance()
        monkeypatch.setattr(Server, "open", dying)
    with suppress(KilledError):
        silos.label()
    monkeypatch.setattr(Server, "open", real)
    silos.label()
    silos.advance()
    assert silos.label() == 0 and silos.num_paid() == 1
    silos.require_curators("north", "south", "west")
