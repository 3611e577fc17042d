"""Curves against fifty (or more) digits on extreme parameters, and what they must never do."""

import subprocess
import sys

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtri

from pate.accounting._two_outcomes import _largest_rdp
from pate.accounting.curves import (
    DEFAULT_ORDERS,
    bounded_range_rdp,
    cost,
    gaussian_noisy_max_rdp,
    gaussian_rdp,
    pure_dp_rdp,
    renyi_curve_rdp,
    smooth_sensitivity_rdp,
    stability_test_rdp,
    total_cost,
)
from pate.accounting.events import Event, GaussianEvent, PureDPEvent, StabilityTestEvent
from pate.accounting.relation import NeighboringRelation
from tests.accounting import oracles

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
ORDERS = np.array([1.01, 1.1, 1.5, 2, 3.3, 10, 64, 500, 1e4, 1e5, 1e9])
WIDTHS = np.geomspace(1e-8, 50, 12)
SIGMAS = (1e-2, 0.3, 10.0, 1e3, 1e6)


def excess(found: np.ndarray, true: list[mp.mpf]) -> np.ndarray:
    """How far each value is above the truth, relative to it."""
    assert not np.isnan(found).any() and (found >= 0).all()
    return np.array([float((mp.mpf(float(f)) - t) / t) for f, t in zip(found, true, strict=True)])


@pytest.mark.parametrize("sigma", SIGMAS)
def test_gaussian_curve_to_nine_digits(sigma: float) -> None:
    with mp.workdps(50):
        above = excess(gaussian_rdp(ORDERS, sigma), [oracles.gaussian(a, sigma) for a in ORDERS])
    assert np.abs(above).max() < 1e-12


@pytest.mark.parametrize("epsilon", WIDTHS)
def test_pure_curve_to_nine_digits(epsilon: float) -> None:
    with mp.workdps(80):
        above = excess(pure_dp_rdp(ORDERS, epsilon), [oracles.randomised_response(a, epsilon) for a in ORDERS])
    assert above.min() > -1e-15 and above.max() < 1e-9


@pytest.mark.parametrize("eta", WIDTHS)
def test_bounded_range_curve_is_the_supremum(eta: float) -> None:
    with mp.workdps(60):
        above = excess(bounded_range_rdp(ORDERS, eta), [oracles.bounded_range(a, eta) for a in ORDERS])
    # where the tight curve loses digits, it is rounded upwards
    assert above.min() > -1e-15 and above.max() < 2e-5


@pytest.mark.parametrize("eta", WIDTHS)
def test_bounded_range_never_costs_more_than_either_bound(eta: float) -> None:
    curve = bounded_range_rdp(DEFAULT_ORDERS, eta)
    assert (curve <= np.minimum(DEFAULT_ORDERS * eta**2 / 8, eta)).all()
    assert (curve <= pure_dp_rdp(DEFAULT_ORDERS, eta) * (1 + 1e-12)).all()


def test_half_the_width_is_caught() -> None:
    with mp.workdps(50):
        above = excess(bounded_range_rdp(ORDERS, 0.5), [oracles.bounded_range(a, 1.0) for a in ORDERS])
    assert above.max() < -0.4


@pytest.mark.parametrize("delta_test", [1e-300, 1e-100, 1e-9, 1e-3, 0.3, 0.9])
@pytest.mark.parametrize("sigma", [1e-2, 0.3, 10.0, 1e6])
def test_stability_curve_is_never_below_the_truth(sigma: float, delta_test: float) -> None:
    # a few gaps: at the bottom, around the threshold of the test, and beyond it
    threshold, some = max(0.0, -sigma * float(ndtri(delta_test))), ORDERS[::3]
    for window in (1, 2):
        gaps = [gap for gap in {0.0, 1.0, round(threshold), round(threshold + sigma)} if gap <= 1000]
        found = stability_test_rdp(
            some, sigma=sigma, delta_test=delta_test, shift=window, window=window, num_teachers=int(max(gaps)) + window
        )
        with mp.workdps(60 - round(np.log10(delta_test))):  # delta_test beside 1
            z = oracles.quantile(delta_test, float(ndtri(delta_test)))
            s = mp.mpf(sigma)
            true = [max(oracles.bernoulli_shift(a, z + g / s, z + (g + window) / s) for g in gaps) for a in some]
            above = excess(found, true)
        assert above.min() > -1e-12
        assert (found <= gaussian_rdp(some, sigma / window)).all()


def test_stability_curve_is_the_maximum_over_gaps() -> None:
    # sixty votes: every gap by its definition
    found = stability_test_rdp(ORDERS, sigma=8.0, delta_test=1e-4, shift=2, window=2, num_teachers=60)
    with mp.workdps(60):
        z = oracles.quantile(1e-4, float(ndtri(1e-4)))
        shifts = [mp.mpf(gap) / 2 for gap in range(2 * 58 + 1)]
        true = [max(oracles.bernoulli_shift(a, z + g / 8, z + (g + 2) / 8) for g in shifts) for a in ORDERS[:7]]
        above = excess(found[:7], true)
    assert above.min() > 0 and above.max() < 1e-9


