"""Stable majority keeps the contract."""

from typing import Any

import pytest

from pate.accounting.curves import cost
from pate.accounting.relation import NeighboringRelation as Relation
from pate.aggregators import Aggregator, StableMajority
from pate.votes import Votes
from tests.aggregators.oracles import answered, counts, passing, unanswered
from tests.contracts.aggregator_contract import AggregatorContract, Grid, Law
from tests.contracts.mechanism_contract import ORDERS


class TestStableMajority(AggregatorContract):
    # so improbable a failure that the mass it may hide does not make the curve look loose
    sigma, delta = 0.6, 1e-4
    grid: Grid = (
        ((1, 1), (1, 1), (1, 1), (1, 1)),
        ((0, 1), (0, 1), (0, 1), (0, 1)),
        ((0, 0), (0, 0), (0, 0), (0, 0)),
    )

    def make(self, relation: Relation) -> Aggregator:
        return StableMajority(sigma_majority=self.sigma, delta_majority=self.delta, neighboring_relation=relation)

    def law(self, votes: Votes, relation: Relation) -> Law:
        margins = [h - votes.num_teachers / 2 for h in counts(votes)]
        shift = 1 if relation is Relation.REPLACE_RECORD else 0.5
        p = passing(min(map(abs, margins)), shift, self.sigma, self.delta)
        return {answered([int(margin > 0) for margin in margins]): p, unanswered(len(margins)): 1 - p}

    def malformed(self) -> list[dict[str, Any]]:
        return [{"delta_majority": bad} for bad in (0.0, 1.0, float("nan"))]


class TestStableMajorityLeaky(TestStableMajority):
    """A probability of failure that is often met."""

    num_labels = 3
    num_teachers = 3
    sigma, delta = 1.0, 0.1
    grid: Grid = (((1, 1, 0), (1, 1, 0), (1, 1, 0)), ((0, 0, 1), (0, 0, 1), (0, 0, 1)))
    loose_because = "the mass that the probability of failure may hide is not in the curve"


@pytest.mark.parametrize("made_for", Relation)
def test_a_teacher_that_leaves_moves_a_margin_half_as_far(made_for: Relation) -> None:
    majority = StableMajority(sigma_majority=20.0, delta_majority=1e-6, neighboring_relation=made_for)
    replaced, left = (
        cost(majority.event(num_teachers=200, num_labels=5, neighboring_relation=relation), ORDERS).rdp
        for relation in (Relation.REPLACE_RECORD, Relation.ADD_REMOVE_TEACHER)
    )
    assert (left[:10] < 0.26 * replaced[:10]).all()
