"""Majorities that are released together, if the least certain is stable."""

import numpy as np
import pytest
from scipy.special import ndtri

from pate import mechanisms as m
from pate._core.testing.mechanisms import Grid
from pate._core.validation import FloatArray, IntArray
from pate.accounting import NeighboringRelation
from pate.testing import MechanismContract
from tests.core.mechanisms.oracles import passing


class TestMajority(MechanismContract):
    """No count has a majority at T / 2, and one that exceeds it by half a vote does."""

    num_items, max_count = 2, 4
    # so improbable a failure that the mass it may hide does not make the curve look loose
    sigma, delta = 0.6, 1e-4
    grid: Grid = ((4, 4), (4, 0), (0, 0), (4, 2), (3, 1))
    outlier = shift = 0

    def make(self, relation: NeighboringRelation) -> m.MajorityMechanism:
        return m.MajorityMechanism(num_teachers=self.max_count, sigma=self.sigma, delta=self.delta)

    def outcomes(self) -> list[tuple[int, ...]]:
        sets = [(*map(int, index), 1) for index in np.ndindex((2,) * self.num_items)]
        return [*sets, (0,) * (self.num_items + 1)]

    def released_set(self, outcome: tuple[int, ...]) -> frozenset[int] | None:
        *members, released = outcome
        return frozenset(np.flatnonzero(members).tolist()) if released else None

    def law(self, mechanism: m.MajorityMechanism, scores: IntArray) -> FloatArray:
        margins = np.asarray(scores) - mechanism.num_teachers / 2
        p = passing(float(np.abs(margins).min()), 1, mechanism.sigma, mechanism.delta)
        chances = {(*(margins > 0).astype(int).tolist(), 1): p, (0,) * (self.num_items + 1): 1 - p}
        return np.array([chances.get(outcome, 0.0) for outcome in self.outcomes()])

    def select(
        self, mechanism: m.MajorityMechanism, scores: IntArray, generator: np.random.Generator
    ) -> IntArray:
        members, passed = mechanism(scores, generator=generator)
        return np.concatenate((members, passed[..., None]), axis=-1).astype(np.int64)


class TestMajorityLeaky(TestMajority):
    """A probability of failure that is often met."""

    num_items, max_count = 3, 3
    sigma, delta = 1.0, 0.1
    grid: Grid = ((3, 3, 0), (0, 0, 3), (1, 2, 3))
    loose_because = "the mass that the probability of failure may hide is not in the curve"


class TestMajorityOfMore(TestMajority):
    """Leads of up to three votes, and none at all."""

    max_count = 6
    sigma, delta = 1.0, 1e-3
    grid: Grid = ((6, 6), (5, 0), (3, 6))


class TestMajorityOfOne(TestMajority):
    num_items, max_count = 1, 7
    sigma, delta = 0.8, 1e-3
    grid: Grid = ((7,), (1,), (3,))


def test_it_passes_as_often_as_a_test_of_its_least_lead() -> None:
    mechanism = m.MajorityMechanism(num_teachers=40, sigma=5.0, delta=1e-4)
    most = mechanism.max_answer_probability(40)
    assert most == pytest.approx(
        float(
            m.StabilityTest(
                num_teachers=20, sigma=5.0, delta_test=1e-4, shift=1, window=1
            ).probability(20)
        )
    )
    assert mechanism.test.failure(20) == pytest.approx(1 - most) and float(ndtri(most)) > 0
