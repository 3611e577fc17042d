"""Laws of releases tell as much as their oracles, between all neighbors of a few teachers."""

from collections import defaultdict

import numpy as np
import pytest

from pate import Votes
from pate._core.mechanisms.base import MOST_FLIPPED
from pate._labeling.testing.aggregators import BallotRows, Law, neighbors
from pate.accounting import NeighboringRelation
from pate.aggregators import (
    Aggregator,
    Ballots,
    Canonical,
    Joint,
    Peeling,
    PermuteAndFlip,
    Powerset,
    Release,
    StableTopK,
)
from pate.mechanisms import NotStatedError
from pate.testing import AggregatorContract, exact_epsilon
from tests.core.mechanisms import oracles
from tests.labeling.aggregators import (
    oracles as law_oracles,
    test_peeled_votes,
    test_powerset,
    test_stable_topk,
    test_top_k,
)

REPLACE = NeighboringRelation.REPLACE_RECORD
DELTAS = (0.0, 1e-3, 0.05)


class FlipContract(test_top_k._TopK):
    """Permute-and-flip, again and again; its curve is that of its mechanism, whose contract is
    elsewhere."""

    def make(self, relation: NeighboringRelation) -> Aggregator:
        return PermuteAndFlip(k=self.k, scale_flip=self.scale, neighboring_relation=relation)

    def law(self, votes: Ballots, relation: NeighboringRelation) -> Law:
        sequences = oracles.sequences(3, self.k)
        scores = tuple(count / self.scale for count in law_oracles.counts(votes))
        return law_oracles.sets_law(
            sequences, oracles.peel_law(scores, sequences, oracles.flip_law), 3
        )


CONTRACTS: tuple[AggregatorContract, ...] = (
    test_top_k.TestCanonical(),
    test_top_k.TestPeelingOne(),
    FlipContract(),
    test_stable_topk.TestStableTopK(),
    test_stable_topk.TestStableTopKOfThree(),
    test_stable_topk.TestStableTopKWithoutEmpty(),
    test_stable_topk.TestStableTopKPreferring(),
    test_stable_topk.TestStableTopKByLaplace(),
    test_stable_topk.TestFixedStableTopK(),
    test_stable_topk.TestFixedStableTopKByPeeling(),
    test_stable_topk.TestFixedStableTopKWithFallback(),
    test_stable_topk.TestFixedStableTopKByRoot(),
    test_stable_topk.TestFixedStableTopKByFallback(),
    test_stable_topk.TestFixedStableTopOne(),
    test_peeled_votes.TestPeeledVotes(),
    test_powerset.TestPowerset(),
    test_powerset.TestPowersetOfThree(),
)


