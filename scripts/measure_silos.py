"""Measure the knowledge of each party of a sum of silos: the threat table of docs/appendix/silo-parties.md.

python -m scripts.measure_silos

Five silos, of which two may collude and one may drop out, sum their votes through files, and one
drops out. For each party this measures the noise that remains in its best sum, and the epsilon
of a Gaussian mechanism of that noise. Then all lists that a server could show to honest silos are
tried, for small numbers of silos.
"""

import argparse
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chisquare, norm

from pate import VoteShape
from pate._core.mechanisms.noise import decode, share_grid, summand
from pate._core.validation import FloatArray, IntArray
from pate._labeling.release.completion import scale_to_target
from pate._labeling.runs.named_votes import NamedVotes
from pate.accounting import Target
from pate.aggregators import SiloVotes
from pate.lab.silos.exchange import AwaitedError, Exchange, Invitation
from pate.lab.silos.member import Consent, Member
from pate.lab.silos.secrets import SigningKey, commitment, make_key, read_public_keys, rebuilt
from pate.lab.silos.server import Server
from pate.mechanisms import private_generator
from tests.lab.silos.lists import opened_sums

DELTA = 1e-6


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

    def share(self, name: str) -> np.ndarray:
        """Return a silo's part of the sum: its counts with noise that it can repeat."""
        noise = private_generator(self.member(name)._secrets.noise_key)
        return summand(self.counts[name], self.terms.mechanism.share_sigma, noise)


def epsilon_of(sigma: float, *, queries: int, labels: int) -> float:
    """Return the epsilon at `DELTA` of Gaussian noise on all counts (Balle & Wang)."""
    mu = math.sqrt(queries * labels) / sigma

    def excess(epsilon: float) -> float:
        first, second = norm.logcdf(mu / 2 - epsilon / mu), norm.logcdf(-mu / 2 - epsilon / mu)
        return float(np.exp(first) - np.exp(epsilon + second) - DELTA)

    return float(brentq(excess, 1e-9, 1e3))


def measure(
    folder: Path,
    *,
    silos: int = 5,
    colluding: int = 2,
    dropouts: int = 1,
    queries: int = 5000,
    labels: int = 4,
) -> dict[str, tuple[float, float]]:
    """Return the noise that each party faces, in units of the stated noise, and its epsilon, for 2.

    Raises ``AssertionError`` if a party can read a masked vector, or rebuild a second secret.
    """
    start = SiloVotes(sigma_silos=1.0, silos=silos, colluding=colluding, dropouts=dropouts)
    target = Target(epsilon=2.0, delta=DELTA, num_queries=queries)
    mechanism = scale_to_target(start, target, VoteShape(50 * silos, labels))
    assert isinstance(mechanism, SiloVotes)
    meeting = Meeting(folder, mechanism, num_teachers=50, queries=queries, labels=labels)
    names, gone = meeting.names, meeting.names[silos - dropouts :]
    stayed = names[: silos - dropouts]
    for _ in range(2):
        meeting.advance(names)
    for name in gone:
        (folder / "exchange" / meeting.exchange.path("masked", name)).unlink(missing_ok=True)
    meeting.advance(stayed)
    with suppress(AwaitedError):
        meeting.server(*gone).open()
    meeting.advance(stayed)
    total, num_shares = meeting.server().open()
    assert num_shares == len(stayed)
    figures = {}
    for party, known in (
        ("the world", 0),
        ("one silo", 1),
        (f"{colluding} silos together", colluding),
    ):
        # as each could: it subtracts its own part from the released sum
        rest = total - sum(
            (meeting.share(name) for name in stayed[:known]), start=np.zeros_like(total)
        )
        seen = decode(rest, mechanism.share_sigma, num_shares)
        noise = float(np.std(seen - sum(meeting.counts[name] for name in stayed[known:])))
        figures[party] = (
            noise / mechanism.sigma_silos,
            epsilon_of(noise, queries=queries, labels=labels),
        )
    _require_vectors_to_say_nothing(meeting, stayed)
    _require_one_secret_of_each(meeting, stayed[:colluding])
    return figures


def _require_vectors_to_say_nothing(meeting: Meeting, stayed: Sequence[str]) -> None:
    """The server, and any reader of the folder: vectors are uniform, also less their votes."""
    for name in stayed:
        for vector in (
            meeting.exchange.masked(name),
            meeting.exchange.masked(name) - meeting.share(name).ravel(),
        ):
            nibbles = np.concatenate([vector & np.uint64(15), vector >> np.uint64(60)]).astype(
                np.int64
            )
            assert chisquare(np.bincount(nibbles, minlength=16)).pvalue > 1e-6
        vote = 1 / share_grid(meeting.terms.mechanism.share_sigma)
        away = (meeting.exchange.masked(name) - meeting.share(name).ravel()).view(np.int64) / vote
        assert np.abs(away).min() > 1e3  # votes: no entry is bare


def _require_one_secret_of_each(meeting: Meeting, colluding: Sequence[str]) -> None:
    """With all shares of colluding silos, and of honest ones that are revealed: one secret each."""
    exchange = meeting.exchange
    places = {name: place for place, name in enumerate(meeting.names)}
    held = {name: meeting.member(name)._held for name in colluding}
    for name in meeting.names:
        kinds = {}
        for kind in ("own_mask", "pairs"):
            shares = {places[holder]: getattr(held[holder][name], kind) for holder in colluding}
            if (kind == "own_mask") == (name in exchange.survivors):
                shares |= {
                    places[holder]: (exchange.unmasking(holder) or {})[name]
                    for holder in exchange.survivors
                }
            chosen = dict(list(shares.items())[: meeting.terms.threshold])
            kinds[kind] = commitment(rebuilt(chosen)) == getattr(exchange.roster[name], kind)[0]
        assert kinds == {
            "own_mask": name in exchange.survivors,
            "pairs": name not in exchange.survivors,
        }


SMALL = (
    (2, 1, 0),
    (3, 1, 0),
    (3, 2, 0),
    (3, 1, 1),
    (4, 1, 1),
    (5, 1, 1),
    (5, 2, 1),
    (5, 1, 2),
    (5, 2, 2),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(arguments)
    with TemporaryDirectory() as folder:
        figures = measure(Path(folder))
    print(
        "| who | noise, in units of what is stated | epsilon, where 2 is stated |\n| --- | ---: | ---: |"
    )
    for party, (noise, epsilon) in figures.items():
        print(f"| {party} | {noise:.2f} | {epsilon:.2f} |")
    print(
        "\n| silos | colluding | dropouts | fewest honest silos opened | stated | most sums opened |"
        "\n| ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    for silos, colluding, dropouts in SMALL:
        opened, stated = opened_sums(silos, colluding, dropouts), silos - colluding - dropouts
        row = (silos, colluding, dropouts, opened.fewest_silos, stated, opened.most_sums)
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()
