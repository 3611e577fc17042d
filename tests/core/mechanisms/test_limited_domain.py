"""Lists from a limited domain."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from pate import mechanisms as m
from pate._core.testing.mechanisms import Grid
from pate.accounting import NeighboringRelation
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD
GIVEN: dict[str, Any] = {"k": 3, "kbar": 4, "scale": 1.0, "delta": 0.05, "relation": ADD}


class TestLimitedDomain(MechanismContract):
    num_items = 4
    max_count = 3
    k = 2
    kbar = 2
    scale = 0.7
    delta = 0.05
    grid: Grid = ((3, 3, 0, 0), (3, 1, 1, 0), (1, 1, 1, 1), (0, 3, 0, 3))
    loose_because = "the threshold ends most lists early, and the pair that is the worst of a round is not of the next"

    def make(self, relation: NeighboringRelation) -> m.LimitedDomain:
        return m.LimitedDomain(
            k=self.k, kbar=self.kbar, scale=self.scale, delta=self.delta, relation=relation
        )

    def outcomes(self) -> list[tuple[int, ...]]:
        items = range(self.num_items)
        return [
            (*listed, *(-1,) * (self.k - n))
            for n in range(self.k + 1)
            for listed in itertools.permutations(items, n)
        ]

    def law(self, mechanism: m.LimitedDomain, scores: oracles.Array) -> oracles.Array:
        order, scale, kbar = oracles.ranks(scores.tolist()), mechanism.scale, mechanism.kbar
        window = mechanism.sensitivity * mechanism.relation.score_range
        end = scores[order[kbar]] + window + scale * math.log(kbar / mechanism.delta)
        domain = {i: scores[i] / scale for i in order[:kbar]}
        law = []
        for outcome in self.outcomes():
            left, p = dict(domain), 1.0
            for item in outcome:
                mass = {**{i: math.exp(u) for i, u in left.items()}, -1: math.exp(end / scale)}
                p *= mass.get(item, 0.0) / sum(mass.values())
                if item == -1:
                    break
                left.pop(item, None)
            law.append(p)
        return np.array(law)

    def select(
        self, mechanism: m.LimitedDomain, scores: oracles.Array, generator: np.random.Generator
    ) -> Any:
        return mechanism(scores, generator=generator).items


class TestLimitedDomainForTheOther(TestLimitedDomain):
    """A threshold that is set for the other relation."""

    delta = 0.02
    loose_because = TestLimitedDomain.loose_because

    def make(self, relation: NeighboringRelation) -> m.LimitedDomain:
        return super().make(ADD if relation is REPLACE else REPLACE)


class _SameFailures(m.LimitedDomain):
    def failure(self, relation: NeighboringRelation) -> float:
        return self.delta


def test_a_threshold_for_adding_fails_more_often_under_replacing() -> None:
    """The enumeration notices an event that knows nothing of it."""

    class Claimed(TestLimitedDomainForTheOther):
        scale = 0.3
        delta = 1e-3

        def make(self, relation: NeighboringRelation) -> m.LimitedDomain:
            return _SameFailures(
                k=self.k, kbar=self.kbar, scale=self.scale, delta=self.delta, relation=ADD
            )

    class Stated(Claimed):
        def make(self, relation: NeighboringRelation) -> m.LimitedDomain:
            return m.LimitedDomain(
                k=self.k, kbar=self.kbar, scale=self.scale, delta=self.delta, relation=ADD
            )

    Stated().test_divergence_between_all_neighbors_is_within_the_curve(REPLACE)
    with pytest.raises(AssertionError):
        Claimed().test_divergence_between_all_neighbors_is_within_the_curve(REPLACE)


class TestLimitedDomainOne(TestLimitedDomain):
    """So little failure that the mass it may hide does not make the curve look loose."""

    num_items = 3
    max_count = 4
    k = 1
    delta = 0.01
    grid: Grid = ((4, 4, 0), (4, 2, 1), (1, 1, 1), (0, 4, 4))
    loose_because = ""


@pytest.mark.parametrize("giant", [300.0, 2.0**50])
def test_a_giant_score_leaves_the_others_and_the_threshold_where_they_are(giant: float) -> None:
    """One item stands as high as the threshold, and is listed as often as not."""
    draws = 300
    mechanism = m.LimitedDomain(**GIVEN | {"kbar": 3, "scale": 0.5, "delta": 0.5})
    threshold = 7 + 1 + 0.5 * math.log(3 / 0.5)
    items = mechanism(
        np.tile([giant, threshold, 7.0, 7.0], (draws, 1)), generator=m.seeded_generator(3)
    ).items
    assert (items[:, 0] == 0).all()
    assert abs((items == 1).any(axis=1).mean() - 1 / 2) < 4 * math.sqrt(1 / 4 / draws)


@pytest.mark.parametrize(
    ("scale", "expected"), [(2.0, 0.05 * math.exp(0.5)), (0.1, 1.0), (1e-9, 1.0)]
)
def test_the_cost_is_known_under_the_other_relation(scale: float, expected: float) -> None:
    mechanism = m.LimitedDomain(**GIVEN | {"scale": scale})
    assert mechanism.failure(ADD) == 0.05 and mechanism.failure(REPLACE) == pytest.approx(expected)
    # one vote more in the threshold is the same as a smaller delta
    other = m.LimitedDomain(**GIVEN | {"scale": scale, "relation": REPLACE})
    assert other.failure(ADD) == pytest.approx(
        max(0.05 * math.exp(-1 / scale), 5e-324), rel=1e-9, abs=0
    )
    for relation, event in mechanism.events().items():
        assert event.cost().delta0 == pytest.approx(mechanism.failure(relation))
