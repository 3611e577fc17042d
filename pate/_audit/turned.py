"""The votes of an audited run with each of its canaries turned to its other version.

NOT PRIVATE.

The attacker has the strongest view that the definition of privacy allows: all other votes, and the
output of the mechanism itself, not only the labels that follow from it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pate._audit.canaries import Canaries
from pate._audit.exact import Exact, Laws
from pate._audit.laws import trace
from pate._audit.sums import guess_of
from pate._progress import stage_bar
from pate._validation import BoolArray, FloatArray, IntArray, UInt8Array, require
from pate._votes import Ballots, Moments as MomentVotes
from pate._votes.voters import GroupVoters, RecordVoters, Voters
from pate.aggregators import Aggregator, NoisyVotes, TauVoting
from pate.aggregators._clipped_votes import ClippedVotes, clipped_sums
from pate.aggregators._score_votes import ScoreVotes, released


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
        for _, part, question, _, _, moments in rounds:
            total, step = voters.by_part()[part].clipped_sum(question, moments.clip), []
            for coin in coins:  # one after another: each has a copy of all records
                other = aggregator.weighed(turned(coin)).by_part()[part]
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
