"""The label stage of an audited run again and again, with new coins for its canaries each time.

NOT PRIVATE.

The attacker has the strongest view that the definition of privacy allows: all other votes, and the
output of the mechanism itself, not only the labels that follow from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from pate._audit.bounds import TradeOff, largest_share_right, mean_bound
from pate._audit.canaries import Canaries
from pate._audit.exact import Exact, Laws
from pate._progress import stage_bar
from pate._validation import BoolArray, FloatArray, IntArray, UInt8Array, require
from pate._votes import Ballots, Moments as MomentVotes
from pate._votes.voters import GroupVoters, MomentQuery, RecordVoters, Voters
from pate.accounting._cost import gaussian_epsilon
from pate.aggregators._base import Aggregator
from pate.aggregators._multi_winner import TauVoting
from pate.aggregators._noisy_votes import NoisyVotes
from pate.aggregators._score_votes import ScoreVotes, released

_PASSES = 4  # that separate the moves of canaries from noise


@dataclass(frozen=True)
class Repeated:
    """Lower bounds from independent releases, by `pate._audit.bounds.mean_bound` of right guesses.

    Attributes:
        runs: the number of releases.
        right: the share of right guesses in all of them.
        mu: the lower bound on mu.
        gaussian_epsilon: the epsilon at the delta of the statement that belongs to ``mu``.
        refuted: whether the guesses refute the stated trade-off.
    """

    runs: int
    right: float
    mu: float
    gaussian_epsilon: float
    refuted: bool

    @classmethod
    def of(
        cls, shares: ArrayLike, stated: TradeOff, *, delta: float, confidence: float = 0.95
    ) -> Repeated:
        """Return the bounds from the shares ``[n]`` of right guesses of independent releases."""
        least = mean_bound(shares, confidence=confidence)
        # the best test has equal errors on both sides: under mu-GDP it is right with Phi(mu / 2)
        mu = 2 * float(ndtri(max(0.5, least)))
        right = float(np.asarray(shares, dtype=np.float64).mean())
        return cls(
            np.size(shares),
            right,
            mu,
            gaussian_epsilon(delta, mu),
            least > largest_share_right(stated),
        )


class CanaryVotes(ABC):
    """The votes of a run, with canaries that can be turned to either version.

    Attributes:
        num_canaries: the number of canaries.
        num_queries: the number of queries that are asked together.
    """

    num_canaries: int
    num_queries: int

    @abstractmethod
    def scores(
        self, present: BoolArray, aggregator: Aggregator, generator: np.random.Generator
    ) -> FloatArray:
        """Return the scores ``[m]`` of canaries after one release with ``present`` ``[m]`` ones."""

    @abstractmethod
    def exact(
        self, aggregator: Aggregator, generator: np.random.Generator, *, paid: float, delta: float
    ) -> Exact:
        """Return the leakage of a release, paid with ``paid`` at ``delta``, on its canaries.

        Coins are tossed for all of them. Then each is turned without the others, and its votes are
        counted again by the code of the release.

        Raises:
            NotStatedError: if the law of the aggregator is not known, or has too many outcomes.
        """

    def repeat(
        self, aggregator: Aggregator, *, runs: int, generator: np.random.Generator
    ) -> Iterator[float]:
        """Yield the share of right guesses of each of ``runs`` releases, with new coins each."""
        for _ in range(runs):
            present = generator.random(self.num_canaries) < 0.5
            scores = self.scores(present, aggregator, generator)
            yield float(((scores > 0) == present).mean())


class CanaryMoments(CanaryVotes):
    """Canaries among records that vote by moments. The attacker sees the noisy sums of all rounds.

    Args:
        votes: the votes, with records or groups of records as voters.
        canaries: the canaries.
        rows: ``[copies, m]``, their rows among these records.
    """

    def __init__(self, votes: MomentVotes, canaries: Canaries, rows: IntArray) -> None:
        voters = votes.voters
        require(
            isinstance(voters, RecordVoters | GroupVoters),
            "records as voters",
            voters=type(voters).__name__,
        )
        assert isinstance(voters, RecordVoters | GroupVoters)
        self._votes, self._rows = votes, rows
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

    def scores(
        self, present: BoolArray, aggregator: Aggregator, generator: np.random.Generator
    ) -> FloatArray:
        """Return the log likelihood ratio ``[m]`` of all sums with and without each canary."""
        require(
            isinstance(aggregator, ScoreVotes),
            "ScoreVotes, which ask for moments",
            aggregator=type(aggregator),
        )
        assert isinstance(aggregator, ScoreVotes)
        voters, everything = self._turned(present), np.ones(self.num_canaries, dtype=np.bool_)
        extremes = [self._turned(everything), self._turned(~everything)]
        seen, moves = [], []
        for _, question, moments in released(aggregator, voters, self.num_queries, generator):
            between = sum(side.clipped_sum(question, moments.clip) for side in extremes) / 2
            seen.append((moments.total - between) / moments.sigma)
            first, second = (
                _clipped(side, question, moments.clip / moments.sigma) for side in self._sides
            )
            moves.append(first - second)
        return _likelier(np.stack(seen), np.stack(moves))

    def exact(
        self, aggregator: Aggregator, generator: np.random.Generator, *, paid: float, delta: float
    ) -> Exact:
        """Return the leakage of each round's noisy sum, given one draw of the rounds before."""
        assert isinstance(aggregator, ScoreVotes)
        present = generator.random(self.num_canaries) < 0.5
        voters = self._turned(present)
        coins = [present ^ single for single in np.eye(self.num_canaries, dtype=np.bool_)]
        steps = []
        with stage_bar(
            len(coins) * len(aggregator.rounds), "exact divergences", unit="canary"
        ) as bar:
            for _, question, moments in released(aggregator, voters, self.num_queries, generator):
                total, step = voters.clipped_sum(question, moments.clip), []
                for coin in coins:  # one after another: each has a copy of all records
                    difference = self._turned(coin).clipped_sum(question, moments.clip) - total
                    step.append(float(np.linalg.norm(difference)) / moments.sigma)
                    bar.update()
                steps.append(step)
        return Exact.of_moves(np.transpose(steps), paid=paid, delta=delta)

    def _turned(self, present: BoolArray) -> Voters:
        voters = self._votes.voters
        assert isinstance(voters, RecordVoters | GroupVoters)
        coordinates, labels = np.array(voters.coordinates), np.array(voters.labels)
        first, second = self._sides
        for rows in self._rows:
            coordinates[rows] = np.where(present[:, None], first.coordinates, second.coordinates)
            labels[rows] = np.where(present[:, None], first.labels, second.labels)
        return replace(voters, coordinates=coordinates, labels=labels)


