"""Gaps between scores of any sensitivity, whole and real: their choice, their tests, and what
follows."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from pate import mechanisms as m
from pate._core.testing.laws import ORDERS, renyi_divergence
from pate._core.testing.mechanisms import Grid
from pate.accounting import (
    NeighboringRelation,
)
from tests.core.mechanisms import oracles, test_gaps, test_stability, test_stable_top_k

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD


class _OfScores:
    """A contract on scores of ``unit`` times the counts, which move by ``max_move`` units between
    neighbors."""

    counts_are_scores = False

    max_move = 2
    unit: float = 1

    @property
    def upper(self) -> float:
        return self.unit * self.max_count  # type: ignore[attr-defined]

    def make(self, relation: NeighboringRelation) -> Any:
        moves = self.unit * self.max_move
        votes = super().make(relation).scaled(moves)  # type: ignore[misc]
        given = {
            "sensitivity": moves,
            "num_teachers": self.upper,
            "integer_scores": isinstance(self.unit, int),
        }
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


class TestChoiceInQuarters(_Charged, test_gaps.TestChooseGapWithoutSentinels):
    unit = 0.25


@pytest.mark.slow
class TestTestOfThree(_Charged, test_stability.TestStabilityTest):
    max_move = 3
    max_count = 24
    sigma = 1.2
    grid: Grid = ((24, 3), (20, 4), (0, 20), (22, 5))


class TestTestInQuarters(_Charged, test_stability.TestStabilityTest):
    unit = 0.25
    sigma = 1.5
    grid: Grid = ((18, 2), (16, 4), (0, 20), (17, 3))


@pytest.mark.slow
class TestLaplaceTestInQuarters(_Charged, test_stability.TestLaplaceStabilityTest):
    unit = 0.25


class TestStableTopKOfThree(_OfScores, test_stable_top_k.TestStableTopK):
    num_items = 2
    max_move = 3
    max_count = 9
    grid: Grid = ((9, 0), (6, 6), (0, 8))


@pytest.mark.slow
class TestFixedTopKByPeelingAloneInHalves(_Charged, test_stable_top_k.TestFixedTopKByPeelingAlone):
    k = 1
    num_items = 2
    unit = 0.5
    max_count = 8
    grid: Grid = ((8, 6), (8, 8), (0, 3))


PANEL: dict[str, Any] = {"num_teachers": 64.0, "num_labels": 5, "integer_scores": False}
STABLE: dict[str, Any] = PANEL | {
    "scale_gap": 4.0,
    "sigma_test": 3.0,
    "delta_test": 1e-3,
    "shift": 2.0,
}
TESTS: list[Any] = [
    m.StabilityTest(num_teachers=64.0, sigma=3.0, delta_test=1e-3, shift=2.0, integer_scores=False),
    m.LaplaceStabilityTest(scale=3.0, delta_test=1e-3, shift=2.0),
]
CHOICES: list[Any] = [
    m.StableTopKMechanism(**STABLE),
    m.StableTopKMechanism(**STABLE | {"test_noise": "laplace", "noise": "gaussian"}),
    m.FixedTopKMechanism(k=2, rank_penalty=1.0, scale_peel=3.0, fallback=True, **STABLE),
]


@pytest.mark.parametrize("scores", [*TESTS, *CHOICES], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("unit", [2.0**24])
def test_a_unit_changes_nothing(scores: Any, unit: float) -> None:
    """In a unit by which floats are multiplied exactly, draws and events are equal."""
    lengths = {"num_teachers", "sensitivity", "shift", "rank_penalty", *scores.noise_parameters}
    own = {each.name for each in fields(scores)} & lengths
    scaled = replace(scores, **{name: getattr(scores, name) * unit for name in own})
    drawn = np.random.default_rng(0).uniform(0, 64, (500, 5))
    if scores in TESTS:
        drawn = drawn.ravel()
    if not isinstance(scores, m.FixedTopKMechanism):
        gaps = [each.gap_to_answer(probability=0.9) for each in (scores, scaled)]
        assert gaps[1] == gaps[0] * unit
    for relation in NeighboringRelation:
        assert scaled.event(relation) == scores.event(relation)
    found = [
        one(x, generator=m.seeded_generator(0))
        for one, x in ((scores, drawn), (scaled, drawn * unit))
    ]
    for part, other in zip(*found, strict=True):
        np.testing.assert_array_equal(part, other)


@pytest.mark.parametrize("sigma", [0.3, 20.0])
def test_real_gaps_are_covered_and_cost_more_than_whole_ones(sigma: float) -> None:
    """A fine grid of gaps and of moves against the curve; that of whole scores falls below, at
    times by 2%."""
    real = m.StabilityTest(
        num_teachers=200.0, sigma=sigma, delta_test=1e-9, shift=1.0, integer_scores=False
    )
    x = ndtri(1e-9) + np.linspace(0, 12 * sigma + 1, 500) / sigma
    laws = [
        np.column_stack((ndtr(x + move), ndtr(-x - move)))
        for move in np.array([0, 0.4, 0.9, 1]) / sigma
    ]
    found = [
        renyi_divergence(*each).max(axis=0)
        for law in laws[1:]
        for each in ((laws[0], law), (law, laws[0]))
    ]
    worst, curve = np.max(found, axis=0), real.event(ADD).cost(ORDERS).rdp
    assert (worst <= curve).all()
    assert (worst > 0.99 * curve)[6 * sigma > ORDERS].all()
    whole = (
        replace(real, num_teachers=1000, shift=1, integer_scores=True).event(ADD).cost(ORDERS).rdp
    )
    assert (worst > (1.02 if sigma < 1 else 1) * whole).any()


def test_a_bound_that_rounds_gaps_is_refused() -> None:
    """At 2^50 a move of one sensitivity may turn a gap by 122 of them, and the choice with it."""
    given: dict[str, Any] = STABLE | {
        "scale_gap": 1e-3,
        "sigma_test": 1e-3,
        "shift": 1e-3,
        "sensitivity": 1e-3,
    }
    gaps = [m.sort_counts([h], upper=2.0**50, integer_scores=False).gaps[0] for h in (0.062, 0.063)]
    assert gaps[0] - gaps[1] > 100 * given["sensitivity"]
    for most in (2.0**22, 2**32 * 1e-3):
        m.StableTopKMechanism(**given | {"num_teachers": most})
    with pytest.raises(
        ValueError, match=r"^Expected num_teachers <= 4294967\.296, got num_teachers=8388608\.0$"
    ):
        m.StableTopKMechanism(**given | {"num_teachers": 2.0**23})
    with pytest.raises(ValueError, match=r"^Expected num_teachers <= 4294967\.296, "):
        m.FixedTopKMechanism(
            k=2, rank_penalty=1.0, scale_peel=1e-3, **STABLE | {"num_teachers": 2.0**23}
        )
    with pytest.raises(ValueError, match=r"^Expected upper > 0, got upper=0\.0$"):
        m.sort_counts([0.0], upper=0.0, integer_scores=False)
