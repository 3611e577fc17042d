"""The data-dependent bound dominates the true divergence, and its sensitivity is smooth."""

import itertools

import mpmath as mp
import numpy as np
import pytest
from scipy.special import log_ndtr

from pate.accounting.curves import cost
from pate.accounting.data_dependent import (
    _bound_of_theorem_6,
    private_rdp,
    private_rdp_table,
    private_smooth_sensitivity,
    release_rdp,
)
from pate.mechanisms.noise import seeded_generator
from tests.accounting import oracles

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
        here, near = ([oracles.phi(mp.mpf(side * (each - 30)) / 3) for side in (1, -1)] for each in (count, count - 1))
        bound = _bound_of_theorem_6(order, float(log_ndtr((30 - count) / sigma)), 1 / (2 * sigma**2))
        with mp.workdps(60):
            assert oracles.renyi(here, near, order) <= bound
            there.append(oracles.renyi(near, here, order) > bound)
    assert any(there)


def test_agreement_costs_less_and_disagreement_what_the_event_says() -> None:
    table = private_rdp_table(8.0, sigma=4.0, num_teachers=TEACHERS)
    assert table[TEACHERS // 2] == pytest.approx(8.0 / 32)
    assert table[0] < 1e-6 and table[0] == pytest.approx(table[TEACHERS])
    assert private_rdp([[0, 30], [60, 30]], 8.0, sigma=4.0, num_teachers=TEACHERS) == pytest.approx(
        2 * table[0] + 2 * table[30]
    )


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
        counts: [other for other in grid if max(abs(a - b) for a, b in zip(counts, other, strict=True)) == 1]
        for counts in grid
    }
    assert max(smooth.values()) > 0
    for counts in grid:
        for other in near[counts]:
            assert abs(value[counts] - value[other]) <= smooth[counts] * (1 + 1e-12)
            assert smooth[other] <= np.exp(beta) * smooth[counts] * (1 + 1e-12)
    # without the look into the distance it is not smooth
    local = {counts: max(abs(value[counts] - value[other]) for other in near[counts]) for counts in grid}
    assert any(local[other] > np.exp(beta) * local[counts] for counts in grid for other in near[counts])


def test_release_is_the_value_with_noise_of_its_event() -> None:
    counts, order = np.random.default_rng(0).integers(0, TEACHERS + 1, (30, 4)), 4.0
    arguments = {"sigma": 5.0, "num_teachers": TEACHERS}
    generator = seeded_generator(0)
    drawn = [
        release_rdp(counts, order, beta=0.05, noise_multiplier=6.0, generator=generator, **arguments)  # type: ignore[arg-type]
        for _ in range(400)
    ]
    sensitivity = private_smooth_sensitivity(counts, order, beta=0.05, **arguments)  # type: ignore[arg-type]
    values = np.array([release.rdp for release in drawn])
    assert values.mean() == pytest.approx(private_rdp(counts, order, **arguments), abs=6 * sensitivity / 4)  # type: ignore[arg-type]
    assert values.std() == pytest.approx(6 * sensitivity, rel=0.15)
    assert np.isfinite(cost(drawn[0].event, np.array([order])).rdp[0])
    # a beta of 1 / (2 order) and more has no finite cost there
    wide = release_rdp(counts, order, beta=0.2, noise_multiplier=6.0, generator=generator, **arguments)  # type: ignore[arg-type]
    assert cost(wide.event, np.array([order])).rdp[0] == np.inf


def test_bad_input_raises() -> None:
    for wrong in ([61], [-1], [0.5]):
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
            private_rdp(wrong, 2.0, sigma=1.0, num_teachers=60)
    with pytest.raises(ValueError, match=r"Expected order - 1 > 0"):
        private_rdp([1], 1.0, sigma=1.0, num_teachers=60)