def test_no_gap_is_left_out_that_costs_more() -> None:
    chance = np.random.default_rng(0)
    for _ in range(60):
        sigma, delta_test = float(10 ** chance.uniform(-1, 3)), float(10 ** chance.uniform(-30, -0.01))
        shift, window, teachers = int(chance.integers(1, 4)), int(chance.integers(1, 4)), int(chance.integers(1, 900))
        arguments = {"sigma": sigma, "delta_test": delta_test, "window": window}
        found = stability_test_rdp(DEFAULT_ORDERS, shift=shift, num_teachers=teachers, **arguments)  # type: ignore[arg-type]
        gaps = np.repeat(np.arange(max(0, 2 * (teachers - shift)) + 1)[:, None], DEFAULT_ORDERS.size, axis=1)
        orders = np.broadcast_to(DEFAULT_ORDERS, gaps.shape)
        by_gap = _largest_rdp(orders, gaps, gaps, float(ndtri(delta_test)), 1 / (2 * sigma), window / sigma)
        every = np.minimum(by_gap.max(axis=0), gaussian_rdp(DEFAULT_ORDERS, sigma / window))
        np.testing.assert_allclose(found, every, rtol=1e-11)


def test_bound_on_a_block_of_gaps_holds_for_each() -> None:
    chance = np.random.default_rng(1)
    for _ in range(60):
        sigma, start = float(10 ** chance.uniform(-1, 3)), float(chance.uniform(-20, 1))
        gaps = np.sort(chance.integers(0, int(30 * sigma) + 2, 40))[:, None] * np.ones(ORDERS.size, dtype=np.int64)
        orders, step = np.broadcast_to(ORDERS, gaps.shape), 1 / (2 * sigma)
        for window in (1, 2):
            by_gap = _largest_rdp(orders, gaps, gaps, start, step, window / sigma).max(axis=0)
            block = _largest_rdp(ORDERS, gaps[0], gaps[-1], start, step, window / sigma)
            assert (block >= by_gap * (1 - 1e-11)).all()


@pytest.mark.parametrize("num_teachers", [50_001, 10**6, 10**12])
def test_stability_curve_of_many_teachers_is_that_of_some(num_teachers: int) -> None:
    arguments = {"sigma": 60.0, "delta_test": 1e-9, "shift": 2, "window": 2}
    some = stability_test_rdp(DEFAULT_ORDERS, num_teachers=2_000, **arguments)  # type: ignore[arg-type]
    many = stability_test_rdp(DEFAULT_ORDERS, num_teachers=num_teachers, **arguments)  # type: ignore[arg-type]
    assert (many >= some * (1 - 1e-11)).all()
    low = DEFAULT_ORDERS < 500
    np.testing.assert_allclose(many[low], some[low], rtol=1e-11)
    endless = stability_test_rdp(DEFAULT_ORDERS, num_teachers=10**30, **arguments)  # type: ignore[arg-type]
    np.testing.assert_allclose(endless, gaussian_rdp(DEFAULT_ORDERS, 30.0), rtol=1e-12)


def test_bounds_stand_in_for_too_many_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"sigma": 60.0, "delta_test": 1e-9, "shift": 2, "window": 2, "num_teachers": 800}
    exact = stability_test_rdp(DEFAULT_ORDERS, **arguments)  # type: ignore[arg-type]
    monkeypatch.setattr("pate.accounting._two_outcomes._MAX_BLOCKS", 5_000)
    rough = stability_test_rdp(DEFAULT_ORDERS, **arguments)  # type: ignore[arg-type]
    assert (rough >= exact * (1 - 1e-11)).all() and (rough > exact).any()
    assert (rough <= gaussian_rdp(DEFAULT_ORDERS, 30.0)).all()


def test_stability_curve_is_near_two_over_pi_of_the_gaussian() -> None:
    curve = stability_test_rdp(DEFAULT_ORDERS, sigma=60.0, delta_test=1e-9, shift=1, window=1, num_teachers=800)
    share = curve / gaussian_rdp(DEFAULT_ORDERS, 60.0)
    assert (share <= 1).all()
    np.testing.assert_allclose(share[DEFAULT_ORDERS < 50], 2 / np.pi, rtol=0.02)


@pytest.mark.parametrize(("beta", "sigma"), [(1e-4, 3.0), (0.01, 0.5), (0.1, 20.0), (1.0, 2.0)])
def test_smooth_sensitivity_curve_is_exact(beta: float, sigma: float) -> None:
    orders = np.array([1.01, 1.3, 2.0, 4.9, 40.0, 600.0])
    found = smooth_sensitivity_rdp(orders, beta, sigma)
    for order, value in zip(orders.tolist(), found.tolist(), strict=True):
        ratios = np.exp(beta * np.linspace(-1, 1, 21))
        # the value moves by the smaller of the two sensitivities
        worst = max(oracles.normal_divergence(order, min(1, ratio), sigma, sigma * ratio) for ratio in ratios)
        if worst == np.inf:
            assert value == np.inf
        else:
            assert worst * (1 - 1e-9) <= value <= worst * (1 + 1e-5)


