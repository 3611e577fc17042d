"""The votes of an audited run with each of its canaries turned to its other version.

NOT PRIVATE.

The attacker has the strongest view that the definition of privacy allows: all other votes, and the
output of the mechanism itself, not only the labels that follow from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pate._audit.canaries import Canaries
from pate._audit.exact import Exact, Laws
from pate._progress import stage_bar
from pate._validation import BoolArray, FloatArray, IntArray, UInt8Array, require
from pate._votes import Ballots, Moments as MomentVotes
from pate._votes.voters import GroupVoters, RecordVoters, Voters
from pate.aggregators._base import Aggregator
from pate.aggregators._multi_winner import TauVoting
from pate.aggregators._noisy_votes import NoisyVotes
from pate.aggregators._score_votes import ScoreVotes, released


class CanaryVotes(ABC):
    """The votes of a run, with canaries that can be turned to either version.

    Attributes:
        num_canaries: the number of canaries.
        num_queries: the number of queries that are asked together.
    """

    num_canaries: int
    num_queries: int

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

    def exact(
        self, aggregator: Aggregator, generator: np.random.Generator, *, paid: float, delta: float
    ) -> Exact:
        """Return the leakage of each round's noisy sum, given one draw of the rounds before."""
        assert isinstance(aggregator, ScoreVotes)
        present = generator.random(self.num_canaries) < 0.5
        voters = self._turned(present)
        coins = [present ^ single for single in np.eye(self.num_canaries, dtype=np.bool_)]
        steps = []
        with stage_bar(len(coins) * len(aggregator.rounds), "leak", unit="divergence") as bar:
            for _, question, _, _, moments in released(
                aggregator, voters, self.num_queries, generator
            ):
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


def _in_deviations(aggregator: NoisyVotes | TauVoting, votes: Ballots) -> FloatArray:
    """Return the sums ``[Q, C]`` before the noise, in standard deviations of the noise."""
    if isinstance(aggregator, NoisyVotes):
        return votes.counts / aggregator.sigma_votes
    return aggregator.clipped_sums(votes) / aggregator.sigma_tau
