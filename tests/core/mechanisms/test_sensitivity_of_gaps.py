"""Gaps between scores of any whole sensitivity: their choice, their tests, and what
follows."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from pate import mechanisms as m
from pate._core.testing.laws import ORDERS
from pate._core.testing.mechanisms import Grid
from pate.accounting import NeighboringRelation
from tests.core.mechanisms import oracles, test_stability, test_stable_top_k

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD


class _OfScores:
    """A contract on scores of ``unit`` times the counts, which move by ``max_move`` units between
    neighbors."""

    counts_are_scores = False

    max_move = 2
    unit = 1

    @property
    def upper(self) -> int:
        return self.unit * self.max_count  # type: ignore[attr-defined]

    def make(self, relation: NeighboringRelation) -> Any:
        moves = self.unit * self.max_move
        votes = super().make(relation).scaled(moves)  # type: ignore[misc]
        given = {"sensitivity": moves, "num_teachers": self.upper}
        given["shift"] = relation.score_range * moves
        return replace(
            votes, **{each.name: given[each.name] for each in fields(votes) if each.name in given}
        )

    def law(self, mechanism: Any, scores: oracles.Array) -> oracles.Array:
        found: oracles.Array = super().law(mechanism, self.unit * np.asarray(scores))  # type: ignore[misc]
        return found

    def select(self, mechanism: Any, scores: Any, generator: np.random.Generator) -> Any:
        return super().select(mechanism, self.unit * np.asarray(scores), generator)  # type: ignore[misc]


class _Charged(_OfScores):
    @pytest.mark.parametrize("relation", NeighboringRelation)
    def test_an_undeclared_sensitivity_is_not_paid_for(self, relation: NeighboringRelation) -> None:
        """Scores that move by ``max_move`` units cost more than an event says that knows of one."""
        one = replace(self.make(relation), sensitivity=self.unit)
        assert (self.worst_divergence(relation) > one.event(relation).cost(ORDERS).rdp).any()  # type: ignore[attr-defined]


@pytest.mark.slow
class TestTestOfThree(_Charged, test_stability.TestStabilityTest):
    max_move = 3
    max_count = 24
    sigma = 1.2
    grid: Grid = ((24, 3), (20, 4), (0, 20), (22, 5))


class TestStableTopKOfThree(_OfScores, test_stable_top_k.TestStableTopK):
    num_items = 2
    max_move = 3
    max_count = 9
    grid: Grid = ((9, 0), (6, 6), (0, 8))


PANEL: dict[str, Any] = {"num_teachers": 64, "num_labels": 5}
STABLE: dict[str, Any] = PANEL | {
    "scale_gap": 4.0,
    "sigma_test": 3.0,
    "delta_test": 1e-3,
    "shift": 2,
}
TESTS: list[Any] = [m.StabilityTest(num_teachers=64, sigma=3.0, delta_test=1e-3, shift=2)]
CHOICES: list[Any] = [
    m.StableTopKMechanism(**STABLE),
    m.StableTopKMechanism(**STABLE | {"noise": "gaussian"}),
    m.FixedTopKMechanism(k=2, rank_penalty=1.0, scale_peel=3.0, fallback=True, **STABLE),
]


@pytest.mark.parametrize("scores", [*TESTS, *CHOICES], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("unit", [2**24])
def test_a_unit_changes_nothing(scores: Any, unit: float) -> None:
    """In a unit by which floats are multiplied exactly, draws are equal."""
    lengths = {"num_teachers", "sensitivity", "shift", "rank_penalty", *scores.noise_parameters}
    own = {each.name for each in fields(scores)} & lengths
    scaled = replace(scores, **{name: getattr(scores, name) * unit for name in own})
    drawn = np.random.default_rng(0).integers(0, 65, (500, 5))
    if scores in TESTS:
        drawn = drawn.ravel()
    # a finer grid of gaps may hold a worse one, which a Gaussian test pays for
    if not isinstance(getattr(scores, "test", scores), m.StabilityTest):
        for relation in NeighboringRelation:
            assert scaled.event(relation) == scores.event(relation)
    found = [
        one(x, generator=m.seeded_generator(0))
        for one, x in ((scores, drawn), (scaled, drawn * unit))
    ]
    for part, other in zip(*found, strict=True):
        np.testing.assert_array_equal(part, other)
