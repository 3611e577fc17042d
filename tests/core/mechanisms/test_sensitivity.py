"""Scores of any sensitivity: the unit in which they are written changes nothing but the numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pate import mechanisms as m
from pate._core.testing.laws import ORDERS
from pate._core.testing.mechanisms import Grid
from pate.accounting import NeighboringRelation
from pate.mechanisms import ScoreMechanism
from tests.core.mechanisms import (
    oracles,
    test_joint,
    test_limited_domain,
    test_peeling,
    test_top_stable,
)

UNIT = 3  # by which a score moves between neighbors


class _InUnits:
    """A contract on scores that are UNIT times as large as counts."""

    counts_are_scores = False

    def make(self, relation: NeighboringRelation) -> Any:
        plain = super().make(relation)  # type: ignore[misc]
        return replace(plain.scaled(UNIT), sensitivity=UNIT)

    def law(self, mechanism: Any, scores: oracles.Array) -> oracles.Array:
        found: oracles.Array = super().law(mechanism, UNIT * np.asarray(scores))  # type: ignore[misc]
        return found

    def select(self, mechanism: Any, scores: Any, generator: np.random.Generator) -> Any:
        return super().select(mechanism, UNIT * np.asarray(scores), generator)  # type: ignore[misc]


class TestPeelingInUnits(_InUnits, test_peeling.TestGumbelPeeling): ...


class TestJointInUnits(_InUnits, test_joint.TestJoint):
    def test_an_undeclared_sensitivity_is_not_paid_for(self) -> None:
        """Scores that move by UNIT cost more than a mechanism for votes says."""
        relation = NeighboringRelation.ADD_REMOVE_TEACHER
        votes = replace(self.make(relation), sensitivity=1.0)
        worst = self.worst_divergence(relation)
        assert (
            worst <= self.make(relation).event(relation).cost(ORDERS).rdp * (1 + self.tolerance)
        ).all()
        assert (worst > votes.event(relation).cost(ORDERS).rdp).any()


STEP = 0.25


class _OnAGrid:
    """A contract on real scores: multiples of a quarter, two of which a score moves between
    neighbors."""

    counts_are_scores = False

    num_items = 3
    max_count = 7
    max_move = 2
    shift = 2**40  # beyond 2^53 steps no float holds a quarter
    sensitivity = 0.5
    grid: Grid = ((9, 2, 0), (8, 8, 1), (2, 2, 2), (0, 7, 4))

    def make(self, relation: NeighboringRelation) -> Any:
        plain = super().make(relation)  # type: ignore[misc]
        return replace(plain.scaled(0.5), sensitivity=self.sensitivity)

    def law(self, mechanism: Any, scores: oracles.Array) -> oracles.Array:
        found: oracles.Array = super().law(mechanism, STEP * np.asarray(scores))  # type: ignore[misc]
        return found

    def select(self, mechanism: Any, scores: Any, generator: np.random.Generator) -> Any:
        return super().select(mechanism, STEP * np.asarray(scores), generator)  # type: ignore[misc]


class TestLimitedDomainOnAGrid(_OnAGrid, test_limited_domain.TestLimitedDomain): ...


@pytest.mark.slow
class TestLimitedDomainOnAGridForTheOther(
    _OnAGrid, test_limited_domain.TestLimitedDomainForTheOther
): ...


class TestTopStableOnAGrid(_OnAGrid, test_top_stable.TestTopStable): ...


@pytest.mark.slow
class TestTopStableOnAGridForTheOther(_OnAGrid, test_top_stable.TestTopStableForTheOther): ...


@pytest.mark.parametrize("contract", [TestLimitedDomainOnAGrid, TestTopStableOnAGrid])
@pytest.mark.parametrize("relation", NeighboringRelation)
def test_a_sensitivity_that_is_half_of_the_moves_is_refuted(
    contract: Any, relation: NeighboringRelation
) -> None:
    class Claimed(contract):  # type: ignore[misc]
        sensitivity = 0.25

    with pytest.raises(AssertionError):
        Claimed().test_divergence_between_all_neighbors_is_within_the_curve(relation)


LISTED: dict[str, Any] = {
    "scale_threshold": 0.5,
    "scale_gap": 1.5,
    "scale_peel": 2.0,
    "delta": 0.01,
}
MECHANISMS: list[ScoreMechanism[Any]] = [
    m.NoisyTopK(k=1, scale=2.0, noise="laplace"),
    m.NoisyTopK(k=3, scale=2.0),
    m.NoisyTopK(k=3, scale=2.0, noise="exponential"),
    m.GumbelPeeling(k=3, scale=2.0),
    m.PermuteAndFlipPeeling(k=3, scale=2.0),
    m.CanonicalMechanism(k=3, scale=2.0),
    m.JointMechanism(k=3, scale=2.0),
    m.JointMechanism(k=1, scale=2.0, noise="exponential"),
    m.OneShotLaplace(k=3, scale=2.0),
    m.GapChoice(num_labels=6, scale=2.0),
    m.GapChoice(num_labels=6, scale=2.0, noise="gaussian"),
    m.GapChoice(num_labels=6, scale=2.0, noise="laplace"),
    *(
        m.LimitedDomain(k=2, kbar=3, scale=2.0, delta=0.01, relation=relation)
        for relation in NeighboringRelation
    ),
    *(m.TopStable(k=2, kbar=3, relation=each, **LISTED) for each in NeighboringRelation),
]


@pytest.mark.parametrize("votes", MECHANISMS, ids=lambda each: type(each).__name__)
def test_scores_and_noise_in_another_unit_cost_the_same(votes: Any) -> None:
    """In a unit of 1/4 vote, which floats divide exactly, both events are equal."""
    scores = replace(votes.scaled(0.25), sensitivity=0.25)
    twice = replace(votes, sensitivity=2.0)
    for relation in NeighboringRelation:
        assert scores.event(relation) == votes.event(relation)
        assert twice.event(relation) == votes.scaled(0.5).event(relation)
        assert scores.window(relation) == relation.score_range / 4
    counts = np.array([9, 3, 7, 7, 1, 0, 2])
    drawn = [
        each(values, generator=m.seeded_generator(0))
        for each, values in ((votes, counts), (scores, counts / 4))
    ]
    for first, second in zip(*map(np.atleast_2d, drawn), strict=True):
        np.testing.assert_allclose(first, second)