@pytest.mark.parametrize("sigma", [0.5, 20.0, 1e6])
@pytest.mark.parametrize("beta", [1e-6, 1e-3, 0.07, 0.3])
def test_smooth_sensitivity_curve_is_not_below_the_truth_at_its_pole(beta: float, sigma: float) -> None:
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
    # the printed curve is alpha e^(2 beta) / sigma^2 + (beta alpha - log(1 - 2 alpha beta) / 2) / (alpha - 1)
    beta, sigma, order = 0.01, 0.1, 49.0
    published = order * np.exp(2 * beta) / sigma**2 + (beta * order - np.log(1 - 2 * order * beta) / 2) / (order - 1)
    true = oracles.normal_divergence(order, np.exp(-beta), sigma, sigma * np.exp(-beta))
    assert published < true <= float(smooth_sensitivity_rdp(order, beta, sigma)) * (1 + 1e-9)


def test_noisy_max_takes_the_smaller_of_its_two_bounds() -> None:
    one_by_one = gaussian_noisy_max_rdp(DEFAULT_ORDERS, 5.0, 40)
    assert one_by_one[0] == pytest.approx(40 * gaussian_rdp(DEFAULT_ORDERS[0], 5.0) / 4)
    assert one_by_one[-1] == pytest.approx(gaussian_rdp(DEFAULT_ORDERS[-1], 5.0) + np.log(40) / 1e9, rel=1e-12)


def test_no_curve_overflows_to_nan() -> None:
    with np.errstate(all="raise", under="ignore"):
        for extreme in (1e-300, 1e-160, 1e-30, 1e30, 1e160, 1e300):
            for curve in (gaussian_rdp, pure_dp_rdp, bounded_range_rdp):
                values = curve(DEFAULT_ORDERS, extreme)
                assert not np.isnan(values).any() and (values >= 0).all()
            values = stability_test_rdp(
                DEFAULT_ORDERS, sigma=extreme, delta_test=1e-9, shift=2, window=2, num_teachers=50
            )
            assert not np.isnan(values).any() and (values >= 0).all()


def test_known_curve_is_bounded_by_its_chords() -> None:
    known = np.geomspace(1.5, 100, 8)
    between = np.geomspace(1.5, 100, 200)
    found = renyi_curve_rdp(between, known, pure_dp_rdp(known, 1.0))
    assert (found >= pure_dp_rdp(between, 1.0) * (1 - 1e-12)).all()
    np.testing.assert_allclose(renyi_curve_rdp(known, known, pure_dp_rdp(known, 1.0)), pure_dp_rdp(known, 1.0))
    assert renyi_curve_rdp(101.0, known, pure_dp_rdp(known, 1.0)) == np.inf
    assert renyi_curve_rdp(1.01, known, pure_dp_rdp(known, 1.0)) == pure_dp_rdp(1.5, 1.0)


@pytest.mark.parametrize(
    ("ran", "asked"), [(REPLACE, TEACHER), (TEACHER, REPLACE), (REPLACE, REPLACE), (TEACHER, TEACHER)]
)
def test_delta0_of_a_test_under_either_relation(ran: NeighboringRelation, asked: NeighboringRelation) -> None:
    event = StabilityTestEvent(
        sigma=5.0, delta_test=1e-6, shift=ran.count_window, num_teachers=100, neighboring_relation=asked
    )
    with mp.workdps(50):
        z = oracles.quantile(1e-6, float(ndtri(1e-6)))
        # the largest probability with which a gap passes that may separate two sets
        passes = oracles.phi(z + max(0, mp.mpf(asked.count_window - ran.count_window)) / 5)
    assert cost(event).delta0 == pytest.approx(float(passes), rel=1e-9)


def test_tiny_delta0_is_not_rounded_away() -> None:
    event = StabilityTestEvent(sigma=5.0, delta_test=1e-300, shift=1, num_teachers=10, neighboring_relation=TEACHER)
    assert cost(event).delta0 == pytest.approx(1e-300, rel=1e-6)
    assert total_cost((event,), 10**6).delta0 == pytest.approx(1e-294, rel=1e-6)


def test_unknown_events_and_kinds_of_known_ones_raise() -> None:
    class Stranger(Event):
        pass

    class Heir(PureDPEvent):
        pass

    known = GaussianEvent(noise_multiplier=1.0, neighboring_relation=REPLACE)
    for stranger in (Stranger(neighboring_relation=REPLACE), Heir(epsilon=1.0, neighboring_relation=REPLACE)):
        with pytest.raises(TypeError, match=r"Expected events with a known curve, got (Stranger|Heir)"):
            total_cost((known, stranger))


def test_accounting_imports_neither_torch_nor_autodp() -> None:
    code = "import sys, pate.accounting; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"torch", "lightning", "pytorch_lightning", "autodp", "dp_accounting", "matplotlib", "jsonargparse"}
    assert "pate.accounting.ledger" in loaded
    assert not heavy & set(loaded)
