"""Releases of synthetic votes near ties, where noise decides, and the noise in them."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pate._audit.laws import (
    SUMS,
    Seen,
    noise_of_scores,
    outcomes_of,
    stated_outcomes,
    trace,
    with_less_noise,
)
from pate._audit.normals import FACTORS, Gaussians
from pate._validation import FloatArray
from pate._votes import Ballots, Counts, Votes, VoteShape
from pate._votes.geometry import Geometry
from pate._votes.voters import MomentQuery, Voters
from pate.aggregators import Aggregator, ClippedVotes
from pate.aggregators._score_votes import COUNT_SHARE, ScoreVotes
from pate.mechanisms import NoisyMoments, NotStatedError

_NEAR = 0.7  # deviations from a tie: where the scale of the noise matters
_TRIED = 768  # synthetic queries, of which some are chosen
_CHOSEN = 40
_FEW = 40  # voters for each unit of the noise multiplier
_QUERIES = 12  # of synthetic ballots


@dataclass(frozen=True, eq=False, kw_only=True)
class _Tied(Voters):
    """Voters with ballots of which nearly half are larger than any clip; their sum is 0."""

    present: int
    private: bool
    larger: int

    @property
    def num_private(self) -> int | None:
        return self.present if self.private else None

    def norms(self, question: MomentQuery) -> FloatArray:
        return np.where(np.arange(self.present) < self.larger, 2 * question.largest_norm, 0.0)

    def clipped_sum(self, question: MomentQuery, clip: float) -> FloatArray:
        return np.zeros((self.geometry.num_directions + 1, self.num_labels))


def synthetic_releases(
    aggregator: Aggregator, votes: Votes, rng: np.random.Generator
) -> Mapping[str, Callable[[np.random.Generator], Seen]]:
    """Return functions of a generator that release synthetic votes, and return the noise of it.

    Their votes are near ties, where the noise decides. A function is named by the noise that it
    tests.

    Raises:
        NotStatedError: if the aggregator states no law.
    """
    if isinstance(aggregator, ScoreVotes):
        tied = _tied(aggregator, votes)
        multiplier = aggregator.multiplier_scores / math.sqrt(votes.num_queries)
        # voters that are made up have no budgets
        one = ScoreVotes(multiplier_scores=multiplier, rounds=aggregator.rounds)
        made: dict[str, Callable[[np.random.Generator], Seen]] = {
            "": lambda generator: noise_of_scores(one, None, generator, tied)[1]
        }
        if tied.private:
            # so few that levels come first, whatever the noise in their number
            few = replace(tied, present=math.ceil(_FEW * multiplier), larger=0)
            subject = "sums of rounds"
            made["levels first"] = lambda generator: {
                subject: noise_of_scores(one, None, generator, few)[1][subject]
            }
        return made
    if type(aggregator) is ClippedVotes:
        tied_ballots = _tied_ballots(votes, aggregator)
        # fewer queries with the same noise
        fewer = math.sqrt(_QUERIES / votes.num_queries)
        smaller = replace(aggregator, multiplier_clipped=aggregator.multiplier_clipped * fewer)
        return {"": lambda generator: trace(smaller, tied_ballots, generator).seen}
    names = aggregator.noise_parameters
    sums = (
        type(aggregator) in SUMS
        and getattr(aggregator, "soft", True)
        and not getattr(aggregator, "min_lead", 0)
    )
    if sums:
        near = _near_ties(aggregator, votes.shape, votes.shape.num_labels, rng, _CHOSEN)
        return {"": lambda generator: trace(aggregator, near, generator).seen}
    chosen: dict[str, Callable[[np.random.Generator], Seen]] = {}
    for name in names:
        asked, used = _informative(aggregator, name, votes.shape, rng)
        found = outcomes_of(aggregator, asked, name)

        def seen(
            generator: np.random.Generator, asked: Any = asked, found: Any = found, name: str = name
        ) -> Seen:
            return {name: found(aggregator.aggregate(asked, generator=generator))}

        chosen[f"{name}, {used} labels" if used != votes.shape.num_labels else name] = seen
    return chosen


def _tied(aggregator: ScoreVotes, votes: Any) -> _Tied:
    multiplier = aggregator.multiplier_scores / math.sqrt(votes.num_queries)
    # of features in two parts
    rounds = math.fsum(aggregator.rounds) + aggregator.rounds[0]
    first = multiplier / math.sqrt(aggregator.rounds[0] / rounds * (1 - COUNT_SHARE))
    steps, private = 6, votes.voters.num_private is not None
    # as many as a cheap comparison needs; of known voters the nominal number decides
    sigma = first * math.sqrt(steps / 0.05)
    present = math.ceil(max(1000, 20 * sigma)) if private else votes.voters.num_voters
    geometry = Geometry.of(np.random.default_rng(0).standard_normal((12, 4)), (2, 2))
    return _Tied(
        geometry=geometry,
        num_voters=max(2, votes.voters.num_voters),
        num_labels=2,
        present=present,
        private=private,
        larger=min(present, math.ceil(present / 2 + _NEAR * min(sigma, present / 6))),
    )


def _tied_ballots(votes: Any, aggregator: ClippedVotes) -> Ballots:
    """Return ballots of which somewhat less than half hold every label, and the others none."""
    shape = votes.shape
    larger = np.arange(shape.num_teachers) < int(shape.num_teachers * (0.5 - _NEAR / 6))
    ballots = np.broadcast_to(
        larger[None, :, None], (_QUERIES, shape.num_teachers, shape.num_labels)
    ).astype(np.uint8)
    predictions = np.zeros((_QUERIES, shape.num_labels)) if aggregator.around_predictions else None
    return Ballots(ballots=ballots, predictions=predictions)


def _near_ties(
    aggregator: Aggregator, shape: VoteShape, num_labels: int, rng: np.random.Generator, size: int
) -> Votes:
    """Return synthetic votes: counts about a half, and counts in two groups with a gap."""
    most = shape.num_teachers
    spread = np.exp(rng.uniform(0, math.log(max(most / 2, 2)), (size, 1)))
    about = most / 2 + spread * rng.choice([-1.0, 1.0], (size, num_labels))
    sizes = rng.integers(0, num_labels + 1, (size, 1))
    low = rng.uniform(0, 1, (size, 1)) * np.maximum(most - spread, 0)
    second = np.maximum(
        spread + rng.uniform(-1, 1, (size, 1)) * rng.choice([1.0, 4.0, 16.0], (size, 1)), 0
    )
    second *= rng.random((size, 1)) < 0.5
    in_groups = low / 2 + spread * (np.arange(num_labels) < sizes)
    in_groups += second * (np.arange(num_labels) < rng.integers(0, 1 + sizes))
    counts = np.where(rng.random((size, 1)) < 0.5, about, in_groups).round().clip(0, most)
    counts = counts.astype(np.int64)
    known: dict[str, Any] = {}
    if "predictions" in aggregator.needs:
        known["predictions"] = np.zeros(counts.shape)
    if Ballots in aggregator.needs:
        ballots = np.arange(most)[None, :, None] < counts[:, None]
        return Ballots(ballots=ballots.astype(np.uint8), **known)
    return Counts(counts=counts, num_teachers=most, **known)


def _informative(
    aggregator: Aggregator, name: str, shape: VoteShape, rng: np.random.Generator
) -> tuple[Any, int]:
    """Return the synthetic votes with outcomes that depend most on a scale of noise.

    There are fewer labels if there are too many outcomes; the number is returned too.
    """
    error: NotStatedError | None = None
    least = int(getattr(aggregator, "k", 1)) + 1
    for num_labels in sorted(
        {shape.num_labels, *(n for n in (12, 6) if n > least), least}, reverse=True
    ):
        if num_labels > shape.num_labels:
            continue
        tried = _near_ties(aggregator, shape, num_labels, rng, _TRIED)
        try:
            stated, faulty = (
                stated_outcomes(with_less_noise(aggregator, factor, name), tried)[0]
                for factor in (1.0, FACTORS[0])
            )
        except NotStatedError as reason:
            error = reason
            continue
        told = (faulty * (np.log(faulty + 1e-300) - np.log(stated + 1e-300))).sum(axis=1)
        told = told.reshape(_TRIED, -1).sum(axis=1)
        return tried[np.sort(np.argsort(-told)[:_CHOSEN])], num_labels
    assert error is not None
    raise error


def noise_of_moments(
    mechanism: NoisyMoments, columns: int, generator: np.random.Generator
) -> Gaussians:
    """Return the noise in the moments of made-up rows, of all entries from the diagonal on."""
    multiplier = mechanism.noise_multiplier
    size = max(200, math.ceil(12 * multiplier))  # so many that their noisy number is released
    rows = np.random.default_rng(0).standard_normal((size, columns))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    moments = mechanism([(rows, np.ones(size))], generator=generator)
    # rows are extended by the root of 1/3
    count = 4 / 3 * multiplier / moments.error
    mean, whole = moments.mean / math.sqrt(3), np.column_stack((rows, np.full(size, 3**-0.5)))
    released = count * np.block([[moments.products, mean[:, None]], [mean, 1 / 3]])
    noise = (released - whole.T @ whole) / (4 / 3 * multiplier)
    return Gaussians(
        np.append(np.diag(noise) / math.sqrt(2), noise[np.triu_indices(len(noise), 1)])
    )
