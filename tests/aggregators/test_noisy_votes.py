"""Gaussian noise on counts keeps the contract, hard and soft."""

from typing import Any

import numpy as np
import pytest

from pate.accounting.relation import NeighboringRelation as Relation
from pate.aggregators import Aggregator, GNThreshold, NoisyVotes
from pate.votes import Votes
from tests.aggregators.oracles import counts, gaussian_labels_law
from tests.contracts.aggregator_contract import AggregatorContract, Law, SoftReleaseContract

_SIGNS = "labels tell the sign of a noisy count alone: 2 / pi of what the count itself would"


class TestNoisyVotes(AggregatorContract):
    loose_because = _SIGNS
    sigma = 1.5

    def make(self, relation: Relation) -> Aggregator:
        return NoisyVotes(sigma_votes=self.sigma, neighboring_relation=relation)

    def law(self, votes: Votes, relation: Relation) -> Law:
        return gaussian_labels_law([h - votes.num_teachers / 2 for h in counts(votes)], self.sigma)

    def malformed(self) -> list[dict[str, Any]]:
        return [{"sigma_votes": float("inf")}]

    def test_hard_labels_are_those_of_the_soft_release(self) -> None:
        votes = Votes.from_counts(np.random.default_rng(0).integers(0, 9, (500, 5)), 8)
        soft, hard = (
            NoisyVotes(sigma_votes=2.0, soft=soft).aggregate(votes, generator=np.random.default_rng(1))
            for soft in (True, False)
        )
        np.testing.assert_array_equal(soft.labels, hard.labels)
        assert hard.values is None and hard.noise_std is None


class TestSoftNoisyVotes(SoftReleaseContract):
    def make(self, relation: Relation) -> Aggregator:
        return NoisyVotes(sigma_votes=2.0, neighboring_relation=relation)

    def mean(self, votes: Votes) -> np.ndarray:
        # a teacher that takes no part leaves the nominal number of teachers as it is
        margins = votes.counts[0] - votes.num_teachers / 2
        return np.asarray(margins + self.num_teachers / 2)


class TestGNThreshold(AggregatorContract):
    loose_because = _SIGNS

    def make(self, relation: Relation) -> Aggregator:
        return GNThreshold(sigma_threshold=1.5, min_lead=1.0, neighboring_relation=relation)

    def law(self, votes: Votes, relation: Relation) -> Law:
        return gaussian_labels_law([h - votes.num_teachers / 2 for h in counts(votes)], 1.5, lead=1.0)

    def malformed(self) -> list[dict[str, Any]]:
        return [{"min_lead": -0.5}, {"min_lead": float("nan")}]

    def test_no_lead_answers_everything(self) -> None:
        votes = Votes.from_counts(np.random.default_rng(0).integers(0, 9, (500, 5)), 8)
        release = GNThreshold(sigma_threshold=2.0, min_lead=0).aggregate(votes, generator=np.random.default_rng(1))
        assert release.mask.all()


@pytest.mark.parametrize("relation", Relation)
def test_cost_grows_with_the_number_of_labels(relation: Relation) -> None:
    event = NoisyVotes(sigma_votes=10.0, neighboring_relation=relation).event(num_teachers=800, num_labels=16)
    assert event.to_dict()["noise_multiplier"] == pytest.approx(10 / (4 if relation.count_window == 2 else 2))
