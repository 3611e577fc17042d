"""The data-dependent bound dominates the true divergence, and its sensitivity is smooth."""

import itertools
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy.special import log_ndtr

from pate._core.testing.mechanisms import Laws
from pate.accounting import Event, NeighboringRelation
from pate.testing import EventContract
from scripts.reproduction.data_dependent import (
    SmoothSensitivityEvent,
    one_way_rdp,
    private_rdp,
    private_rdp_table,
    private_smooth_sensitivity,
    smooth_sensitivity_rdp,
)
from tests.core.accounting import oracles
from tests.core.accounting.test_events import NOT_POSITIVE, rounded_to_a_hundredth

pytestmark = pytest.mark.slow

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
TEACHERS = 60


@pytest.mark.parametrize("sigma", [3.0, 8.0, 20.0])
@pytest.mark.parametrize("order", [1.5, 4.0, 12.0])
def test_bound_dominates_the_divergence_from_every_neighbor(sigma: float, order: float) -> None:
    table = private_rdp_table(order, sigma=sigma, num_teachers=TEACHERS)
    assert (table <= order / (2 * sigma**2)).all() and (table >= 0).all()
    with mp.workdps(120):
        for count in range(TEACHERS + 1):
            for neighbor in {max(count - 1, 0), min(count + 1, TEACHERS)} - {count}:
                ends = [(mp.mpf(each) - TEACHERS / 2) / sigma for each in (count, neighbor)]
                true = oracles.bernoulli_shift(order, *ends)
                assert float(true) <= table[count] * (1 + 1e-9)


def test_theorem_6_bounds_one_direction_alone() -> None:
    sigma, order, there = 3.0, 12.0, []
    for count in range(31, TEACHERS + 1):
        here, near = (
            [oracles.phi(mp.mpf(side * (each - 30)) / 3) for side in (1, -1)]
            for each in (count, count - 1)
        )
        bound = one_way_rdp(order, float(log_ndtr((30 - count) / sigma)), 1 / (2 * sigma**2))
        with mp.workdps(60):
            assert oracles.renyi(here, near, order) <= bound
            there.append(oracles.renyi(near, here, order) > bound)
    assert any(there)


def test_smooth_sensitivity_by_its_definition() -> None:
    teachers, arguments = 6, {"sigma": 0.7, "num_teachers": 6}
    order, beta = 2.0, 0.2
    grid = list(itertools.product(range(teachers + 1), repeat=2))
    value = {counts: private_rdp(list(counts), order, **arguments) for counts in grid}  # type: ignore[arg-type]
    smooth = {
        counts: private_smooth_sensitivity(list(counts), order, beta=beta, **arguments)  # type: ignore[arg-type]
        for counts in grid
    }
    near = {
        counts: [
            other
            for other in grid
            if max(abs(a - b) for a, b in zip(counts, other, strict=True)) == 1
        ]
        for counts in grid
    }
    assert max(smooth.values()) > 0
    for counts in grid:
        for other in near[counts]:
            assert abs(value[counts] - value[other]) <= smooth[counts] * (1 + 1e-12)
            assert smooth[other] <= np.exp(beta) * smooth[counts] * (1 + 1e-12)
    # without the look into the distance it is not smooth
    local = {
        counts: max(abs(value[counts] - value[other]) for other in near[counts]) for counts in grid
    }
    assert any(
        local[other] > np.exp(beta) * local[counts] for counts in grid for other in near[counts]
    )


@pytest.mark.parametrize("sigma", [0.5, 20.0, 1e6])
@pytest.mark.parametrize("beta", [1e-6, 1e-3, 0.07, 0.3])
def test_smooth_sensitivity_curve_is_not_below_the_truth_at_its_pole(
    beta: float, sigma: float
) -> None:
    with mp.workdps(60):
        ratio, s = mp.exp(-mp.mpf(beta)), mp.mpf(sigma)
        pole = 1 / (1 - ratio**2)
        for digit in range(3, 17):
            for factor in (1.0, 2.0, 5.0):
                distance = mp.mpf(factor) / 10**digit
                order = float(pole * (1 - distance))
                found = float(smooth_sensitivity_rdp(order, beta, sigma))
                true = oracles.normal_divergence_closed(order, ratio, s, s * ratio)
                assert found >= true
                if digit <= 12:
                    assert found <= true * (1 + mp.mpf("1e-14") / distance)
                if digit == 16:
                    assert found == np.inf  # as near as two floats are
        assert float(smooth_sensitivity_rdp(float(pole) * 1.01, beta, sigma)) == np.inf


def test_published_curve_of_smooth_sensitivity_falls_below_the_truth() -> None:
    # the printed curve is alpha e^(2 beta) / sigma^2 + (beta alpha - log(1 - 2 alpha beta) / 2) /
    # (alpha - 1)
    beta, sigma, order = 0.01, 0.1, 49.0
    published = order * np.exp(2 * beta) / sigma**2 + (
        beta * order - np.log(1 - 2 * order * beta) / 2
    ) / (order - 1)
    true = oracles.normal_divergence(order, np.exp(-beta), sigma, sigma * np.exp(-beta))
    assert published < true <= float(smooth_sensitivity_rdp(order, beta, sigma)) * (1 + 1e-9)


class TestSmoothSensitivityEvent(EventContract):
    beta = 1e-3

    def event(self, noise: float, relation: NeighboringRelation) -> Event:
        return SmoothSensitivityEvent(
            beta=self.beta, noise_multiplier=2 * noise, neighboring_relation=relation
        )

    def laws(self, noise: float, relation: NeighboringRelation) -> list[Laws]:
        # the neighbor's sensitivity, and so its noise, is the smaller by a factor of exp(-beta)
        narrower = np.exp(-self.beta)
        return [
            (rounded_to_a_hundredth(0, 1), rounded_to_a_hundredth(narrower / (2 * noise), narrower))
        ]

    def malformed(self) -> list[dict[str, Any]]:
        return [{name: bad} for name in ("beta", "noise_multiplier") for bad in NOT_POSITIVE]
