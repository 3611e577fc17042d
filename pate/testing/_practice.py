"""Tests of aggregators at a size that occurs in practice: they answer signal, and nothing else."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from pate._votes import Ballots, Scores, Votes, VoteShape, serves
from pate.accounting._cost import NeighboringRelation
from pate.aggregators import Aggregator, Outlook, Release
from pate.testing._ballot_laws import Array
from pate.testing._laws import (
    RELATIONS,
    Contract,
)

_New = Callable[[], "PracticeContract"]


class PracticeContract(Contract):
    """Checks an aggregator with the noise that a target needs, on votes of 200 teachers."""

    answers_coins_because = ""
    """Why an aggregator that can abstain answers teachers who toss coins; empty if it does not."""

    @abstractmethod
    def make(self, relation: NeighboringRelation) -> Aggregator:
        """Return the aggregator, run for ``relation``."""

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_votes_without_signal_answer_nothing(self, relation: NeighboringRelation) -> None:
        """One that can abstain answers at most 5% of queries on which teachers toss coins."""
        aggregator = _abstaining(type(self), relation)
        num_queries = _COINS.num_queries
        answered = (
            0 if aggregator is None else int(_release_of(aggregator, _COINS).mask.any(axis=1).sum())
        )
        expected = (
            f"Expected {num_queries // 20} of {num_queries} queries without signal answered at most"
        )
        said = f"{expected}, unless `answers_coins_because` says why, got {answered}"
        assert (answered > num_queries // 20) == bool(self.answers_coins_because), said

    @pytest.mark.parametrize("relation", RELATIONS)
    def test_unanimous_votes_are_answered(self, relation: NeighboringRelation) -> None:
        """One that can abstain answers 75% of unanimous votes as cast, for sets of all sizes."""
        aggregator = _abstaining(type(self), relation)
        if aggregator is None:
            return
        sizes = [aggregator.k] if hasattr(aggregator, "k") else range(_PRACTICE.num_labels + 1)
        for size in sizes:
            cast = np.array(
                [
                    np.random.default_rng(row).permutation(_PRACTICE.num_labels) < size
                    for row in range(20)
                ]
            )
            release = _release_of(aggregator, _votes_of_probability(cast))
            right = int((release.mask & (release.labels == cast)).all(axis=1).sum())
            assert right >= 15, (
                f"Expected 15 of 20 unanimous sets of {size} labels answered as cast, got {right}"
            )

    def in_practice(self, outlook: Outlook) -> Aggregator | None:
        """Return an aggregator with the noise for epsilon 8; None if the class proposes none."""
        return _proposed(type(self.make(outlook.relation)), outlook)


@cache
def _proposed(cls: type[Aggregator], outlook: Outlook) -> Aggregator | None:
    target = outlook.target(epsilon=8.0)
    if cls.splits_noise:
        return cls.for_target(target, outlook.shape)
    proposed = cls.proposals(outlook)
    return proposed[0].calibrated(target, outlook.shape, tolerance=1e-3) if proposed else None


_PRACTICE = VoteShape(num_teachers=200, num_labels=6)


def _votes_of_probability(chances: Array) -> Ballots:
    """Return votes of 200 teachers, who give labels ``[Q, C]`` with these probabilities."""
    ballots = np.random.default_rng(0).random(
        (len(chances), _PRACTICE.num_teachers, _PRACTICE.num_labels)
    )
    votes = Votes.from_ballots((ballots < chances[:, None]).astype(np.uint8))
    return replace(votes, predictions=np.full(chances.shape, 0.5), features=np.eye(len(chances)))


_COINS = _votes_of_probability(np.full((60, 6), 0.5))


def _release_of(aggregator: Aggregator, votes: Ballots) -> Release:
    return aggregator.aggregate(votes, generator=np.random.default_rng(0))


@cache
def _abstaining(contract: _New, relation: NeighboringRelation) -> Aggregator | None:
    """Return the aggregator `in_practice` if it abstains somewhere between coins and agreement."""
    num_queries, k = _COINS.num_queries, _PRACTICE.num_labels // 2
    outlook = Outlook(
        shape=_PRACTICE, num_queries=num_queries, delta=1e-6, relation=relation, labels_per_sample=k
    )
    aggregator = contract().in_practice(outlook)
    if aggregator is None or serves(Scores, aggregator.needs):
        return None
    agreement = np.linspace(0.5, 1, num_queries)[:, None]
    votes = _votes_of_probability(
        np.where(np.arange(_PRACTICE.num_labels) < k, agreement, 1 - agreement)
    )
    return None if _release_of(aggregator, votes).mask.any(axis=1).all() else aggregator
