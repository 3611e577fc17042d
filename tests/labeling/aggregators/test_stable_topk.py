"""StableTopK and its variants keep the contract."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from pate import Votes, VoteShape
from pate._core.testing.laws import ORDERS
from pate._labeling.testing.aggregators import Grid, Law
from pate.accounting import BoundedRangeEvent, NeighboringRelation as Relation
from pate.aggregators import Aggregator, FixedStableTopK, StableTopK
from pate.testing import AggregatorContract
from tests.core.mechanisms import oracles
from tests.labeling.aggregators.oracles import fixed_law, stable_law
from tests.labeling.aggregators.test_of_mechanism import Bound, Drawn


class TestStableTopK(Drawn, AggregatorContract):
    loose_because = "a failed test hides which rank was chosen"
    scale, sigma, delta = 1.0, 0.8, 0.02
    settings: ClassVar[dict[str, Any]] = {}
    grid: Grid = (
        *AggregatorContract.grid,
        ((1, 0), (1, 0), (1, 0), (1, 0)),
        ((0, 0), (0, 0), (0, 0), (0, 0)),
    )

    def make(self, relation: Relation) -> Aggregator:
        return StableTopK(
            scale_gap=self.scale,
            sigma_test=self.sigma,
            delta_test=self.delta,
            neighboring_relation=relation,
            **self.settings,
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        return stable_law(votes, relation.score_range, self.sigma, self.delta, self.choice)

    def choice(self, gaps: np.ndarray) -> np.ndarray:
        """Return the law of the rank."""
        return oracles.softmax(gaps / self.scale)

    def malformed(self) -> list[dict[str, Any]]:
        bad = (0, 1, -1e-9, float("nan"), [1e-9])
        return [*({"delta_test": each} for each in bad), {"allow_empty": "no"}]


@pytest.mark.slow
class TestStableTopKWithoutEmpty(TestStableTopK):
    num_labels = 3
    grid: Grid = (
        ((1, 1, 0), (1, 1, 0), (1, 0, 0), (1, 1, 0)),
        ((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 0)),
    )
    settings: ClassVar[dict[str, Any]] = {"allow_empty": False}

    def choice(self, gaps: np.ndarray) -> np.ndarray:
        return np.concatenate(([0.0], oracles.softmax(gaps[1:-1] / self.scale), [0.0]))


def test_a_doubled_majority_is_no_gap_that_moves_by_one() -> None:
    """A release made for REPLACE_RECORD costs more under ADD_REMOVE_TEACHER than its gaps do
    without majorities."""

    made_for, relation = Relation.REPLACE_RECORD, Relation.ADD_REMOVE_TEACHER
    contract = TestStableTopK()
    worst = contract.worst_divergence(made_for, relation)
    stable: Any = contract.make(made_for)
    priced, cheap = (
        each.event(contract.shape, relation).cost(ORDERS)
        for each in (stable, replace(stable, allow_empty=False))
    )
    assert (worst <= priced.rdp).all() and (worst > 1.5 * cheap.rdp).any()


class TestStableTopKPreferring(Bound, TestStableTopK):
    """Two labels at most, of which one is preferred to none and none to two."""

    num_labels = 3
    grid: Grid = TestStableTopKWithoutEmpty.grid
    settings: ClassVar[dict[str, Any]] = {"regularizer": (0.5, 1.0, 0.0, 5.0), "kbar": 2}

    def choice(self, gaps: np.ndarray) -> np.ndarray:
        utilities = (gaps + self.settings["regularizer"])[: self.settings["kbar"] + 1]
        return np.append(oracles.softmax(utilities / self.scale), 0.0)

    def malformed(self) -> list[dict[str, Any]]:
        bad: list[dict[str, Any]] = [
            {"regularizer": (0.0, float("inf"))},
            {"regularizer": 0.5},
            {"regularizer": (0.0, 10**400)},
            {"kbar": 0},
            {"kbar": 1.5},
        ]
        return [*bad, {"noise_law": "cauchy"}]


class TestStableTopKByFlips(Bound, TestStableTopK):
    scale, sigma, delta = 2.0, 1.2, 0.01
    settings: ClassVar[dict[str, Any]] = {"noise_law": "exponential"}

    def choice(self, gaps: np.ndarray) -> np.ndarray:
        return oracles.max_law(gaps / self.scale, "exponential")


class TestStableTopKByGaussian(TestStableTopK):
    loose_because = "what is proven of Gaussian noisy max is far from its law"
    scale, sigma, delta = 2.5, 1.0, 0.1
    settings: ClassVar[dict[str, Any]] = {"noise_law": "gaussian"}

    def choice(self, gaps: np.ndarray) -> np.ndarray:
        return oracles.max_law(gaps / self.scale, "gaussian")

    @pytest.mark.parametrize("allow_empty", [True, False])
    @pytest.mark.parametrize("num_labels", [2, 5])
    def test_every_gap_that_may_be_chosen_is_a_candidate(
        self, num_labels: int, allow_empty: bool
    ) -> None:
        """As many as sets of different sizes come out where the noise is far larger than any
        gap."""
        stable = StableTopK(
            scale_gap=1e6,
            sigma_test=0.01,
            delta_test=1 - 1e-12,
            allow_empty=allow_empty,
            noise_law="gaussian",
        )
        counts = np.tile(10 * np.arange(1, num_labels + 1), (2000, 1))
        votes = Votes.from_counts(counts, 10 * (num_labels + 1))
        release = stable.aggregate(votes, generator=np.random.default_rng(0))
        assert release.mask.all()
        choice, test = stable.event(VoteShape(votes.num_teachers, num_labels)).events  # type: ignore[attr-defined]
        assert choice.num_candidates == len(set(release.labels.sum(axis=1).tolist()))
        assert choice.noise_multiplier == 1e6 / 4
        assert (test.sigma, test.shift, test.num_teachers) == (0.01, 2, votes.num_teachers)


class TestFixedStableTopK(Drawn, AggregatorContract):
    loose_because = "the worst case of k rounds of peeling is not what most ranks lead to"
    num_labels = 3
    k = 2
    rank_penalty, scale, sigma, delta, scale_peel = 0.5, 2.0, 1.5, 0.05, 1.2
    fallback = by_root = False
    grid: Grid = (
        ((1, 1, 0), (1, 1, 0), (1, 1, 0), (1, 1, 0)),
        ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 1, 1)),
        ((1, 0, 0), (1, 0, 0), (1, 0, 1), (1, 1, 0)),
    )

    def make(self, relation: Relation) -> Aggregator:
        return FixedStableTopK(
            k=self.k,
            rank_penalty=self.rank_penalty,
            scale_gap_fixed=self.scale,
            sigma_test_fixed=self.sigma,
            delta_test_fixed=self.delta,
            scale_peel_fixed=self.scale_peel,
            neighboring_relation=relation,
            fallback=self.fallback,
            scale_noise_with_rounds=self.by_root,
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        return fixed_law(
            votes,
            k=self.k,
            rank_penalty=self.rank_penalty,
            scale=self.scale,
            sigma=self.sigma,
            delta=self.delta,
            shift=relation.score_range,
            scale_peel=self.scale_peel,
            fallback=self.fallback,
            by_root=self.by_root,
        )

    def malformed(self) -> list[dict[str, Any]]:
        return [
            {"k": 0},
            {"k": 1.5},
            {"rank_penalty": -1.0},
            *({"rank_penalty": bad} for bad in (float("nan"), "1", [1.0], 10**400)),
            {"fallback": "no"},
            {"delta_test_fixed": 1.0},
        ]

    def test_too_large_a_set_or_too_many_rounds_are_refused(self) -> None:
        fixed = replace(self.make(Relation.REPLACE_RECORD), k=2)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="Expected k <= 1 for 1 labels, got k=2"):
            fixed.event(VoteShape(4, 1))
        for tier in (-1, 3):
            with pytest.raises(ValueError, match=rf"^Expected .*rounds.*, got rounds={tier}$"):
                fixed.event(VoteShape(4, 3), tier=tier)

    @pytest.mark.parametrize("relation", Relation)
    def test_each_round_is_paid(self, relation: Relation) -> None:
        fixed = replace(self.make(relation), scale_noise_with_rounds=False)  # type: ignore[call-arg]
        for asked in Relation:
            none, *more = (
                fixed.event(self.shape, asked, tier).cost() for tier in range(self.k + 1)
            )
            choice = (
                BoundedRangeEvent(
                    eta=asked.score_range / self.scale_peel, neighboring_relation=asked
                )
                .cost()
                .rdp
            )
            for rounds, paid in enumerate(more, start=1):
                np.testing.assert_allclose(paid.rdp, none.rdp + rounds * choice, rtol=1e-12)
                assert paid.delta0 == none.delta0 > 0
            stable = StableTopK(
                scale_gap=self.scale,
                sigma_test=self.sigma,
                delta_test=self.delta,
                neighboring_relation=relation,
                allow_empty=False,
            )
            np.testing.assert_array_equal(none.rdp, stable.event(self.shape, asked).cost().rdp)
            assert fixed.event(self.shape, asked) == fixed.event(self.shape, asked, self.k)


class TestFixedStableTopKByPeeling(TestFixedStableTopK):
    """Most of what is told is told by the peeling."""

    num_teachers = 5
    rank_penalty, scale, sigma, delta, scale_peel = 0.0, 20.0, 0.8, 1e-3, 0.4
    grid: Grid = (((1, 1, 1),) * 5, ((1, 0, 0),) * 5, ((1, 0, 0),) * 4 + ((0, 1, 0),))

    @pytest.mark.parametrize("relation", Relation)
    def test_a_round_that_is_not_paid_is_refuted(self, relation: Relation) -> None:
        assert self.unpaid(relation, relation, lambda tier: tier if tier == self.k else 0) > 0.5
        assert self.unpaid(relation, relation, lambda tier: max(tier - 1, 0)) > 0.5


@pytest.mark.slow
class TestFixedStableTopKWithFallback(TestFixedStableTopK):
    fallback = True

    def test_every_query_is_answered(self) -> None:
        votes = Votes.from_counts(np.tile([[4, 4, 0], [2, 2, 2]], (200, 1)), 4)
        release = self.make(Relation.REPLACE_RECORD).aggregate(
            votes, generator=np.random.default_rng(0)
        )
        assert release.mask.all() and (release.labels.sum(axis=1) == self.k).all()
        assert release.tiers is not None and {0, self.k} <= set(release.tiers.tolist())


def test_teachers_who_agree_are_answered_as_often_as_predicted() -> None:
    answered = 0.7
    stable = StableTopK(scale_gap=60.0, sigma_test=30.0, delta_test=1e-6, allow_empty=False)
    needed = stable.teachers_to_answer(answered, 6)
    assert needed is not None
    for other in ({"noise_law": "gaussian"}, {"regularizer": (0.0,) * 7}):
        assert replace(stable, **other).teachers_to_answer(answered, 6) is None
    top = round(needed)
    # two labels on top, all others without votes; the gaps above the top and between the two are 0
    votes = Votes.from_counts(np.tile([top, top, 0, 0, 0, 0], (8_000, 1)), top)
    released = stable.aggregate(votes, generator=np.random.default_rng(0))
    right = (released.mask.all(axis=1) & (released.labels == [1, 1, 0, 0, 0, 0]).all(axis=1)).mean()
    assert right == pytest.approx(answered, abs=0.02)