class CanaryTeachers(CanaryVotes):
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

    def scores(
        self, present: BoolArray, aggregator: Aggregator, generator: np.random.Generator
    ) -> FloatArray:
        """Return the log likelihood ratio ``[m]`` of noisy counts, or the agreement of labels."""
        everything = np.ones(self.num_canaries, dtype=np.bool_)
        release = aggregator.aggregate(self._turned(present), generator=generator)
        first, second = self._ballots.astype(np.float64).sum(axis=2).transpose(0, 2, 1, 3)
        if release.noisy_counts is None:
            answers = np.where(release.mask, release.labels - 0.5, 0.0)
            return np.asarray(np.einsum("qc,mqc->m", answers, first - second))
        sides = [self._turned(everything).counts, self._turned(~everything).counts]
        return _likelier(
            (release.noisy_counts - (sides[0] + sides[1]) / 2)[None], (first - second)[None]
        )

    def exact(
        self, aggregator: Aggregator, generator: np.random.Generator, *, paid: float, delta: float
    ) -> Exact:
        """Return the leakage of the noisy sums, or of labels without sums by their `laws`."""
        present = generator.random(self.num_canaries) < 0.5
        votes = self._turned(present)
        turned = (
            self._turned(present ^ single) for single in np.eye(self.num_canaries, dtype=np.bool_)
        )
        if (
            type(aggregator) is NoisyVotes or type(aggregator) is TauVoting
        ):  # a subclass may have other noise
            there = _in_deviations(aggregator, votes)
            moves = [
                np.linalg.norm(_in_deviations(aggregator, other) - there, axis=1)
                for other in turned
            ]
            return Exact.of_moves(np.array(moves), paid=paid, delta=delta)

        def pairs() -> Iterator[Laws]:
            with stage_bar(self.num_canaries, "exact divergences", unit="canary") as bar:
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


def _in_deviations(aggregator: NoisyVotes | TauVoting, votes: Ballots) -> FloatArray:
    """Return the sums ``[Q, C]`` before the noise, in standard deviations of the noise."""
    if isinstance(aggregator, NoisyVotes):
        return votes.counts / aggregator.sigma_votes
    return aggregator.clipped_sums(votes) / aggregator.sigma_tau


def _clipped(voters: RecordVoters, question: MomentQuery, clip: float) -> FloatArray:
    """Return ballots ``[m, R + 1, C]``, clipped and in units of the noise."""
    bases, residuals, norms = (
        np.concatenate(parts) for parts in zip(*voters.parts(question), strict=True)
    )
    ballots = bases[:, :, None] * residuals[:, None]
    lengths = np.sqrt((ballots**2).sum(axis=(1, 2)))
    return np.asarray(ballots * (np.minimum(norms, clip) / np.maximum(lengths, 1))[:, None, None])


def _likelier(seen: FloatArray, moves: FloatArray) -> FloatArray:
    """Return the log likelihood ratio ``[m]`` of the seen sums with and without each canary.

    The covariance of the noise between rounds is estimated from the sums, label by label. So noise
    that is missing, or shared by two rounds, hides nothing. A few passes separate the moves of all
    canaries from the noise, and the moves of one canary from the others.

    Args:
        seen: ``[r, n, C]``, the sums of ``r`` rounds less their means halfway between both
            versions.
        moves: ``[r, m, n, C]``, the move of each by a canary, from one version to the other.
    """
    rounds, scores = len(seen), np.zeros(moves.shape[1])
    for _ in range(_PASSES):
        expected = np.tanh(scores / 2) / 2
        noise = seen - np.einsum("m,tmnc->tnc", expected, moves)
        columns = noise.transpose(2, 0, 1)
        covariances = columns @ columns.swapaxes(1, 2) / noise.shape[1]
        covariances += (1e-9 * np.trace(covariances, axis1=1, axis2=2) + 1e-12)[
            :, None, None
        ] * np.eye(rounds)
        weighed = np.einsum("ctu,umnc->tmnc", np.linalg.inv(covariances), moves)
        scores = (
            np.einsum("tmnc,tnc->m", weighed, noise)
            + np.einsum("tmnc,tmnc->m", weighed, moves) * expected
        )
    return scores
