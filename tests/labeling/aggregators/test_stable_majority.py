"""Stable majority keeps the contract."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binomtest

from pate import Votes, VoteShape
from pate._labeling.testing.aggregators import Grid, Law
from pate.accounting import NeighboringRelation as Relation, StabilityTestEvent
from pate.aggregators import Aggregator, StableMajority
from pate.mechanisms import exceeds
from pate.testing import AggregatorContract
from tests.core.mechanisms.oracles import passing
from tests.labeling.aggregators.oracles import answered, counts, unanswered
from tests.labeling.aggregators.test_of_mechanism import Bound


class TestStableMajority(Bound, AggregatorContract):
    # so improbable a failure that the mass it may hide does not make the curve look loose
    sigma, delta = 0.6, 1e-4
    grid: Grid = (
        ((1, 1), (1, 1), (1, 1), (1, 1)),
        ((0, 1), (0, 1), (0, 1), (0, 1)),
        ((0, 0), (0, 0), (0, 0), (0, 0)),
        ((1, 1), (1, 0), (1, 1), (1, 0)),
    )

    def make(self, relation: Relation) -> Aggregator:
        return StableMajority(
            sigma_majority=self.sigma, delta_majority=self.delta, neighboring_relation=relation
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        margins = [h - votes.num_teachers / 2 for h in counts(votes)]
        p = passing(min(map(abs, margins)), 1, self.sigma, self.delta)
        return {
            answered([int(margin > 0) for margin in margins]): p,
            unanswered(len(margins)): 1 - p,
        }

    def malformed(self) -> list[dict[str, Any]]:
        return [{"delta_majority": bad} for bad in (0.0, 1.0, float("nan"))]


@pytest.mark.slow
def test_a_teacher_that_stays_away_moves_the_least_lead_by_one() -> None:
    """Twenty teachers of one mind on nine labels of ten, one less of them on each: what `aggregate`
    tells of it."""
    majority = StableMajority(
        sigma_majority=3.0, delta_majority=1e-6, neighboring_relation=Relation.ADD_REMOVE_TEACHER
    )
    event = majority.event(VoteShape(20, 10))
    # the window is one vote under both relations, whether the event names it or not
    assert isinstance(event, StabilityTestEvent)
    assert event.gap_window == 1
    assert replace(event, window=1) == replace(
        majority.event(VoteShape(20, 10), Relation.REPLACE_RECORD),
        neighboring_relation=Relation.ADD_REMOVE_TEACHER,
    )
    order = 8.0
    charged = float(event.cost(np.array([order])).rdp[0])
    worst = 0.0
    for here, away in ((20, 19), (19, 18), (18, 17), (1, 0)):
        p, q = (passing(abs(h - 10), 1, 3.0, 1e-6) for h in (here, away))
        told = [order * np.log(a) + (1 - order) * np.log(b) for a, b in ((p, q), (1 - p, 1 - q))]
        worst = max(worst, float(np.logaddexp.reduce(told)) / (order - 1))
        for h, chance in ((here, p), (away, q)):
            votes = Votes.from_counts(np.full((400_000, 10), [*([20] * 9), h]), 20)
            passed = (
                majority.aggregate(votes, generator=np.random.default_rng(h)).mask.any(axis=1).sum()
            )
            assert binomtest(int(passed), 400_000, chance).pvalue > 1e-4
    # a move of half a vote, in half votes
    halved = StabilityTestEvent(
        neighboring_relation=Relation.ADD_REMOVE_TEACHER,
        sigma=6.0,
        delta_test=1e-6,
        shift=1,
        num_teachers=20,
    )
    assert worst > 3 * float(halved.cost(np.array([order])).rdp[0])
    assert 0.9 * charged < worst <= charged


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("num_teachers", [20, 21])
def test_a_distance_from_a_tie_is_half_of_the_teachers_at_most(
    relation: Relation, num_teachers: int
) -> None:
    majority = StableMajority(
        sigma_majority=3.0, delta_majority=1e-6, neighboring_relation=relation
    )
    event: Any = majority.event(VoteShape(num_teachers, 9))
    expected = StabilityTestEvent(
        neighboring_relation=relation,
        sigma=3.0,
        delta_test=1e-6,
        shift=1,
        window=event.window,
        num_teachers=10,
    )
    assert event == expected and event.gap_window == 1


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("num_teachers", [6, 7])
def test_a_lead_of_one_vote_is_unstable_and_two_are_not(
    relation: Relation, num_teachers: int
) -> None:
    majority = StableMajority(
        sigma_majority=1e-3, delta_majority=0.25, neighboring_relation=relation
    )
    for h in range(num_teachers + 1):
        votes = Votes.from_counts(np.full((4000, 2), [h, num_teachers]), num_teachers)
        answered_part = majority.aggregate(votes, generator=np.random.default_rng(h)).mask.mean()
        unstable = abs(h - num_teachers / 2) <= 1
        assert answered_part == (pytest.approx(0.25, abs=0.03) if unstable else 1), h
        turns = {2 * g > num_teachers for g in (h - 1, h, h + 1) if 0 <= g <= num_teachers}
        assert unstable or len(turns) == 1


def test_the_least_lead_is_tested() -> None:
    votes = Votes.from_counts(np.random.default_rng(1).integers(0, 31, (5000, 3)), 30)
    release = StableMajority(sigma_majority=2.0, delta_majority=1e-2).aggregate(
        votes, generator=np.random.default_rng(2)
    )
    leads = np.abs(2 * votes.counts - 30).min(axis=1)
    excess = np.maximum(2, leads) - 2
    passed = exceeds(
        excess, -4.0 * float(ndtri(1e-2)), sigma=4.0, generator=np.random.default_rng(2)
    )
    np.testing.assert_array_equal(release.mask, np.repeat(passed[:, None], 3, axis=1))
    assert 0.05 < passed.mean() < 0.5
