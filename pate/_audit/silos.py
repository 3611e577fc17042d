"""Whole exchanges of silos with made-up counts, in one process: the law of their sum, and isolation."""

import json
import math
import shutil
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pate._audit.laws import Gaussians, Outcomes
from pate._audit.tables import Trial, scratch
from pate._files.reading import digest
from pate._runs import Run
from pate._silos.exchange import AwaitedError, Exchange, Invitation
from pate._silos.member import Consent, Member
from pate._silos.secrets import SigningKey, make_key, read_public_keys
from pate._silos.server import Server, invite
from pate._validation import FloatArray, IntArray
from pate._votes import VoteShape
from pate._votes.named import NamedVotes
from pate.aggregators._noisy_votes import SiloVotes
from pate.mechanisms._noise import decode

_DELTA, _QUERIES = 1e-6, 32


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
            delta=_DELTA,
        )
        shape = len(self.names), self.queries, self.labels
        counts = np.random.default_rng(0).integers(0, self.num_teachers + 1, shape)
        for name, table in zip(self.names, counts, strict=True):
            self.save(name, table)
        invite(self.exchange, self.terms)

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
        return Server(self.exchange, self.key, without)

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


def _meeting(folder: Path, mechanism: SiloVotes, shape: VoteShape) -> Meeting:
    """Return silos that have exchanged keys and shares, and masked nothing but the last ones."""
    meeting = Meeting(
        folder, mechanism, shape.num_teachers // mechanism.silos or 1, _QUERIES, shape.num_labels
    )
    for _ in range(2):
        meeting.advance(meeting.names)
    return meeting


def masked_noise(run: Run, mechanism: SiloVotes, shape: VoteShape) -> list[Gaussians | Outcomes]:
    """Return the noise of two exchanges with made-up counts."""
    with scratch(run, "silos") as folder:
        return [
            Gaussians(_meeting(folder / place, mechanism, shape).noise())
            for place in ("first", "second")
        ]


def masked_isolation(run: Run, mechanism: SiloVotes, shape: VoteShape) -> list[Trial]:
    """Return the row of an exchange that is repeated from the same secrets, with other counts."""
    with scratch(run, "silos") as folder:
        before = _meeting(folder / "before", mechanism, shape)
        after, (first, *others) = copy(before), before.names
        after.folder, after.counts = folder / "after", dict(before.counts)
        shutil.copytree(before.folder, after.folder)
        after.save(first, before.num_teachers - before.counts[first])
        kept = after.folder / first / "private" / "secrets.json"
        votes = {"votes": digest(after.folder / first / "votes.npz")}
        kept.write_text(json.dumps(json.loads(kept.read_text()) | votes))
        vectors = []
        for meeting in (before, after):
            meeting.advance(meeting.names)
            vectors.append([meeting.exchange.masked(name) for name in meeting.names])
        differ = [bool((one != other).any()) for one, other in zip(*vectors, strict=True)]
    return [
        Trial(
            "masked vectors where one silo has other counts",
            f"the bits of {len(differ)} vectors of made-up counts, with the same secrets",
            f"any of the other {len(others)} that depends on them",
            f"{sum(differ)} of {len(differ)} differ",
            "passed" if differ == [True, *(False for _ in others)] else "refuted",
        )
    ]
