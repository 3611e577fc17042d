"""Ground of the contracts of aggregators: tests at a usual size, and laws on all ballots."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate._validation import IntArray
from pate._votes import Ballots, Counts, Scores, Votes, VoteShape, serves
from pate.accounting import NeighboringRelation
from pate.aggregators import Aggregator, Outlook, Release
from pate.testing._laws import ORDERS, RELATIONS, Contract, chi_square_p_value, renyi_divergence

Array = NDArray[Any]
Outcome = tuple[int, ...]
Law = Mapping[Outcome, float]
BallotRows = tuple[tuple[int, ...], ...]
Grid = Sequence[BallotRows]


_New = Callable[[], Any]
"""A class of `pate.testing.AggregatorContract`, whose module imports this one."""


def neighbors(
    shape: VoteShape, relation: NeighboringRelation
) -> list[tuple[BallotRows, BallotRows]]:
    """Return all ordered pairs of neighboring ballots ``[T, C]``, each set of teachers once.

    A teacher that takes no part casts a row of zeros; the number of teachers is the same on both
    sides.
    """
    absent = (0,) * shape.num_labels
    kinds = list(itertools.product((0, 1), repeat=shape.num_labels))
    pairs = []
    for others in itertools.combinations_with_replacement(kinds, shape.num_teachers - 1):
        if relation is NeighboringRelation.REPLACE_RECORD:
            pairs += [((*others, a), (*others, b)) for a, b in itertools.permutations(kinds, 2)]
        else:
            moves = [(a, absent) for a in kinds if a != absent]
            pairs += [((*others, a), (*others, b)) for pair in moves for a, b in (pair, pair[::-1])]
    return pairs


def _visible_part(contract: _New) -> Callable[[BallotRows], BallotRows]:
    """Return a function to the part of ballots that laws depend on; their order is never in it."""
    if not serves(Counts, contract().make(RELATIONS[0]).needs):
        return lambda ballots: tuple(sorted(ballots))
    return lambda ballots: (tuple(map(sum, zip(*ballots, strict=True))),)


@cache
def laws_of_ballots(
    contract: _New, made_for: NeighboringRelation
) -> dict[BallotRows, tuple[BallotRows, Law]]:
    """Return ballots with different visible parts, and their laws, by that part."""
    aggregator, visible = contract(), _visible_part(contract)
    kinds = itertools.product((0, 1), repeat=aggregator.num_labels)
    listed = itertools.combinations_with_replacement(kinds, aggregator.num_teachers)
    representatives = {visible(ballots): ballots for ballots in listed}
    return {
        key: (ballots, aggregator.law(aggregator.votes(ballots), made_for))
        for key, ballots in representatives.items()
    }


@cache
def laws_of_neighbors(
    contract: _New,
    made_for: NeighboringRelation,
    relation: NeighboringRelation,
    teachers: int = 1,
) -> tuple[Array, Array, list[Outcome], float]:
    """Return the different laws of all neighbors, ``[N, M]`` each, their M outcomes, and delta0.

    Of one teacher that changed or, with ``teachers=2``, of two.
    """
    aggregator, visible, laws = (
        contract(),
        _visible_part(contract),
        laws_of_ballots(contract, made_for),
    )
    pairs = {(visible(a), visible(b)) for a, b in neighbors(aggregator.shape, relation)}
    outcomes = sorted({outcome for _, law in laws.values() for outcome in law})
    table = np.array([[law.get(outcome, 0.0) for outcome in outcomes] for _, law in laws.values()])
    rows = {ballots: row for row, ballots in enumerate(laws)}
    # many ballots have one law
    distinct, which = np.unique(table.round(15), axis=0, return_inverse=True)
    law_of = which.reshape(-1)
    near = np.zeros((len(laws), len(laws)), dtype=np.int64)
    near[tuple(np.array([(rows[a], rows[b]) for a, b in pairs]).T)] = 1
    starts, stops = np.nonzero(
        np.linalg.matrix_power(near + np.eye(len(laws), dtype=np.int64), teachers)
    )
    ends = np.unique(law_of[starts] * len(distinct) + law_of[stops])
    first, second = np.divmod(ends[ends // len(distinct) != ends % len(distinct)], len(distinct))
    delta0 = aggregator.event(made_for, relation).for_group_size(teachers).cost(ORDERS).delta0
    return distinct[first], distinct[second], outcomes, delta0


@cache
def worst_divergence(
    contract: _New,
    made_for: NeighboringRelation,
    relation: NeighboringRelation,
    teachers: int = 1,
) -> Array:
    first, second, _, delta0 = laws_of_neighbors(contract, made_for, relation, teachers)
    return renyi_divergence(first, second, delta0).max(axis=0)


def p_value_of(drawn: IntArray, law: Law, *, rare: float = 0.0) -> float:
    """Return the p-value of a chi-square test of outcomes ``[n, m]``; an unknown one fails."""
    valid = sum(law.values()) == pytest.approx(1, abs=1e-6) and min(law.values()) >= 0
    assert valid, f"Expected a law of probabilities that add up to 1, got {dict(law)}"
    codes = drawn @ (int(drawn.max()) + 2) ** np.arange(drawn.shape[1])
    _, rows, counts = np.unique(codes, return_index=True, return_counts=True)
    observed_counts = {
        tuple(outcome): count
        for outcome, count in zip(drawn[rows].tolist(), counts.tolist(), strict=True)
    }
    unknown = sorted(set(observed_counts) - set(law))
    assert not unknown, (
        f"Expected a law with all outcomes (*labels, *mask, tier) that are drawn, got {unknown[:3]}"
    )
    observed = np.array([observed_counts.get(outcome, 0) for outcome in law])
    return chi_square_p_value(observed, np.array(list(law.values())) * len(drawn), rare=rare)


def outcomes_of(aggregator: Aggregator, votes: Ballots, generator: np.random.Generator) -> IntArray:
    """Return the outcomes ``[Q, 2 C + 1]`` of one call of `aggregate`, and check the release."""
    release = aggregator.aggregate(votes, generator=generator)
    assert isinstance(release, Release), f"Expected a Release, got {type(release).__name__}"
    labels, mask, tiers = release.labels, release.mask, release.tiers
    shapes, wanted = {labels.shape, mask.shape}, votes.counts.shape
    assert shapes == {wanted}, f"Expected labels and mask of shape [Q, C] = {wanted}, got {shapes}"
    typed = labels.dtype == np.uint8 and mask.dtype == np.bool_
    assert typed, (
        f"Expected labels of uint8 and a mask of bool, got {labels.dtype} and {mask.dtype}"
    )
    tiers_or_zero = np.zeros(len(labels), dtype=np.int64) if tiers is None else tiers
    return np.column_stack((labels, mask, tiers_or_zero)).astype(np.int64)


_NewContract = Callable[[], "PracticeContract"]


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
def _abstaining(contract: _NewContract, relation: NeighboringRelation) -> Aggregator | None:
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
