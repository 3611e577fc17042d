"""Sets of a public size keep the contract."""

from typing import Any

import pytest

from pate import Votes, VoteShape
from pate._core.mechanisms.canonical import CanonicalLoss
from pate._labeling.testing.aggregators import Grid, Law
from pate.accounting import NeighboringRelation as Relation
from pate.aggregators import Aggregator, Canonical, Peeling
from pate.testing import AggregatorContract
from tests.core.mechanisms import oracles
from tests.labeling.aggregators.oracles import counts, sets_law
from tests.labeling.aggregators.test_of_mechanism import Bound

GRID = (
    ((1, 1, 0), (1, 1, 0), (1, 0, 0), (1, 1, 0)),
    ((0, 0, 1), (0, 0, 1), (0, 1, 1), (0, 1, 0)),
    ((0, 0, 0), (0, 0, 0), (1, 1, 1), (1, 0, 1)),
)


class _TopK(AggregatorContract):
    num_labels = 3
    grid: Grid = GRID
    k = 2
    scale = 1.0

    def malformed(self) -> list[dict[str, Any]]:
        return [{"k": 0}, {"k": 2.0}, {"k": True}]

    def test_too_large_a_set_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^Expected k <= \d for 1 items, got k=\d$"):
            self.make(Relation.REPLACE_RECORD).event(VoteShape(4, self.k - 1 or 1))


class TestCanonical(Bound, _TopK):
    gamma = 0.5
    loss: CanonicalLoss = "lead"

    def make(self, relation: Relation) -> Aggregator:
        return Canonical(
            k=self.k,
            scale_canonical=self.scale,
            gamma=self.gamma,
            loss=self.loss,
            neighboring_relation=relation,
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        utilities = oracles.subset_utilities(counts(votes), self.k, self.gamma, self.loss)
        return sets_law(oracles.sets(3, self.k), oracles.softmax(utilities / self.scale), 3)

    def malformed(self) -> list[dict[str, Any]]:
        return [
            *super().malformed(),
            {"gamma": -0.1},
            {"gamma": 1.1},
            {"gamma": "1"},
            {"loss": "paper"},
        ]


class TestPeelingOne(Bound, _TopK):
    k = 1

    def make(self, relation: Relation) -> Aggregator:
        return Peeling(k=self.k, scale_peel=self.scale, neighboring_relation=relation)

    def law(self, votes: Votes, relation: Relation) -> Law:
        sequences = oracles.sequences(3, self.k)
        scores = tuple(count / self.scale for count in counts(votes))
        return sets_law(sequences, oracles.peel_law(scores, sequences, oracles.softmax), 3)

    def test_too_large_a_set_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^Expected k <= 3 for 3 items, got k=4$"):
            Peeling(k=4, scale_peel=1.0).event(VoteShape(4, 3))


def test_the_least_voted_label_counts_half_unless_it_is_told() -> None:
    assert Canonical(k=1, scale_canonical=1.0).gamma == 0.5
