"""Sums of clipped ballots by their definition, and how far a record moves them."""

import math
from dataclasses import replace
from itertools import product
from typing import Any, TypeGuard

import numpy as np

from pate._validation import FloatArray, IntArray, UInt8Array
from pate._votes import Ballots
from pate._votes.voters import GroupedVoters, MomentQuery, RecordVoters, Voters
from pate.aggregators import Aggregator, ClippedVotes, PersonalVotes, ScoreVotes, TauVoting
from pate.aggregators._clipped_votes import clipped_sums
from pate.aggregators._learner import Learner


def is_scores(aggregator: Aggregator) -> TypeGuard[ScoreVotes]:
    """Whether it is of the package; a subclass may draw otherwise."""
    return type(aggregator) in (ScoreVotes, PersonalVotes)


def guess_of(around: bool, votes: Ballots) -> UInt8Array:
    if not around:
        return np.zeros(votes.counts.shape, dtype=np.uint8)
    assert votes.predictions is not None, "they are needed"
    return np.asarray(votes.predictions > 0.5, dtype=np.uint8)


def sums_of(ballots: UInt8Array, sizes: IntArray, clip: int) -> FloatArray:
    """Return sums ``[Q, C]`` of ballots ``[Q, T, C]`` of ``sizes`` that are scaled to a clip."""
    factors = np.minimum(1.0, np.sqrt(clip / np.maximum(sizes, 1)))
    return np.array([factors @ rows.astype(np.float64) for rows in ballots])


def tau_sums(aggregator: TauVoting, votes: Ballots) -> FloatArray:
    guess = guess_of(aggregator.around_predictions, votes)
    sums = []
    for rows, expected in zip(votes.ballots, guess, strict=True):
        differing = (rows ^ expected).astype(np.float64)
        sizes = np.maximum(differing.sum(axis=1), 1)
        norms = sizes if aggregator.norm == "l1" else np.sqrt(sizes)
        sums.append(np.minimum(1.0, aggregator.tau / norms) @ differing)
    return np.array(sums)


def distance_of_sums(aggregator: Aggregator, votes: Any) -> tuple[float, float] | None:
    """Return how far the program's clipped sums are from their definition, and its rounding error.

    Both are in clips. The clip is so small that it scales most ballots. None without clipped sums.
    """
    if is_scores(aggregator):
        voters, distances = aggregator.weighed(votes.voters), []
        for question in _questions(voters):
            norms = voters.norms(question)
            clip = float(np.median(norms[norms > 0])) / 4 if (norms > 0).any() else 1.0
            sums = voters.clipped_sum(question, clip), plain_sum(voters, question, clip)
            distances.append(float(np.abs(sums[0] - sums[1]).max()) / clip)
        return max(distances), 1e-3
    if type(aggregator) is ClippedVotes:
        nothing = np.zeros(votes.counts.shape, dtype=np.uint8)
        sizes = votes.ballots.sum(axis=(0, 2), dtype=np.int64)
        size = max(1, int(np.median(sizes)) // 4)
        sums = clipped_sums(votes, nothing, sizes, size), sums_of(votes.ballots, sizes, size)
        return float(np.abs(sums[0] - sums[1]).max()) / math.sqrt(size), votes.num_teachers / 2**19
    if type(aggregator) is TauVoting:
        small = replace(aggregator, tau=aggregator.tau / 4)
        sums = small.clipped_sums(votes), tau_sums(small, votes)
        return float(np.abs(sums[0] - sums[1]).max()) / small.tau, votes.num_teachers / 2**29
    return None


def moves_of_budgets(aggregator: PersonalVotes, votes: Any) -> dict[float, float]:
    """Return how far a record of each budget moves the sum, in clips, or the number of voters.

    The record is removed. The clip is half of its norm, so that its ballot is scaled to it.
    """
    voters: Any = votes.voters
    moves: dict[float, float] = {}
    for question, budget in product(_questions(voters), aggregator.budgets):
        norms = voters.norms(question)
        rows = np.flatnonzero((voters.budgets == budget) & (norms > 0))
        if not len(rows):
            continue
        kept = np.delete(np.arange(len(norms)), rows[0])
        names = ("coordinates", "labels", "budgets")
        rest = replace(voters, **{name: getattr(voters, name)[kept] for name in names})
        clip, both = norms[rows[0]] / 2, [aggregator.weighed(each) for each in (voters, rest)]
        sums, numbers = zip(
            *((each.clipped_sum(question, clip), each.num_private) for each in both), strict=True
        )
        moved = float(np.linalg.norm(sums[0] - sums[1])) / clip
        moves[budget] = max(moves.get(budget, 0.0), moved, abs(numbers[0] - numbers[1]))
    return moves


def reach_of(question: MomentQuery) -> float:
    """Return the largest distance of two ballots with norms up to 1, by the signs of ballots.

    Ballots are taken from public samples without labels: a residual is at least minus the answer.
    """
    samples = question.geometry.samples
    unlabeled = np.zeros((len(samples), question.num_labels))
    factors = question.basis(samples), question.residuals(samples, unlabeled)
    return 2.0 if any((factor < 0).any() for factor in factors) else math.sqrt(2)


def _questions(voters: Voters) -> list[MomentQuery]:
    """Return the first questions: about moments, and about levels if few voters are private."""
    learner = Learner(voters.geometry, voters.num_labels, math.inf)
    levels = None if voters.num_private is None else learner.question_of_levels()
    return [learner.question(), *([levels] if levels else [])]


def weights_of(voters: RecordVoters) -> FloatArray:
    """Return the weight ``[N]`` of each record."""
    return np.ones(len(voters.labels)) * voters.weights


def plain_sum(voters: Voters, question: MomentQuery, clip: float) -> FloatArray:
    """Return the sum of clipped ballots, as `Voters.clipped_sum` defines it."""
    if isinstance(voters, RecordVoters):
        total = np.zeros((voters.geometry.num_directions + 1, voters.num_labels))
        weights, done = weights_of(voters), 0
        for basis, residuals, _ in voters.parts(question):
            norms = np.sqrt((basis**2).sum(axis=1) * (residuals**2).sum(axis=1)) / 2.0**28
            shares = np.minimum(1.0, clip * (1 - 2.0**-30) / np.maximum(norms, 1e-300))
            shares *= weights[done : done + len(norms)]
            done += len(norms)
            total += basis.T @ np.trunc(residuals * shares[:, None])
        return total / 2.0**28
    if isinstance(voters, GroupedVoters):
        total = np.zeros((voters.geometry.num_directions + 1, voters.num_labels))
        for ballot, _ in voters._ballots(question):
            norm = float(np.linalg.norm(ballot)) / 2.0**voters._bits
            total += np.trunc(ballot * min(1.0, clip * (1 - 2.0**-30) / max(norm, 1e-300)))
        return total / 2.0**voters._bits
    return np.zeros((voters.geometry.num_directions + 1, voters.num_labels))
