"""Silos and a server that meet in one process, for audits and measurements of their protocol."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pate._core.mechanisms.noise import decode
from pate._core.validation import FloatArray, IntArray
from pate._labeling.aggregators.noisy_votes import SiloVotes
from pate._labeling.runs.named_votes import NamedVotes
from pate.lab.silos.exchange import AwaitedError, Exchange, Invitation
from pate.lab.silos.member import Consent, Member
from pate.lab.silos.secrets import SigningKey, make_key, read_public_keys
from pate.lab.silos.server import Server


@dataclass
class Meeting:
    """Silos and a server in one process, with the files of `pate silo` and `pate label --silos`.

    Args:
        folder: an empty one.
        mechanism: the agreed mechanism.
        num_teachers: of each silo.
        queries: the number of samples.
        labels: the number of labels.
    """

    folder: Path
    mechanism: SiloVotes
    num_teachers: int
    queries: int
    labels: int
    counts: dict[str, IntArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = [f"silo-{number:02d}" for number in range(self.mechanism.silos)]
        for name in (*self.names, "server"):
            make_key(self.folder / name / "silo.pem", self.folder / "keys" / f"{name}.pub")
        self.key = SigningKey.read(self.folder / "server" / "silo.pem")
        self.terms = Invitation(
            teachers=dict.fromkeys(self.names, self.num_teachers),
            keys=read_public_keys(self.folder / "keys", self.names),
            server_key=self.key.public,
            ids=np.char.mod("%05d", np.arange(self.queries)).tolist(),
            label_names=np.char.mod("%02d", np.arange(self.labels)).tolist(),
            sigma_silos=float(self.mechanism.sigma_silos),
            colluding=self.mechanism.colluding,
            dropouts=self.mechanism.dropouts,
            single_sums=self.mechanism.single_sums,
            delta=1e-6,
        )
        shape = len(self.names), self.queries, self.labels
        counts = np.random.default_rng(0).integers(0, self.num_teachers + 1, shape)
        for name, table in zip(self.names, counts, strict=True):
            self.save(name, table)
        self.server().invite()

    def save(self, name: str, counts: IntArray) -> None:
        """Write the counts of a silo."""
        self.counts[name] = counts
        NamedVotes(
            ids=np.array(self.terms.ids),
            label_names=tuple(self.terms.label_names),
            counts=counts,
            num_teachers=self.num_teachers,
        ).save(self.folder / name / "votes.npz")

    @property
    def exchange(self) -> Exchange:
        """The exchange, with nothing of it in memory."""
        return Exchange(self.folder / "exchange")

    def member(self, name: str) -> Member:
        """Return a silo, as a new process would find it."""
        place = self.folder / name
        consent = Consent(digest=self.terms.digest, accepts=lambda _: True)
        files = place / "votes.npz", place / "private", place / "silo.pem"
        return Member(self.exchange, name, *files, consent, place / "paid")

    def advance(self, names: Sequence[str]) -> None:
        """Let silos take all possible steps."""
        for name in names:
            with suppress(AwaitedError):
                self.member(name).advance()

    def server(self, *without: str) -> Server:
        """Return the server, as a new process would find it."""
        return Server(self.exchange, self.key, self.terms, without)

    def noise(self) -> FloatArray:
        """End the exchange, and return the noise ``[Q, C]`` of the sum in its stated deviations."""
        self.advance(self.names)
        with suppress(AwaitedError):
            self.server().open()
        self.advance(self.names)
        total, shares = self.server().open()
        sigma = self.mechanism.share_sigma
        noise = decode(total, sigma, shares) - sum(self.counts.values())
        return np.asarray(noise / (sigma * math.sqrt(shares)))
