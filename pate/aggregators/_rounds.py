"""Several releases of the same queries, each around a student of those before, joined into one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from pate._linear import student_of
from pate._validation import FloatArray, require, require_given
from pate._votes import Counts, Moments, Need, Scores, Votes, VoteShape
from pate.accounting import ComposedEvent, Event, NeighboringRelation
from pate.accounting._accountant import COARSE_ORDERS
from pate.aggregators._base import Aggregator, Release, features_of
from pate.aggregators._clipped_votes import ClippedVotes
from pate.aggregators._outlook import Outlook

_FIRST = 0.25  # share of the budget of the first of two rounds


@dataclass(frozen=True, kw_only=True)
class Rounds(Aggregator):
    """Release the same queries in rounds, each with predictions of a student of earlier rounds.

    Choose it wherever the queries have features: a student of a cheap first round is right on most
    entries, and a mechanism that pays only for differences from it makes the rest of the budget go
    further. With ``--target_epsilon`` and nothing else this is what `pate label` does:
    `ClippedVotes` for a quarter of the budget, then `ClippedVotes` around their student for the
    rest.

    Noisy counts of all rounds are averaged by the inverse of their variances. A round that releases
    no counts, or not all entries, or answers of a linear model, stands for itself.

    Privacy: the adaptive composition of all rounds, under REPLACE_RECORD and ADD_REMOVE_TEACHER as
    each of them says, which is reserved before the first. A student is a function of released
    labels and public features, so it costs nothing (Dwork & Roth (2014), Proposition 2.1), and a
    later round may depend on its predictions in any way.

    Args:
        rounds: the aggregators in their order, for the same relation. All but the first may need
            predictions.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: without a round, if a round is for another relation, or if the first needs
            predictions.
    """

    rounds: tuple[Aggregator, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rounds", tuple(self.rounds))
        require(self.rounds, "at least one round", rounds=self.rounds)
        for i, aggregator in enumerate(self.rounds):
            relation, setting = aggregator.neighboring_relation, f"rounds[{i}].neighboring_relation"
            require(
                relation is self.neighboring_relation,
                f"rounds for {self.neighboring_relation.value}",
                **{setting: relation.value},
            )
        first, asked = type(self.rounds[0]).__name__, self.rounds[0].needs
        require(
            "predictions" not in asked, "a first round that needs no predictions", rounds_0=first
        )

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        around = ClippedVotes(
            multiplier_clipped=1.0, around_predictions=True, neighboring_relation=outlook.relation
        )
        return [{"rounds": two_rounds(around, outlook).rounds}]

    @property
    def noise(self) -> dict[str, float]:
        return {
            f"rounds[{i}].{name}": scale
            for i, part in enumerate(self.rounds)
            for name, scale in part.noise.items()
        }

    @property
    def needs(self) -> frozenset[Need]:
        """The needs of its rounds, but for predictions: a student between rounds gives them.

        The student needs features.
        """
        needs = frozenset[Need]().union(*(part.needs for part in self.rounds)) - {"predictions"}
        # a sum of silos is opened once
        return needs | {"features", Counts | Scores | Moments} if len(self.rounds) > 1 else needs

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of one query in all rounds; ``tier`` is a tier of the last."""
        resolved = self.relation_of(relation)
        *before, last = self.rounds
        events = [aggregator.event(shape, resolved) for aggregator in before]
        return ComposedEvent(events=(*events, last.event(shape, resolved, tier)))

    def scaled(self, factor: float) -> Self:
        return replace(self, rounds=tuple(part.scaled(factor) for part in self.rounds))

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        *_, last = round_releases(self, votes, generator)
        return last.combined

    def max_answer_probability(self, shape: VoteShape) -> float:
        return min(part.max_answer_probability(shape) for part in self.rounds)


class RoundRelease(NamedTuple):
    """A round of `Rounds`."""

    aggregator: Aggregator
    votes: Votes
    """The votes, with the predictions that the round is given."""
    answers: Release
    combined: Release
    """The release of this and all earlier rounds."""


def round_releases(
    rounds: Rounds, votes: Votes, generator: np.random.Generator
) -> Iterator[RoundRelease]:
    """Yield the release of each round, and all so far combined."""
    asked, total = votes, None
    for aggregator in rounds.rounds:
        if total is not None:
            features = features_of(votes)
            student = student_of(total, features, votes.num_teachers)
            asked = votes.with_public(predictions=student.predict(features))
        answers = aggregator.aggregate(asked, generator=generator)
        total = answers if total is None else combined(total, answers, votes.num_teachers)
        yield RoundRelease(aggregator, asked, answers, total)


def two_rounds(last: Aggregator, outlook: Outlook) -> Rounds:
    """Return two rounds: `ClippedVotes`, then ``last``, which needs predictions.

    The first has twice the noise at which it would meet epsilon 1 by itself, the last such noise
    over the root of three quarters. If both compose as Gaussian mechanisms do, the first takes a
    quarter of any budget. Only the proportions matter.

    Raises:
        ValueError: if no noise of ``last`` meets epsilon 1 at the delta of ``outlook``.
    """
    target, relation = outlook.target(epsilon=1.0), outlook.relation
    start = ClippedVotes(multiplier_clipped=1.0, neighboring_relation=relation)
    first = start.calibrated(target, outlook.shape, orders=COARSE_ORDERS)
    assert first is not None
    final = require_given(
        last.calibrated(target, outlook.shape, orders=COARSE_ORDERS),
        "a last round that can meet a target",
        last=type(last).__name__,
    )
    rounds = (first.scaled(_FIRST**-0.5), final.scaled((1 - _FIRST) ** -0.5))
    return Rounds(rounds=rounds, neighboring_relation=relation)


def combined(earlier: Release, release: Release, num_teachers: int) -> Release:
    """Combine two releases of the same queries: average their counts by the noise in them.

    The later release is returned unless both have noisy counts of all entries. A release of several
    tiers never has them: a screen that confirms a student mixes the student's opinion with counts.
    Neither has a linear model, as its answers have no noise of their own.
    """
    before, after = _all_counts(earlier), _all_counts(release)
    if before is None or after is None:
        return release
    weights = before[1] ** -2, after[1] ** -2
    counts = (weights[0] * before[0] + weights[1] * after[0]) / sum(weights)
    labels = (2 * counts > num_teachers).astype(np.uint8)
    return release._replace(labels=labels, noisy_counts=counts, noise_std=sum(weights) ** -0.5)


def _all_counts(release: Release) -> tuple[FloatArray, float] | None:
    """Return noisy counts of all entries and the deviation of their noise, or None."""
    if release.noisy_counts is None or release.noise_std is None or release.tiers is not None:
        return None
    return (release.noisy_counts, release.noise_std) if release.mask.all() else None