def some_pairs(contract: AggregatorContract, most: int = 60) -> list[tuple[BallotRows, BallotRows]]:
    """Return pairs of neighbors, spread over all of them."""
    pairs = neighbors(contract.shape, REPLACE)
    return pairs[:: -(-len(pairs) // most)]


def sides(
    contract: AggregatorContract, pairs: list[tuple[BallotRows, BallotRows]]
) -> list[Ballots]:
    """Return the votes of the first and of the second members of pairs, a query for each."""
    return [
        Votes.from_ballots(np.array(ballots, dtype=np.uint8))
        for ballots in zip(*pairs, strict=True)
    ]


def of_labels(contract: AggregatorContract, ballots: BallotRows) -> dict[tuple[int, ...], float]:
    """Return the oracle's law without price tiers, which follow the labels and the mask."""
    law: dict[tuple[int, ...], float] = defaultdict(float)
    for outcome, chance in contract.law(contract.votes(ballots), REPLACE).items():
        law[outcome[: 2 * contract.num_labels]] += chance
    return law


@pytest.mark.parametrize(
    "contract", CONTRACTS, ids=lambda contract: type(contract).__name__.removeprefix("Test")
)
def test_laws_tell_neighbors_apart_as_well_as_their_oracles(contract: AggregatorContract) -> None:
    aggregator, pairs = contract.make(REPLACE), some_pairs(contract)
    rows = list(zip(*aggregator.laws(*sides(contract, pairs)), strict=True))
    curves = []
    for ballots, (p, q) in zip(pairs, rows, strict=True):
        assert (
            p.sum() == pytest.approx(1)
            and q.sum() == pytest.approx(1)
            and min(p.min(), q.min()) >= 0
        )
        first, second = (of_labels(contract, side) for side in ballots)
        outcomes = sorted({*first, *second})
        expected = [[law.get(outcome, 0.0) for outcome in outcomes] for law in (first, second)]
        for delta in DELTAS:
            epsilon = exact_epsilon(*expected, delta=delta)
            assert exact_epsilon(p.tolist(), q.tolist(), delta=delta) == pytest.approx(
                epsilon, abs=1e-9
            )
            curves.append(epsilon)
    assert max(epsilon for epsilon in curves if np.isfinite(epsilon)) > 0.4


@pytest.mark.parametrize(
    "contract", CONTRACTS, ids=lambda contract: type(contract).__name__.removeprefix("Test")
)
def test_a_canary_that_no_query_sees_has_laws_of_no_query(contract: AggregatorContract) -> None:
    votes, _ = sides(contract, some_pairs(contract))
    p, q = contract.make(REPLACE).laws(votes[:0], votes[:0])
    assert p.shape == q.shape and len(p) == 0


def test_another_scale_is_another_law() -> None:
    contract = test_top_k.TestCanonical()
    both = sides(contract, some_pairs(contract))
    told = []
    for scale in (1.0, 2.0):
        p, q = Canonical(k=contract.k, scale_canonical=scale).laws(*both)
        told.append(float(np.abs(np.log(p / q)).max()))
        assert told[-1] <= 2 / scale
    assert told[1] < 0.9 * told[0]


def test_sets_that_are_chosen_among_two_thousand() -> None:
    """Far more outcomes than the oracles list, and a canary that turns all labels of one
    teacher."""
    generator = np.random.default_rng(0)
    ballots = (generator.random((3, 30, 14)) < np.linspace(0.1, 0.9, 14)).astype(np.uint8)
    turned = ballots.copy()
    turned[:, 4] ^= 1
    p, q = Canonical(k=5, scale_canonical=3.0).laws(
        Votes.from_ballots(ballots), Votes.from_ballots(turned)
    )
    assert p.shape == (3, 2002)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert 0.1 < np.abs(np.log(p / q)).max() <= 2 / 3


@pytest.mark.parametrize(
    ("aggregator", "message"),
    [
        (
            test_peeled_votes.TestSoftPeeledVotes().make(REPLACE),
            "the law of PeeledVotes with noisy counts is not known",
        ),
        (
            Peeling(k=2, scale_peel=1.0, noise_law="laplace"),
            "the law of NoisyTopK with laplace noise is not",
        ),
        (
            StableTopK(scale_gap=1.0, sigma_test=1.0, delta_test=0.1, noise_law="logistic"),
            "StableTopKMechanism with logistic",
        ),
        (
            Canonical(k=10, scale_canonical=1.0),
            "a query has 184,756 outcomes, and 4,096 are listed at most",
        ),
        (
            Canonical(k=3, scale_canonical=1.0, noise_law="exponential"),
            "a query has 1,140 outcomes, and 128 are",
        ),
        (Joint(k=4, scale_joint=1.0), "a query has 116,280 outcomes"),
        (Peeling(k=4, scale_peel=1.0), "a query has 6,195 outcomes"),
    ],
    ids=str,
)
def test_what_is_not_known_or_too_large_is_named(aggregator: Aggregator, message: str) -> None:
    votes = Votes.from_ballots(np.zeros((1, 3, 20), dtype=np.uint8))
    with pytest.raises(NotStatedError, match=message):
        aggregator.laws(votes, votes)


def test_a_subclass_may_have_another_law() -> None:
    class Twice(Powerset):
        """Another aggregator, whose law nobody knows."""

        def aggregate(self, votes: Ballots, *, generator: np.random.Generator) -> Release:
            return super().aggregate(votes, generator=generator)

    votes = Votes.from_ballots(np.zeros((1, 3, 2), dtype=np.uint8))
    with pytest.raises(NotStatedError, match="the law of Twice is not known"):
        Twice(scale_powerset=1.0).laws(votes, votes)


def test_as_many_flips_as_are_listed_add_up() -> None:
    votes = Votes.from_ballots(np.eye(MOST_FLIPPED, dtype=np.uint8)[None])
    (p,), _ = PermuteAndFlip(k=1, scale_flip=0.1).laws(votes, votes)
    np.testing.assert_allclose(p, 1 / MOST_FLIPPED, rtol=1e-9)


def test_powerset_laws_have_few_outcomes_whatever_the_number_of_labels() -> None:
    ballots = np.zeros((1, 5, 64), dtype=np.uint8)
    turned = ballots.copy()
    turned[0, 0, :2] = 1
    p, q = Powerset(scale_powerset=0.2).laws(
        Votes.from_ballots(ballots), Votes.from_ballots(turned)
    )
    weights = [np.exp([5 / 0.2, 0.0]), np.exp([4 / 0.2, 1 / 0.2])]
    for law, (most, moved) in zip((p, q), weights, strict=True):
        total = most + moved + 2.0**64 - 2
        np.testing.assert_allclose(
            np.sort(law[0])[::-1], np.sort([most, moved, 2.0**64 - 2])[::-1] / total, rtol=1e-6
        )
