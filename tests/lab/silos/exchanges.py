"""Small exchanges for tests."""

import json
import shutil
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

import pate
from pate._core.mechanisms.noise import summand
from pate._core.validation import IntArray
from pate.lab.silos.exchange import SERVER, AwaitedError, Exchange, Invitation
from pate.lab.silos.parties import Consent, Member, Server
from pate.lab.silos.secrets import SigningKey, WordArray, make_key, read_public_keys
from pate.mechanisms import private_generator

LABELS = ("effusion", "nodule")
TEACHERS = {"north": 5, "south": 7, "west": 4, "east": 3, "mercy": 2}


class Hospitals:
    """Silos and a server in one folder, whose files are those of `pate silo` and `pate label
    --silos`."""

    def __init__(
        self,
        folder: Path,
        *,
        silos: int = 3,
        colluding: int = 1,
        dropouts: int = 1,
        queries: int = 4,
        invited: bool = True,
    ) -> None:
        self.folder = folder
        self.teachers = dict(list(TEACHERS.items())[:silos])
        self.ids = [f"scan-{number}" for number in range(queries)]
        generator = np.random.default_rng(0)
        self.counts: dict[str, IntArray] = {}
        for name, number in self.teachers.items():
            ballots = generator.integers(0, 2, size=(queries, number, len(LABELS)), dtype=np.uint8)
            self.counts[name] = ballots.sum(axis=1, dtype=np.int64)
            pate.NamedVotes(ids=np.array(self.ids), label_names=LABELS, ballots=ballots).save(
                self.votes(name)
            )
        for name in (*self.teachers, "server"):
            make_key(self.signing_key(name), folder / "keys" / f"{name}.pub")
        self.terms = Invitation(
            teachers=self.teachers,
            keys=read_public_keys(folder / "keys", self.teachers),
            server_key=SigningKey.read(self.signing_key("server")).public,
            ids=self.ids[::-1],
            label_names=LABELS,
            sigma_silos=3.0,
            colluding=colluding,
            dropouts=dropouts,
            delta=1e-6,
            single_sums=silos - colluding - dropouts == 1,
        )
        if invited:
            self.invite(self.terms)

    def invite(self, terms: Invitation) -> None:
        """Invite to terms in place of others, as the server does."""
        for path in self.shared.glob("invitation*"):
            path.unlink()
        self.exchange.invite(terms, SigningKey.read(self.signing_key("server")))

    def copied(self, folder: Path) -> "Hospitals":
        """Return these silos in another folder, with all that they have sent and kept."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        other = copy(self)
        other.folder = folder
        return other

    @property
    def exchange(self) -> Exchange:
        """The exchange, with nothing of it in memory."""
        return Exchange(self.shared)

    @property
    def shared(self) -> Path:
        """The folder of the exchange."""
        return self.folder / "exchange"

    def sent(self, kind: str, name: str) -> Path:
        """Return the file of a silo, or of the server, in the exchange."""
        return self.exchange.path(kind, name)

    def votes(self, name: str) -> Path:
        return self.folder / name / "votes.npz"

    def signing_key(self, name: str) -> Path:
        return self.folder / name / "silo.pem"

    def consent(self, **changes: Any) -> Consent:
        """Return what people agree to who know the keys of all others."""
        keys = {**self.terms.keys, SERVER: self.terms.server_key}
        return Consent(**{"public_keys": keys, "accepts": lambda _: True, **changes})

    def member(self, name: str, **changes: Any) -> Member:
        state, consent = self.folder / name / "private", self.consent(**changes)
        return Member(self.exchange, name, self.votes(name), state, self.signing_key(name), consent)

    def advance(self, *names: str, rounds: int = 1) -> list[str]:
        """Let silos do what they can, by turns, and return what each awaits in the end, or whom it
        knows in the sum."""
        for _ in range(rounds):
            awaited = []
            for name in names or self.teachers:
                try:
                    awaited.append("done: " + ", ".join(self.member(name).advance()))
                except AwaitedError as error:
                    awaited.append(str(error))
        return awaited

    def forge(self, kind: str, name: str, *, by: str | None = None, **changes: Any) -> None:
        """Change what a silo sent, as itself would that cheats, or another that signs in its
        name."""
        path, key = self.sent(kind, name), SigningKey.read(self.signing_key(by or name))
        content = json.loads(path.read_text()) | changes
        del content["invitation"], content["signature"]
        path.write_bytes(self.exchange.message(kind, name, key, **content))

    def reveal(self, *without: str) -> None:
        """Go as far as all silos that are not left out have revealed their shares."""
        self.advance(rounds=3)
        for name in without:
            self.sent("masked", name).unlink()
        with suppress(AwaitedError):
            self.server(*without).open()
        self.advance(*[name for name in self.teachers if name not in without])

    def server(self, *without: str) -> Server:
        key = SigningKey.read(self.signing_key("server"))
        return Server(self.exchange, key, self.terms, without)

    def curators(self, *names: str) -> tuple[WordArray, int]:
        """Return the sum of some silos that a curator would have, who saw their counts and their
        noise."""
        terms = self.exchange.invitation
        rows = [self.ids.index(query) for query in terms.ids]
        words = np.zeros((len(rows), len(LABELS)), dtype=np.uint64)
        for name in names or self.teachers:
            noise = private_generator(self.member(name)._secrets.noise_key)
            words += summand(self.counts[name][rows], terms.mechanism.share_sigma, noise)
        return words, len(names or self.teachers)
