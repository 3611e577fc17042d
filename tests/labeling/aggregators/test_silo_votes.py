"""Noise in shares keeps the contract, and is that of one hand."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from pate import Votes, VoteShape
from pate._core.accounting.base import leaves
from pate._core.accounting.charges import account, to_world
from pate._core.mechanisms.noise import UInt64Array, share_grid, summand
from pate._labeling.release.label_settings import scale_to_target
from pate._labeling.testing.aggregators import Law
from pate.accounting import GaussianEvent, NeighboringRelation as Relation, Target
from pate.aggregators import Aggregator, Counts, NoisyVotes, SiloVotes
from pate.testing import AggregatorContract, SoftReleaseContract
from tests.labeling.aggregators.oracles import counts, gaussian_labels_law


class TestSiloVotes(AggregatorContract):
    loose_because = (
        "labels tell the sign of a noisy count alone: 2 / pi of what the count itself would"
    )

    def make(self, relation: Relation) -> Aggregator:
        return SiloVotes(sigma_silos=1.5, silos=3, neighboring_relation=relation)

    def law(self, votes: Counts, relation: Relation) -> Law:
        # to the world, which knows none of three shares, where two of them have a deviation of 1.5
        return gaussian_labels_law(
            [h - votes.num_teachers / 2 for h in counts(votes)], 1.5 * np.sqrt(3 / 2)
        )

    def malformed(self) -> list[dict[str, Any]]:
        return [
            *(
                {"silos": 1},
                {"colluding": 3},
                {"colluding": 0},
                {"colluding": 1, "dropouts": 2},
                {"dropouts": -1},
                {"single_sums": float("nan")},
            ),
            {"silos": 5, "colluding": 1, "dropouts": 2},
            {"silos": 5, "colluding": 1, "dropouts": 2, "single_sums": True},
            {"silos": 3, "colluding": 1, "dropouts": 1},
        ]


class TestSoftSiloVotes(SoftReleaseContract):
    def make(self, relation: Relation) -> Aggregator:
        return SiloVotes(sigma_silos=2.0, silos=3, neighboring_relation=relation)

    def mean(self, votes: Counts) -> np.ndarray:
        return np.asarray(votes.counts[0])


class Opened:
    """A sum that silos made of their counts, without masks."""

    def __init__(self, silos: list[UInt64Array]) -> None:
        self.silos = silos

    identity = "a sum"

    def open(self) -> tuple[UInt64Array, int]:
        return np.asarray(sum(self.silos[1:], start=self.silos[0])), len(self.silos)


def test_the_sum_of_silos_is_what_one_hand_releases_with_the_same_noise() -> None:
    aggregator = SiloVotes(sigma_silos=3.0, silos=3, colluding=1)
    parts = np.random.default_rng(0).integers(0, 30, (3, 50, 4))
    together = aggregator.aggregate(
        Votes.from_counts(parts.sum(axis=0), 90), generator=np.random.default_rng(1)
    )
    generator = np.random.default_rng(1)
    total = Opened([summand(part, aggregator.share_sigma, generator) for part in parts])
    votes = Votes.from_total(total, 50, VoteShape(90, 4))
    summed = aggregator.aggregate(votes, generator=np.random.default_rng(9))
    assert together.noisy_counts is not None and summed.noisy_counts is not None
    np.testing.assert_array_equal(summed.noisy_counts, together.noisy_counts)
    np.testing.assert_array_equal(summed.labels, together.labels)
    assert summed.noise_std == together.noise_std == pytest.approx(3.0 * np.sqrt(3 / 2))
    with pytest.raises(ValueError, match=r"^Expected all queries of a noisy sum, got some$"):
        votes[:10]
    dropped = Votes.from_total(Opened(total.silos[:2]), 50, VoteShape(90, 4))
    assert aggregator.aggregate(dropped, generator=generator).noise_std == pytest.approx(3.0)


def test_it_costs_what_noise_in_one_hand_costs_and_the_distance_to_it() -> None:
    shape = VoteShape(90, 4)
    for relation in Relation:
        accounts = []
        for aggregator in (
            SiloVotes(sigma_silos=50.0, silos=40, dropouts=2),
            NoisyVotes(sigma_votes=50.0),
        ):
            accounts.append(
                account([(aggregator.events(shape), 5000)], relation).guarantee(delta=1e-6)
            )
        shares, whole = accounts
        assert shares.delta0 == pytest.approx(5000 * 4 * 40 * 2.0**-64) and whole.delta0 == 0
        assert whole.epsilon <= shares.epsilon <= whole.epsilon * (1 + 1e-6)
        wide = SiloVotes(sigma_silos=50.0, silos=40).event(shape, relation).for_group_size(3).cost()
        assert wide.mu_squared == pytest.approx(9 * 4 / 2500) and 0 < wide.delta0 < 1e-16


@pytest.mark.parametrize(("silos", "colluding", "dropouts"), [(2, 1, 0), (5, 3, 1), (5, 1, 1)])
def test_two_figures_are_those_of_the_noise_that_is_not_known(
    silos: int, colluding: int, dropouts: int
) -> None:
    """Drawn as silos draw: in the sum of those that stay, less the shares of those that collude,
    and in all of it."""
    alone = silos - colluding - dropouts == 1
    aggregator = SiloVotes(
        sigma_silos=3.0, silos=silos, colluding=colluding, dropouts=dropouts, single_sums=alone
    )
    generator, zeros = np.random.default_rng(silos), np.zeros((20_000, 2), dtype=np.int64)
    shares = [summand(zeros, aggregator.share_sigma, generator) for _ in range(silos - dropouts)]
    in_votes = [share.view(np.int64) * share_grid(aggregator.share_sigma) for share in shares]
    event = aggregator.event(VoteShape(90, 2))
    for seen, known in ((event, colluding), (event.to_world(), 0)):
        (gaussian,) = (leaf for leaf, _ in leaves(seen) if isinstance(leaf, GaussianEvent))
        measured = np.std(np.sum(in_votes[known:], axis=0))
        assert gaussian.noise_multiplier == pytest.approx(measured / np.sqrt(2), rel=0.02)


def test_a_silo_knows_its_own_share_unless_somebody_says_otherwise() -> None:
    """By default one silo is taken to know what it drew; nobody may say that none does."""
    assert SiloVotes(sigma_silos=3.0, silos=2).share_sigma == 3.0
    with pytest.raises(ValueError, match=r"^Expected an integer colluding >= 1, got colluding=0$"):
        SiloVotes(sigma_silos=3.0, silos=2, colluding=0)


@pytest.mark.parametrize(("silos", "before"), [(2, 2.93), (5, 2.26)])
def test_a_target_is_met_against_the_silos(silos: int, before: float) -> None:
    """The delta of a Gaussian's whole curve, by scipy, for what a silo sees; with all noise unknown
    it would not be."""
    shape, count = VoteShape(60, 2), 500
    target = Target(epsilon=2.0, delta=1e-6, num_queries=count)
    found = scale_to_target(SiloVotes(sigma_silos=1.0, silos=silos), target, shape)
    assert isinstance(found, SiloVotes)

    def epsilon(sigma: float) -> float:
        mu = math.sqrt(count * 2) / sigma

        def excess(epsilon: float) -> float:
            first, second = norm.logcdf(mu / 2 - epsilon / mu), norm.logcdf(-mu / 2 - epsilon / mu)
            return float(np.exp(first) - np.exp(epsilon + second) - 1e-6)

        return float(brentq(excess, 1e-6, 50))

    own = found.share_sigma
    assert epsilon(own * math.sqrt(silos - 1)) == pytest.approx(2.0, abs=0.001)
    stated = account([(found.events(shape), count)], Relation.REPLACE_RECORD)
    assert stated.get_epsilon(delta=1e-6) == pytest.approx(2.0, abs=0.001)
    outside = account(
        to_world([(found.events(shape), count)]), Relation.REPLACE_RECORD
    ).get_epsilon(delta=1e-6)
    assert outside == pytest.approx(epsilon(own * math.sqrt(silos)), abs=0.001) and outside < 1.8
    # noise that is enough for the world is not enough for a silo
    assert epsilon(own * math.sqrt(silos - 1) * math.sqrt((silos - 1) / silos)) == pytest.approx(
        before, abs=0.005
    )
