"""The exact leakage of one release on each canary, from the votes with either version of it.

NOT PRIVATE.

The attacker has the strongest view that the definition of privacy allows: all other votes, and the
output of the mechanism itself, not only the labels that follow from it. Nothing is sampled. Chadha,
Jagielski, Papernot, Choquette-Choo & Nasr (2024) audit private prediction in this way, query by
query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import ndtr, ndtri

from pate._audit.canaries import Canaries
from pate._audit.laws import trace
from pate._audit.sums import guess_of
from pate._progress import stage_bar
from pate._validation import BoolArray, FloatArray, IntArray, UInt8Array, require
from pate._votes import Ballots, Moments as MomentVotes
from pate._votes.voters import GroupVoters, RecordVoters, Voters
from pate.accounting._cost import gaussian_epsilon
from pate.aggregators import Aggregator, NoisyVotes, TauVoting
from pate.aggregators._clipped_votes import ClippedVotes, clipped_sums
from pate.aggregators._score_votes import ScoreVotes, released

Laws = tuple[FloatArray, FloatArray]
"""``[n, N]`` each: the chances of N outcomes of n steps, on votes and on their neighbors."""

_LOST = 0.01  # of epsilon, by rounding to the grid, unless the grid would have more cells than this
_CELLS = 2e7
_FFT_ERROR = 1e-14  # relative to the norms of both factors: far above the error of double precision
_LARGEST = 700.0  # epsilon: exp overflows beyond it


@dataclass(frozen=True)
class Exact:
    """The leakage of each answer of a release, and of all together, on the version of a canary.

    Attributes:
        steps: the number of answers: queries, or rounds of noisy sums.
        mean: the success rate of the best guess by one answer, on average over canaries and
            answers.
        largest: the largest success rate over canaries and answers.
        epsilon: the epsilon, at the delta of the statement, of all answers on the canary that they
            reveal most.
        paid: the epsilon that was paid for the release.
    """

    steps: int
    mean: float
    largest: float
    epsilon: float
    paid: float

    @classmethod
    def of_moves(cls, moves: FloatArray, *, paid: float, delta: float) -> Exact:
        """Return the leakage of Gaussian answers with ``moves`` ``[m, steps]`` in deviations."""
        right = ndtr(moves / 2)
        epsilon = gaussian_epsilon(delta, float(np.sqrt((moves**2).sum(axis=1)).max()))
        return cls(moves.shape[1], float(right.mean()), float(right.max()), epsilon, paid)

    @classmethod
    def of_laws(cls, pairs: Iterable[Laws], *, steps: int, paid: float, delta: float) -> Exact:
        """Return the leakage of answers with the laws ``pairs``, one of each canary.

        The canary that they reveal most is found by the Gaussian noise with the same success rate,
        answer by answer.
        """
        largest, most = 0.5, -1.0
        means, worst = [], None
        for pair in pairs:
            right = 0.5 + np.abs(pair[0] - pair[1]).sum(axis=1) / 4
            means.append(0.5 + float((right - 0.5).sum()) / steps)
            largest = max(largest, float(right.max(initial=0.5)))
            mu_squared = float((ndtri(np.minimum(right, 1 - 1e-12)) ** 2).sum())
            if mu_squared > most:
                most, worst = mu_squared, pair
        assert worst is not None, "there are canaries"
        return cls(steps, float(np.mean(means)), largest, joint_epsilon(*worst, delta=delta), paid)

    @property
    def refuted(self) -> bool:
        """Whether a canary leaks more than was paid; the margin is far above rounding errors."""
        return self.epsilon > self.paid * (1 + 1e-6)

    @property
    def text(self) -> str:
        """The largest epsilon and success rates in words."""
        return (
            f"epsilon = {self.epsilon:.3f} at least, where {self.paid:.3f} was paid; the best guess"
            f" by one of {self.steps} answers is right in {self.mean:.1%}, at most"
            f" {self.largest:.1%}"
        )


def joint_epsilon(p: FloatArray, q: FloatArray, *, delta: float) -> float:
    """Return the epsilon at ``delta > 0`` of independent answers with the laws p and q ``[n, N]``.

    Both orders of p and q count. Privacy losses are rounded to a grid, so that their sums are
    convolutions, and their means are kept (Gopi, Lee & Wutschitz (2021)). The result is a lower
    bound, `_LARGEST` at most. The possible excess by rounding, but for a thousandth of ``delta`` by
    Hoeffding's inequality, and by transforms is subtracted.
    """
    return max(_one_way(p, q, delta), _one_way(q, p, delta)) if len(p) else 0.0


def _one_way(p: FloatArray, q: FloatArray, delta: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.where(p > 0, np.log(p) - np.log(q), np.nan)
        only_p = np.minimum(np.where(losses == np.inf, p, 0.0).sum(axis=1), 1.0)  # sums err
        impossible = -math.expm1(float(np.log1p(-only_p).sum()))
    if impossible > delta:
        return _LARGEST
    shared = np.isfinite(losses)
    failing = delta / 1000
    deviations = math.sqrt(len(p) * math.log(1 / failing) / 2)
    spread = np.where(shared, losses, -np.inf).max(axis=1) - np.where(shared, losses, np.inf).min(
        axis=1
    )
    cell = max(_LOST / deviations, float(spread.sum()) / _CELLS)
    shift, parts, first = -cell * deviations, [], 0
    for chances, row, valid in zip(p, losses, shared, strict=True):
        places = np.rint(row[valid] / cell).astype(np.int64)
        shift += float(np.average(row[valid] - cell * places, weights=chances[valid]))
        first += int(places.min())
        parts.append(np.bincount(places - places.min(), weights=chances[valid]).astype(np.float64))
    masses, offset = _sum_of(parts)
    total = np.minimum(cell * (first + offset + np.arange(len(masses))) + shift, _LARGEST)
    masses, total = masses[total > 0], total[total > 0]
    # the mass of all losses from each on, under either law
    above, scaled = (np.cumsum(part[::-1])[::-1] for part in (masses, masses * np.exp(-total)))
    room = delta + failing - impossible
    if not len(total) or above[0] - scaled[0] <= room:
        return 0.0
    i = int(np.argmax(above - np.exp(total) * scaled <= room))
    return math.log((above[i] - room) / scaled[i])


def _sum_of(parts: list[FloatArray]) -> tuple[FloatArray, int]:
    """Return a lower bound on the law of a sum of independent places, and its first place."""
    if len(parts) == 1:
        return parts[0], 0
    (left, first), (right, second) = (
        _sum_of(parts[: len(parts) // 2]),
        _sum_of(parts[len(parts) // 2 :]),
    )
    error = _FFT_ERROR * np.linalg.norm(left) * np.linalg.norm(right)
    masses = np.maximum(fftconvolve(left, right) - error, 0.0)
    (kept,) = masses.nonzero()
    return masses[kept[0] : kept[-1] + 1], first + second + int(kept[0])


class CanaryMoments:
    """Canaries among records that vote by moments. The attacker sees the noisy sums of all rounds.

    Args:
        votes: the votes, with records or groups of records as voters.
        canaries: the canaries.
        rows: ``[copies, m]``, their rows among these records.
    """

    def __init__(self, votes: MomentVotes, canaries: Canaries, rows: IntArray) -> None:
        voters: Any = votes.voters
        require(
            isinstance(voters, RecordVoters | GroupVoters),
            "records as voters",
            voters=type(voters).__name__,
        )
        self._voters, self._rows = voters, rows
        self.num_canaries, self.num_queries = rows.shape[1], votes.num_queries
        self._sides = [
            RecordVoters(
                geometry=voters.geometry,
                num_voters=voters.num_voters,
                num_labels=voters.num_labels,
                coordinates=voters.geometry.coordinates(features.astype(np.float32)),
                labels=labels,
            )
            for features, labels in zip(canaries.features, canaries.labels, strict=True)
        ]

    def exact(
        self, aggregator: Aggregator, generator: np.random.Generator, *, paid: float, delta: float
    ) -> Exact:
        """Return the leakage of each round's noisy sum, given one draw of the rounds before."""
        moves = _moves_of_rounds(aggregator, self, self._turned, generator)
        return Exact.of_moves(moves, paid=paid, delta=delta)

    def _turned(self, present: BoolArray) -> Voters:
        voters = self._voters
        coordinates, labels = np.array(voters.coordinates), np.array(voters.labels)
        first, second = self._sides
        for rows in self._rows:
            coordinates[rows] = np.where(present[:, None], first.coordinates, second.coordinates)
            labels[rows] = np.where(present[:, None], first.labels, second.labels)
        return replace(voters, coordinates=coordinates, labels=labels)


