"""Labels that are chosen by peeling and then counted keep the contract."""

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import kstest

from pate import Votes, VoteShape
from pate._core.mechanisms import peeling as _peeling
from pate._labeling.testing.aggregators import Grid, Law, Outcome
from pate.accounting import NeighboringRelation as Relation
from pate.aggregators import Aggregator, NoisyVotes, PeeledVotes
from pate.testing import AggregatorContract
from tests.core.mechanisms import oracles
from tests.labeling.aggregators.oracles import counts
from tests.labeling.aggregators.test_top_k import GRID


class TestPeeledVotes(AggregatorContract):
    num_labels = 3
    grid: Grid = GRID
    k = 2
    soft = False
    loose_because = (
        "labels tell the sign of a noisy count alone, and of the choice which"
        " labels it was, not their order"
    )

    def make(self, relation: Relation) -> Aggregator:
        return PeeledVotes(
            k=self.k,
            scale_chosen=1.0,
            sigma_chosen=1.5,
            soft=self.soft,
            neighboring_relation=relation,
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        h = counts(votes)
        law: dict[Outcome, float] = defaultdict(float)
        orders = oracles.sequences(3, self.k)
        for order, chance in zip(
            orders, oracles.peel_law(tuple(map(float, h)), orders, oracles.softmax), strict=True
        ):
            yes = [float(ndtr((h[i] - votes.num_teachers / 2) / 1.5)) for i in order]
            for given in itertools.product((True, False), repeat=self.k):
                named = {i for i, each in zip(order, given, strict=True) if each}
                mask = [int(not self.soft or i in order) for i in range(3)]
                part = np.prod([p if each else 1 - p for p, each in zip(yes, given, strict=True)])
                law[(*(int(i in named) for i in range(3)), *mask, 0)] += float(chance * part)
        return law

    def malformed(self) -> list[dict[str, Any]]:
        return [{"k": 0}, {"k": 1.5}, {"scale_chosen": 0.0}, {"sigma_chosen": -1.0}]

    def test_too_large_a_set_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"^Expected k <= 1 for 1 items, got k=2$"):
            PeeledVotes(k=2, scale_chosen=1.0, sigma_chosen=1.0).event(VoteShape(4, 1))
        PeeledVotes(k=2, scale_chosen=1.0, sigma_chosen=1.0).event(VoteShape(4, 2))


class TestSoftPeeledVotes(TestPeeledVotes):
    soft = True


@pytest.mark.parametrize(("stated", "least"), [(3.0, 1e-3), (2.4, 0.0)])
def test_the_counts_of_the_chosen_are_not_biased_by_their_choice(
    stated: float, least: float
) -> None:
    """Their noise is fresh; a fifth less than it is told from it."""
    votes = Votes.from_counts(np.tile([40, 38, 37, 10, 0], (4000, 1)), 50)
    release = PeeledVotes(k=2, scale_chosen=2.0, sigma_chosen=3.0, soft=True).aggregate(
        votes, generator=np.random.default_rng(0)
    )
    assert release.noisy_counts is not None and release.noise_std == 3.0
    assert (release.mask.sum(axis=1) == 2).all() and not release.noisy_counts[~release.mask].any()
    residuals = (release.noisy_counts - votes.counts)[release.mask] / stated
    found = kstest(residuals, "norm").pvalue
    assert found > least if least else found < 1e-6


def test_the_price_follows_k_and_not_the_number_of_labels() -> None:
    relation, few, many = Relation.REPLACE_RECORD, VoteShape(100, 10), VoteShape(100, 1000)
    chosen = PeeledVotes(k=3, scale_chosen=20.0, sigma_chosen=20.0)
    assert chosen.event(few, relation) == chosen.event(many, relation)
    votes = NoisyVotes(sigma_votes=20.0)
    assert votes.event(few, relation) != votes.event(many, relation)


def test_a_tie_gives_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_peeling, "add_gaussian", lambda counts, **_: counts.astype(float))
    votes = Votes.from_counts([[2, 3, 1]], 4)
    chosen = PeeledVotes(k=3, scale_chosen=1.0, sigma_chosen=1.0)
    assert chosen.aggregate(votes, generator=np.random.default_rng(0)).labels.tolist() == [
        [0, 1, 0]
    ]
