"""Gaps between sorted counts, and the choice of one."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from pate import mechanisms as m
from pate._core.mechanisms import peeling as _gaps
from pate._core.testing.laws import chi_square_p_value
from pate._core.testing.mechanisms import Grid
from pate.accounting import GaussianNoisyMaxEvent, NeighboringRelation
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles

ADD = NeighboringRelation.ADD_REMOVE_TEACHER


class TestChooseGap(MechanismContract):
    """Enough room for two gaps to move by their whole window and to hold almost all of the mass."""

    max_count = 6
    outlier = shift = 0
    scale = 1.0
    grid: Grid = ((4, 2, 0), (2, 2, 2), (0, 4, 6))
    settings: Mapping[str, Any] = MappingProxyType({})

    @property
    def upper(self) -> float:
        """The largest possible score."""
        return self.max_count

    def make(self, relation: NeighboringRelation) -> m.GapChoice:
        return m.GapChoice(num_labels=self.num_items, scale=self.scale, **self.settings)

    def candidates(self) -> list[int]:
        empty, kbar = (
            self.settings.get("allow_empty", True),
            int(self.settings.get("kbar", self.num_items)),
        )
        return [
            j for j in range(self.num_items + 1) if j <= kbar and (empty or 0 < j < self.num_items)
        ]

    def outcomes(self) -> list[tuple[int, ...]]:
        return [(j,) for j in self.candidates()]

    def law(self, mechanism: m.GapChoice, scores: oracles.Array) -> oracles.Array:
        q = np.array(oracles.gaps(scores.tolist(), self.upper), dtype=float)
        if mechanism.regularizer is not None:
            q += mechanism.regularizer
        utilities = q[self.candidates()] / mechanism.scale
        return (
            oracles.softmax(utilities)
            if mechanism.noise == "gumbel"
            else oracles.max_law(utilities, mechanism.noise)
        )

    def select(
        self, mechanism: m.GapChoice, scores: oracles.Array, generator: np.random.Generator
    ) -> Any:
        rows = np.atleast_2d(scores)
        gaps = m.sort_counts(rows, upper=self.upper).gaps
        return mechanism(gaps, generator=generator)


@pytest.mark.slow
class TestChooseGapWithoutSentinels(TestChooseGap):
    settings = MappingProxyType({"allow_empty": False})


class TestChooseGapExponential(TestChooseGap):
    settings = MappingProxyType({"noise": "exponential", "allow_empty": False})
    scale = 0.3
    grid: Grid = ((3, 2, 2), (2, 2, 2), (4, 2, 1))


class TestChooseGapLaplace(TestChooseGapExponential):
    settings = MappingProxyType({"noise": "laplace", "allow_empty": False})
    scale = 0.2


class TestChooseGapGaussian(TestChooseGap):
    settings = MappingProxyType({"noise": "gaussian"})
    max_count = 3
    scale = 3.0
    grid: Grid = ((3, 2, 0), (1, 1, 1), (0, 3, 3), (2, 0, 1))
    loose_because = (
        "what is proven adds up over the gaps, or releases all of them; no tighter theorem is known"
    )


@pytest.mark.slow
class TestChooseGapRegularized(TestChooseGap):
    settings = MappingProxyType({"regularizer": (-6.0, 0.0, 0.0, -math.inf)})


class TestChooseGapUnknownDomain(TestChooseGap):
    settings = MappingProxyType({"kbar": 2})


@pytest.mark.parametrize(("upper", "num_labels"), [(2**33, 3), (2**53 - 1, 3), (2**53 - 1, 3000)])
def test_counts_above_two_to_the_31(upper: int, num_labels: int) -> None:
    """The last is too wide for one key per entry."""
    counts = upper - np.arange(num_labels)[::-1]
    order, gaps = m.sort_counts(counts, upper=upper)
    assert order.tolist() == list(range(num_labels))[::-1]
    assert gaps.tolist() == [0, *[1] * (num_labels - 1), upper - num_labels + 1]


@pytest.mark.parametrize(
    ("scale", "sensitivity", "window"),
    [
        (2.0**20, 1.0, 2.0),
        (2.0**20 + 1, 1.0, 3.0),  # a grid of 2 votes
        (5.0 * 2**20, 1.0, 9.0),  # of 8
        (5.0 * 2**20, 16.0, 32.0),
        (16.0, 0.3, 0.3 + 19661 / 2**16),
    ],
)
def test_a_choice_by_rounded_sums_pays_for_the_grid(
    scale: float, sensitivity: float, window: float
) -> None:
    """The noise may have to move by a window whose half is rounded up to the grid; of votes that is
    none, mostly."""
    event = m.GapChoice(num_labels=3, scale=scale, sensitivity=sensitivity, noise="gaussian").event(
        ADD
    )
    assert isinstance(event, GaussianNoisyMaxEvent)
    assert scale / event.noise_multiplier == pytest.approx(window, rel=1e-12)


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize("grid", [4.0, 0.75])
def test_rounded_sums_of_neighbors_choose_alike_within_the_window(
    relation: NeighboringRelation, grid: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step of the proof: a gap that is chosen stays so if its noise alone grows by the window
    that is paid for."""
    noise = np.zeros(0)

    def rounded_sums(
        below: oracles.Array, *, sigma: float, generator: np.random.Generator
    ) -> oracles.Array:
        return np.asarray(grid * np.rint((below + noise) / grid))

    monkeypatch.setattr(_gaps, "add_gaussian", rounded_sums)
    monkeypatch.setattr(_gaps, "grid_of", lambda scale: grid)
    draws = np.random.default_rng(0)
    choice = m.GapChoice(num_labels=3, scale=4.0, sensitivity=0.7, noise="gaussian")
    event = choice.event(relation)
    assert isinstance(event, GaussianNoisyMaxEvent)
    window, most = 4.0 / event.noise_multiplier, 0.7 * relation.score_range
    for _ in range(2_000):
        gaps, moved = draws.uniform(0, 6, 4), draws.choice([-most, most, 0.0, most / 3], 4)
        noise = draws.normal(0, 4, 4)
        chosen = int(choice(gaps, generator=draws))
        noise[chosen] -= window * (1 + 1e-9)  # of distances, of which the least is chosen
        assert choice(gaps + moved, generator=draws) == chosen


@pytest.mark.parametrize("scale", [1, 4])
@pytest.mark.parametrize("attracted", [False, True])
def test_wide_gaps_are_chosen_by_the_law_of_their_differences(attracted: bool, scale: int) -> None:
    """Of gaps as large as counts may be, a vote or a unit of the regularizer counts as among small
    ones."""
    regularizer, draws = (0.0, -(2.0**31) * scale, 1.0 * scale, 0.0) if attracted else None, 2_000
    choose = m.GapChoice(num_labels=3, scale=scale, regularizer=regularizer)
    gaps = 2**50 + scale * np.array([-1, 2**31 if attracted else 0, -2, -(2**40)])
    drawn = choose(np.tile(gaps, (draws, 1)), generator=m.seeded_generator(3))
    leads = [-1, 0, -1] if attracted else [-1, 0, -2]
    expected = draws * oracles.softmax(np.array(leads, dtype=float))
    observed = np.bincount(drawn, minlength=4)
    assert observed[3] == 0 and chi_square_p_value(observed[:3], expected) > 1e-4
