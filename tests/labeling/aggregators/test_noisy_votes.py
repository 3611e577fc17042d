"""Gaussian noise on counts keeps the contract, hard and soft."""

from typing import Any

import numpy as np
import pytest

from pate import Votes, VoteShape
from pate._core.accounting.accountant import RenyiAccountant
from pate._labeling.testing.aggregators import Law
from pate.accounting import (
    GaussianEvent,
    NeighboringRelation as Relation,
    RDPAccountant,
    gaussian_epsilon,
)
from pate.aggregators import Aggregator, Counts, NoisyVotes
from pate.testing import AggregatorContract, SoftReleaseContract
from tests.labeling.aggregators.oracles import counts, gaussian_labels_law

_SIGNS = "labels tell the sign of a noisy count alone: 2 / pi of what the count itself would"


class TestNoisyVotes(AggregatorContract):
    loose_because = _SIGNS
    sigma = 1.5

    def make(self, relation: Relation) -> Aggregator:
        return NoisyVotes(sigma_votes=self.sigma, neighboring_relation=relation)

    def law(self, votes: Counts, relation: Relation) -> Law:
        return gaussian_labels_law([h - votes.num_teachers / 2 for h in counts(votes)], self.sigma)

    def malformed(self) -> list[dict[str, Any]]:
        return [{"sigma_votes": float("inf")}, {"soft": float("nan")}, {"soft": 1}]

    def test_hard_labels_are_those_of_the_soft_release(self) -> None:
        votes = Votes.from_counts(np.random.default_rng(0).integers(0, 9, (500, 5)), 8)
        soft, hard = (
            NoisyVotes(sigma_votes=2.0, soft=soft).aggregate(
                votes, generator=np.random.default_rng(1)
            )
            for soft in (True, False)
        )
        np.testing.assert_array_equal(soft.labels, hard.labels)
        assert hard.noisy_counts is None and hard.noise_std is None


class TestSoftNoisyVotes(SoftReleaseContract):
    def make(self, relation: Relation) -> Aggregator:
        return NoisyVotes(sigma_votes=2.0, neighboring_relation=relation)

    def mean(self, votes: Counts) -> np.ndarray:
        return np.asarray(votes.counts[0])


class TestNoisyVotesWithALead(AggregatorContract):
    loose_because = _SIGNS

    def make(self, relation: Relation) -> Aggregator:
        return NoisyVotes(sigma_votes=1.5, soft=False, min_lead=1.0, neighboring_relation=relation)

    def law(self, votes: Counts, relation: Relation) -> Law:
        return gaussian_labels_law(
            [h - votes.num_teachers / 2 for h in counts(votes)], 1.5, lead=1.0
        )

    def malformed(self) -> list[dict[str, Any]]:
        return [{"min_lead": -0.5}, {"min_lead": float("nan")}]

    def test_soft_counts_are_those_of_what_is_released(self) -> None:
        votes = Votes.from_counts(np.random.default_rng(0).integers(0, 9, (500, 5)), 8)
        every, some, hard = (
            NoisyVotes(sigma_votes=2.0, min_lead=lead, soft=soft).aggregate(
                votes, generator=np.random.default_rng(1)
            )
            for lead, soft in ((0.0, True), (1.0, True), (1.0, False))
        )
        assert every.mask.all() and every.noisy_counts is not None and 0 < some.mask.mean() < 1
        np.testing.assert_array_equal(some.noisy_counts, np.where(some.mask, every.noisy_counts, 0))
        np.testing.assert_array_equal(some.labels, hard.labels)
        np.testing.assert_array_equal(some.mask, hard.mask)

    def test_a_count_that_leads_by_more_keeps_its_label(self) -> None:
        plain, led = (
            NoisyVotes(sigma_votes=10.0, min_lead=lead).teachers_to_answer(0.9, 5)
            for lead in (0.0, 3.0)
        )
        assert led == pytest.approx(plain + 2 * 3.0)
        assert plain == pytest.approx(25.63, abs=0.01)  # 20 deviations of 1.2816


@pytest.mark.parametrize("relation", Relation)
def test_cost_grows_with_the_number_of_labels(relation: Relation) -> None:
    shape = VoteShape(800, 16)
    for soft in (True, False):
        event = NoisyVotes(sigma_votes=10.0, neighboring_relation=relation, soft=soft).event(shape)
        assert event == GaussianEvent(neighboring_relation=relation, noise_multiplier=2.5)
    assert (
        NoisyVotes(sigma_votes=10.0, min_lead=2.0, neighboring_relation=relation).event(shape)
        == event
    )


def test_a_teacher_that_stays_away_costs_what_its_ballot_moves() -> None:
    """All of 20 labels for one sample after another, or none of them, told 600 times with a
    deviation of 500 votes."""
    sigma, queries, num_labels, delta = 500.0, 600, 20, 1e-6
    noisy = NoisyVotes(sigma_votes=sigma, neighboring_relation=Relation.ADD_REMOVE_TEACHER)
    event = noisy.event(VoteShape(800, num_labels))
    charged = RDPAccountant(relation=Relation.ADD_REMOVE_TEACHER).compose(event, queries)
    ballots = np.zeros((2, 800, num_labels), dtype=np.uint8)
    ballots[:, 1:401] = 1
    ballots[0, 0] = 1
    votes = Votes.from_ballots(np.repeat(ballots, queries, axis=0))
    release = noisy.aggregate(votes, generator=np.random.default_rng(0))
    assert release.noisy_counts is not None
    # the sum of all values tells the two apart as well as all of them do
    sums = release.noisy_counts.reshape(2, -1).sum(axis=1)
    deviation = sigma * (queries * num_labels) ** 0.5
    moved = queries * num_labels / deviation
    assert abs(sums[0] - sums[1] - queries * num_labels) < 5 * 2**0.5 * deviation
    true = gaussian_epsilon(delta, moved)
    assert true == pytest.approx(0.920, abs=1e-3)
    assert charged.get_epsilon(delta=delta) == pytest.approx(true, rel=1e-6)
    assert charged.guarantee(delta=delta, by=[RenyiAccountant()]).epsilon == pytest.approx(
        0.992, abs=1e-3
    )


class _Silent(np.random.Generator):
    """A generator whose noise is 0, so that ties stay ties."""

    def integers(self, *_: Any, size: Any, **__: Any) -> Any:  # type: ignore[override]
        return np.zeros(size, dtype=np.int64)


def test_a_tie_gives_no_label() -> None:
    votes = Votes.from_counts([[1, 2, 3, 4, 5]], 6)
    silent = _Silent(np.random.PCG64(0))
    release = NoisyVotes(sigma_votes=1.0).aggregate(votes, generator=silent)
    assert release.labels.tolist() == [[0, 0, 0, 1, 1]] and release.noisy_counts is not None
    np.testing.assert_array_equal(release.noisy_counts, votes.counts)
    release = NoisyVotes(sigma_votes=1.0, soft=False, min_lead=1.0).aggregate(
        votes, generator=silent
    )
    # a count at the lead above one half is not given, one at the lead below is denied
    assert release.labels.tolist() == [[0, 0, 0, 0, 1]]
    assert release.mask.tolist() == [[True, True, False, False, True]]
    assert NoisyVotes(sigma_votes=1.0, soft=False).aggregate(votes, generator=silent).mask.all()
