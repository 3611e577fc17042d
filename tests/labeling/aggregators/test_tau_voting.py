"""Tau voting keeps the contract, hard and soft, around zero and around predictions."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pate import Votes
from pate._labeling.aggregators import clipped_votes as tau_voting
from pate._labeling.aggregators.clipped_votes import Norm
from pate._labeling.testing.aggregators import Law
from pate.accounting import NeighboringRelation as Relation
from pate.aggregators import Aggregator, Ballots, TauVoting
from pate.testing import AggregatorContract, SoftReleaseContract
from tests.labeling.aggregators.oracles import gaussian_labels_law


def clipped(ballot: np.ndarray, tau: float, norm: Norm) -> np.ndarray:
    """Scale one ballot down to the norm."""
    size = np.linalg.norm(ballot, ord=1 if norm == "l1" else 2)
    return ballot * min(1.0, tau / size) if size else ballot


class TestTauVoting(AggregatorContract):
    loose_because = "labels tell the sign of a noisy sum alone: 2 / pi of what the sum itself would"
    tau, sigma, threshold = 1.2, 1.0, 1.5
    norm: Norm = "l2"

    def make(self, relation: Relation) -> Aggregator:
        return TauVoting(
            tau=self.tau,
            sigma_tau=self.sigma,
            threshold_tau=self.threshold,
            norm=self.norm,
            neighboring_relation=relation,
            around_predictions=self.predictions is not None,
        )

    def law(self, votes: Ballots, relation: Relation) -> Law:
        guess = np.array(self.predictions or (0,) * self.num_labels) > 0.5
        sums = sum(
            clipped(np.abs(ballot - guess), self.tau, self.norm)
            for ballot in votes.ballots[0].astype(float)
        )
        means = np.where(guess, self.threshold - sums, sums - self.threshold)
        return gaussian_labels_law(means.tolist(), self.sigma)

    def malformed(self) -> list[dict[str, Any]]:
        return [{"tau": 0.0}, {"threshold_tau": -1.0}, {"norm": "l3"}]


class TestTauVotingAroundPredictions(TestTauVoting):
    predictions = (0.9, 0.2)


class TestSoftTauVoting(SoftReleaseContract):
    tau = 1.3
    norm: Norm = "l2"

    def make(self, relation: Relation) -> Aggregator:
        return TauVoting(
            tau=self.tau,
            sigma_tau=2.0,
            threshold_tau=2.0,
            norm=self.norm,
            neighboring_relation=relation,
        )

    def mean(self, votes: Ballots) -> np.ndarray:
        return np.asarray(
            sum(clipped(b, self.tau, self.norm) for b in votes.ballots[0].astype(float))
        )


class TestSoftTauVotingAroundPredictions(TestSoftTauVoting):
    """A row of zeros differs from a student that gives labels, so any two clipped ballots may be
    neighbors."""

    # which labels a student gives is no matter where all ballots are compared, but how many
    guesses = tuple(itertools.combinations_with_replacement((0.1, 0.8), 3))

    def make(self, relation: Relation) -> Aggregator:
        return TauVoting(
            tau=self.tau,
            sigma_tau=2.0,
            threshold_tau=2.0,
            norm=self.norm,
            neighboring_relation=relation,
            around_predictions=True,
        )

    def mean(self, votes: Ballots) -> np.ndarray:
        assert votes.predictions is not None
        guess = votes.predictions[0] > 0.5
        differ = sum(
            clipped(np.abs(b - guess), self.tau, self.norm) for b in votes.ballots[0].astype(float)
        )
        return np.where(guess, votes.num_teachers - differ, differ)

    def test_labels_follow_from_the_values(self) -> None:
        """Of each label by itself: a guess turns which side of the threshold gives it."""
        release = self._release(self.make(Relation.REPLACE_RECORD), 2_000)
        assert release.noisy_counts is not None
        np.testing.assert_array_equal(release.labels, release.noisy_counts > 2.0)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_sensitivity_is_that_of_all_pairs_of_ballots(norm: Norm) -> None:
    for num_labels in (1, 2, 3, 4):
        ballots = np.array(list(itertools.product((0.0, 1.0), repeat=num_labels)))
        for tau in (0.6, 1.0, 1.2, 1.42, 1.74, 2.5):
            voting = TauVoting(tau=tau, sigma_tau=1.0, threshold_tau=1.0, norm=norm)
            scaled = np.array([clipped(ballot, tau, norm) for ballot in ballots])
            moves = np.linalg.norm(scaled[:, None] - scaled, axis=2)
            assert voting.sensitivity(num_labels, Relation.REPLACE_RECORD) == pytest.approx(
                moves.max(), rel=1e-8
            )
            alone = voting.sensitivity(num_labels, Relation.ADD_REMOVE_TEACHER)
            assert alone == pytest.approx(np.linalg.norm(scaled, axis=1).max(), rel=1e-8)


def test_scaled_ballots_are_as_fine_as_their_sums_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """In steps of 2^-30 rounded down, of which 2^23 add up exactly; a sum at the threshold gives no
    label."""
    monkeypatch.setattr(tau_voting, "add_gaussian", lambda sums, **_: sums)
    voting = TauVoting(tau=1.0, sigma_tau=1.0, threshold_tau=2.0)
    weights = voting._weights(np.arange(50))
    exact = [math.isqrt((1 << 60) // max(1, size)) for size in range(50)]
    np.testing.assert_array_equal(weights * 2.0**30, exact)
    ballots = np.zeros((1, 3, 2), dtype=np.uint8)
    ballots[:, :2, 0] = ballots[:, :, 1] = 1
    single = replace(voting, tau=9.0).aggregate(
        Votes.from_ballots(ballots), generator=np.random.default_rng(0)
    )
    assert single.labels.tolist() == [[0, 1]]
