"""StableTopK and its variants keep the contract."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from pate.accounting.calibration import epsilon_of
from pate.accounting.relation import NeighboringRelation as Relation
from pate.aggregators import Aggregator, FixedStableTopK, GaussianStableTopK, StableTopK
from pate.votes import Votes
from tests.aggregators.oracles import fixed_law, stable_law
from tests.contracts.aggregator_contract import AggregatorContract, Grid, Law
from tests.mechanisms import oracles


class TestStableTopK(AggregatorContract):
    loose_because = "a failed test hides which rank was chosen"
    scale, sigma, delta = 2.0, 1.5, 0.02

    def make(self, relation: Relation) -> Aggregator:
        return StableTopK(
            scale_gap=self.scale, sigma_test=self.sigma, delta_test=self.delta, neighboring_relation=relation
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        return stable_law(
            votes, relation.count_window, self.sigma, self.delta, lambda q: oracles.softmax(q / self.scale)
        )

    def malformed(self) -> list[dict[str, Any]]:
        return [{"delta_test": bad} for bad in (0, 1, -1e-9, float("nan"))]


class TestStableTopKOfThree(TestStableTopK):
    num_labels = 3
    num_teachers = 3
    grid: Grid = (((1, 1, 0), (1, 1, 0), (1, 1, 0)), ((1, 0, 0), (1, 0, 0), (1, 0, 1)))
    scale, sigma = 1.0, 0.8


class TestStableTopKWithoutEmpty(TestStableTopK):
    num_labels = 3
    grid: Grid = (
        ((1, 1, 0), (1, 1, 0), (1, 0, 0), (1, 1, 0)),
        ((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 0)),
    )

    def make(self, relation: Relation) -> Aggregator:
        return StableTopK(
            scale_gap=self.scale,
            sigma_test=self.sigma,
            delta_test=self.delta,
            neighboring_relation=relation,
            allow_empty=False,
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        def choice(gaps: np.ndarray) -> np.ndarray:
            return np.concatenate(([0.0], oracles.softmax(gaps[1:-1] / self.scale), [0.0]))

        return stable_law(votes, relation.count_window, self.sigma, self.delta, choice)


class TestGaussianStableTopK(AggregatorContract):
    loose_because = "what is proven of Gaussian noisy max is far from its law"
    scale, sigma, delta = 2.5, 1.5, 0.02

    def make(self, relation: Relation) -> Aggregator:
        return GaussianStableTopK(
            sigma_gap=self.scale, sigma_gap_test=self.sigma, delta_gap_test=self.delta, neighboring_relation=relation
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        return stable_law(
            votes,
            relation.count_window,
            self.sigma,
            self.delta,
            lambda q: oracles.max_law(q / self.scale, "gaussian"),
        )

    def malformed(self) -> list[dict[str, Any]]:
        return [{"delta_gap_test": bad} for bad in (0, 1, float("nan"))]

    @pytest.mark.parametrize("relation", Relation)
    def test_gumbel_noise_of_the_same_deviation_costs_less(self, relation: Relation) -> None:
        gaussian = self.make(relation).event(num_teachers=800, num_labels=40)
        gumbel = StableTopK(
            scale_gap=self.scale * 6**0.5 / np.pi,
            sigma_test=self.sigma,
            delta_test=self.delta,
            neighboring_relation=relation,
        ).event(num_teachers=800, num_labels=40)
        assert epsilon_of(gumbel, count=5, delta=0.2) < epsilon_of(gaussian, count=5, delta=0.2)


class TestFixedStableTopK(AggregatorContract):
    loose_because = "the worst case of k rounds of peeling is not what most ranks lead to"
    num_labels = 3
    k = 2
    grid: Grid = (
        ((1, 1, 0), (1, 1, 0), (1, 1, 0), (1, 1, 0)),
        ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 1, 1)),
        ((1, 0, 0), (1, 0, 0), (1, 0, 1), (1, 1, 0)),
    )

    def make(self, relation: Relation) -> Aggregator:
        return FixedStableTopK(
            k=self.k,
            pull=0.5,
            scale_gap_fixed=2.0,
            sigma_test_fixed=1.5,
            delta_test_fixed=0.05,
            scale_peel_fixed=1.2,
            neighboring_relation=relation,
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        return fixed_law(
            votes,
            k=self.k,
            pull=0.5,
            scale=2.0,
            sigma=1.5,
            delta=0.05,
            shift=relation.count_window,
            scale_peel=1.2,
        )

    def malformed(self) -> list[dict[str, Any]]:
        return [{"k": 0}, {"k": 1.5}, {"pull": -1.0}, {"pull": float("nan")}, {"delta_test_fixed": 1.0}]

    def test_too_large_a_set_or_too_many_steps_are_refused(self) -> None:
        fixed = replace(self.make(Relation.REPLACE_RECORD), k=2)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="Expected k <= 1 for 1 labels, got k=2"):
            fixed.event(num_teachers=4, num_labels=1)
        with pytest.raises(ValueError, match="Expected 0 <= steps <= 2, got steps=3"):
            fixed.realised_event(3, num_teachers=4, num_labels=3)


class TestFixedStableTopOne(TestFixedStableTopK):
    k = 1
    grid: Grid = (
        ((1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
        ((0, 1, 0), (0, 1, 0), (0, 1, 0), (1, 1, 0)),
    )


def test_a_message_names_what_came() -> None:
    make: Any = partial(StableTopK, sigma_test=1.0, delta_test=1e-6)
    with pytest.raises(ValueError, match=r"^Expected scale_gap > 0, got scale_gap=-5.0$"):
        make(scale_gap=-5.0)
    with pytest.raises(TypeError, match="scale_gap"):
        make()