class CanaryTeachers:
    """Canaries that decide all votes of a teacher. The attacker sees noisy counts, or else labels.

    Args:
        votes: the votes, with ballots ``[Q, T, C]``.
        teachers: ``[copies, m]``, the teachers that have canaries.
        ballots: ``[2, Q, copies, m, C]``, the ballots of these teachers with their canary present,
            and with it absent.
    """

    def __init__(self, votes: Ballots, teachers: IntArray, ballots: UInt8Array) -> None:
        self._votes, self._teachers, self._ballots = votes, teachers, ballots
        self.num_canaries, self.num_queries = teachers.shape[1], votes.num_queries

    def exact(
        self, aggregator: Aggregator, generator: np.random.Generator, *, paid: float, delta: float
    ) -> Exact:
        """Return the leakage of the noisy sums, or of labels without sums by their `laws`."""
        kind = type(aggregator)  # a subclass may have other noise
        if kind is ScoreVotes:
            moves = _moves_of_rounds(
                aggregator, self, lambda present: self._turned(present).voters, generator
            )
            return Exact.of_moves(moves, paid=paid, delta=delta)
        present, *others = _coins(self, generator)
        votes, turned = self._turned(present), map(self._turned, others)
        if kind in (NoisyVotes, TauVoting, ClippedVotes):
            sums = _sums_in_deviations(aggregator, votes, generator)
            there = sums(votes)
            moves = np.array([np.linalg.norm(sums(other) - there, axis=1) for other in turned])
            return Exact.of_moves(moves, paid=paid, delta=delta)

        def pairs() -> Iterator[Laws]:
            with stage_bar(self.num_canaries, "leak", unit="divergence") as bar:
                for other in turned:
                    moved = np.flatnonzero((other.ballots != votes.ballots).any(axis=(1, 2)))
                    yield aggregator.laws(votes[moved], other[moved])
                    bar.update()

        return Exact.of_laws(pairs(), steps=self.num_queries, paid=paid, delta=delta)

    def _turned(self, present: BoolArray) -> Ballots:
        ballots = np.array(self._votes.ballots)
        for copy, teachers in enumerate(self._teachers):
            first, second = self._ballots[:, :, copy]
            ballots[:, teachers] = np.where(present[None, :, None], first, second)
        return replace(self._votes, ballots=ballots)


