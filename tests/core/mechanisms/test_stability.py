"""Tests whether a gap is stable."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from pate import mechanisms as m
from pate._core.testing.mechanisms import Grid
from pate._core.validation import BoolArray
from pate.accounting import Event, NeighboringRelation, StabilityTestEvent
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD


class TestStabilityTest(MechanismContract):
    """The test with the set that it releases, for a fixed rank."""

    num_items = 2
    k = 1
    max_count = 20
    outlier = shift = 0
    sigma = 2.0
    delta = 1e-4  # so small that the mass it may hide does not make the curve look loose
    grid: Grid = ((18, 9), (14, 5), (0, 8), (17, 7))

    @property
    def upper(self) -> float:
        """The largest possible score."""
        return self.max_count

    def make(self, relation: NeighboringRelation) -> m.Mechanism[BoolArray]:
        return m.StabilityTest(
            num_teachers=self.max_count,
            sigma=self.sigma,
            delta_test=self.delta,
            shift=relation.score_range,
        )

    def outcomes(self) -> list[tuple[int, ...]]:
        return [*oracles.sets(self.num_items, self.k), (-1,) * self.k]

    def passing(self, q: float, mechanism: Any) -> float:
        margin = (max(q, mechanism.shift) - mechanism.shift) / mechanism.sigma
        return float(ndtr(margin + ndtri(mechanism.delta_test)))

    def law(self, mechanism: Any, scores: oracles.Array) -> oracles.Array:
        order = oracles.ranks(scores.tolist())
        p = self.passing(oracles.gaps(scores.tolist(), self.upper)[self.k], mechanism)
        best = tuple(sorted(order[: self.k]))
        return np.array([p if o == best else (1 - p if o[0] < 0 else 0.0) for o in self.outcomes()])

    def select(self, mechanism: Any, scores: oracles.Array, generator: np.random.Generator) -> Any:
        rows = np.atleast_2d(scores)
        order, q = m.sort_counts(rows, upper=self.upper)
        passed = mechanism(q[:, self.k], generator=generator)
        return np.where(passed[:, None], np.sort(order[:, : self.k], axis=1), -1)


class TestStabilityTestOfTwo(TestStabilityTest):
    num_items = 3
    max_count = 8
    k = 2
    sigma = 1.5
    delta = 1e-3
    grid: Grid = ((8, 8, 0), (8, 2, 2), (7, 1, 7), (5, 0, 1))


class _HalfTheFailures(m.StabilityTest):
    def event(self, relation: NeighboringRelation) -> Event:
        event = super().event(relation)
        assert isinstance(event, StabilityTestEvent)
        return replace(event, delta_test=self.delta_test / 2)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_half_the_probability_of_failure_is_refuted(relation: NeighboringRelation) -> None:
    """The enumeration notices a set that passes more often than the event admits."""

    class Halved(TestStabilityTest):
        def make(self, relation: NeighboringRelation) -> m.Mechanism[BoolArray]:
            return _HalfTheFailures(
                num_teachers=self.max_count,
                sigma=self.sigma,
                delta_test=self.delta,
                shift=relation.score_range,
            )

    with pytest.raises(AssertionError):
        Halved().test_divergence_between_all_neighbors_is_within_the_curve(relation)


@pytest.mark.parametrize("gap", [4.25, 4.6, 11.0])
def test_a_gap_that_the_event_does_not_pay_for_is_refused(gap: float) -> None:
    """The maximum in its curve runs over half votes up to the number of teachers."""
    test = m.StabilityTest(num_teachers=10, sigma=0.3, delta_test=1e-9, shift=2)
    with pytest.raises(ValueError, match=r"^Expected gaps (in whole or half|of at most 10) votes$"):
        test([3.0, gap], generator=m.seeded_generator(0))
    distances = m.StabilityTest(num_teachers=1, sigma=0.3, delta_test=1e-9, shift=1, window=1)
    assert distances([0.5, 1.5], generator=m.seeded_generator(0)).shape == (2,)