CanaryVotes = CanaryMoments | CanaryTeachers
"""The votes of a run, with canaries that can be turned to either version.

They have ``num_canaries``, and ``num_queries`` that are asked together. `exact` returns the leakage
of a release that was paid for. Coins are tossed for all canaries; then each is turned without the
others, and its votes are counted again by the code of the release. It raises ``NotStatedError`` if
the law of the aggregator is not known, or has too many outcomes.
"""


def _coins(world: CanaryVotes, generator: np.random.Generator) -> list[BoolArray]:
    """Return the coins of all canaries, and the same with each canary turned."""
    present = generator.random((world.num_canaries,)) < 0.5
    return [present, *(present ^ single for single in np.eye(world.num_canaries, dtype=np.bool_))]


def _moves_of_rounds(
    aggregator: Any,
    world: CanaryVotes,
    turned: Callable[[BoolArray], Voters],
    generator: np.random.Generator,
) -> FloatArray:
    """Return the moves ``[m, rounds]`` of noisy sums in deviations, given the sums before."""
    present, *coins = _coins(world, generator)
    voters = aggregator.weighed(turned(present))
    rounds, steps = list(released(aggregator, voters, world.num_queries, generator)), []
    with stage_bar(len(coins) * len(rounds), "leak", unit="divergence") as bar:
        for _, question, _, _, moments in rounds:
            geometry = question.geometry
            total, step = voters.along(geometry).clipped_sum(question, moments.clip), []
            for coin in coins:  # one after another: each has a copy of all records
                other = aggregator.weighed(turned(coin)).along(geometry)
                moved = other.clipped_sum(question, moments.clip) - total
                step.append(float(np.linalg.norm(moved)) / moments.sigma)
                bar.update()
            steps.append(step)
    return np.transpose(steps)


def _sums_in_deviations(
    aggregator: Any, votes: Ballots, generator: np.random.Generator
) -> Callable[[Ballots], FloatArray]:
    """Return the function that returns sums ``[Q, C]`` in standard deviations of their noise."""
    if isinstance(aggregator, NoisyVotes):
        return lambda other: other.counts / aggregator.sigma_votes
    if isinstance(aggregator, TauVoting):
        return lambda other: aggregator.clipped_sums(other) / aggregator.sigma_tau
    # by one draw of the comparisons, which are paid for too
    drawn = trace(aggregator, votes, generator)
    guess = guess_of(aggregator.around_predictions, votes)

    def sums(other: Ballots) -> FloatArray:
        sizes = (other.ballots ^ guess[:, None]).sum(axis=(0, 2), dtype=np.int64)
        return clipped_sums(other, guess, sizes, drawn.clip) / float(drawn.release.noise_std or 1)

    return sums
