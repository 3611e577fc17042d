"""Curves against fifty (or more) digits on extreme parameters, and what they must never do."""

import mpmath as mp
import numpy as np
import pytest

from pate._core.accounting.curves import (
    ROUNDING,
    bounded_range_mu_squared,
    bounded_range_rdp,
    gaussian_noisy_max_mu_squared,
    gaussian_noisy_max_rdp,
    gaussian_rdp,
    pure_dp_mu_squared,
    pure_dp_rdp,
    renyi_curve_rdp,
)
from pate.accounting import DEFAULT_ORDERS
from tests.core.accounting import oracles

ORDERS = np.array([1.01, 1.1, 1.5, 2, 3.3, 10, 64, 500, 1e4, 1e5, 1e9])
WIDTHS = np.geomspace(1e-8, 50, 5)
SIGMAS = (1e-2, 10.0, 1e6)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_gaussian_curve_to_nine_digits(sigma: float) -> None:
    with mp.workdps(50):
        above = oracles.excess(
            gaussian_rdp(ORDERS, sigma), [oracles.gaussian(a, sigma) for a in ORDERS]
        )
    assert np.abs(above).max() < 1e-12


@pytest.mark.parametrize("epsilon", WIDTHS)
def test_pure_curve_to_nine_digits(epsilon: float) -> None:
    with mp.workdps(80):
        above = oracles.excess(
            pure_dp_rdp(ORDERS, epsilon), [oracles.randomised_response(a, epsilon) for a in ORDERS]
        )
    assert above.min() >= 0 and above.max() < 5e-15


@pytest.mark.parametrize(
    ("order", "eta"), [(1.1, 1.0), (1.5, 3.0), (2.0, 1.0), (3.0, 0.5), (10.0, 4.0)]
)
def test_a_bounded_range_curve_is_raised_by_the_rounding_error_of_its_terms(
    order: float, eta: float
) -> None:
    """By that of each logarithm and of its argument, and by no more."""
    logs = [np.log1p(-np.exp(-width)) for width in (order * eta, (order - 1) * eta, eta)]
    terms = 1 - logs[1] + eta + (1 - logs[0] + np.log(order) - logs[2]) / (order - 1)
    with mp.workdps(60):
        raised = mp.mpf(float(bounded_range_rdp(order, eta))) - oracles.bounded_range(order, eta)
    assert abs(float(raised) / ROUNDING - terms) < 0.02 * terms


@pytest.mark.parametrize("eta", WIDTHS)
def test_bounded_range_curve_is_the_supremum(eta: float) -> None:
    with mp.workdps(60):
        above = oracles.excess(
            bounded_range_rdp(ORDERS, eta), [oracles.bounded_range(a, eta) for a in ORDERS]
        )
    # where the tight curve loses digits, it is rounded upwards
    assert above.min() > -1e-15 and above.max() < 2e-5


def test_half_the_width_is_caught() -> None:
    with mp.workdps(50):
        above = oracles.excess(
            bounded_range_rdp(ORDERS, 0.5), [oracles.bounded_range(a, 1.0) for a in ORDERS]
        )
    assert above.max() < -0.4


def test_no_curve_overflows_to_nan() -> None:
    with np.errstate(all="raise", under="ignore"):
        for extreme in (1e-300, 1e-160, 1e-30, 1e30, 1e160, 1e300):
            for curve in (gaussian_rdp, pure_dp_rdp, bounded_range_rdp):
                values = curve(DEFAULT_ORDERS, extreme)
                assert not np.isnan(values).any() and (values >= 0).all()


def test_known_curve_is_bounded_by_its_chords() -> None:
    known = np.geomspace(1.5, 100, 8)
    between = np.geomspace(1.5, 100, 200)
    found = renyi_curve_rdp(between, known, pure_dp_rdp(known, 1.0))
    assert (found >= pure_dp_rdp(between, 1.0) * (1 - 1e-12)).all()
    np.testing.assert_allclose(
        renyi_curve_rdp(known, known, pure_dp_rdp(known, 1.0)), pure_dp_rdp(known, 1.0)
    )
    assert renyi_curve_rdp(101.0, known, pure_dp_rdp(known, 1.0)) == np.inf
    assert renyi_curve_rdp(1.01, known, pure_dp_rdp(known, 1.0)) == pure_dp_rdp(1.5, 1.0)
    # at the first of the orders exactly
    assert all(
        renyi_curve_rdp(order, [order, 9.0], [0.9, 1.9]) == 0.9 for order in np.linspace(1.1, 2, 20)
    )


@pytest.mark.parametrize("epsilon", [1e-9, 9.99e-4, 1.001e-3, 30.0])
def test_the_gaussian_that_dominates_randomised_response_meets_it_where_both_errors_agree(
    epsilon: float,
) -> None:
    """Never a Gaussian of less: its errors are ``Phi(-mu / 2)``, both."""
    with mp.workdps(60):
        error = 1 / (1 + mp.exp(mp.mpf(epsilon)))
        exact = (2 * mp.sqrt(2) * mp.erfinv(1 - 2 * error)) ** 2
        for stated in (pure_dp_mu_squared(epsilon), bounded_range_mu_squared(2 * epsilon)):
            above = float(mp.mpf(float(stated)) / exact - 1)
            assert 0 < above < 1e-6
            # below 1e-3 it is a tangent, beyond a quantile, raised by a part in 10^12
            assert epsilon < 1e-3 or above < (1.1e-12 if epsilon > 0.01 else 2e-12)


def test_a_noisy_largest_score_costs_the_smaller_of_two_bounds() -> None:
    """The second is better for few candidates, the first for many."""
    for candidates, order, rdp in (
        (1, 3.0, 3 / 8 / 4),
        (2, 3.0, 3 / 8 / 2),
        (1000, 3.0, 3 / 8 + np.log(1000) / 2),
        (5, 41.0, 41 / 8 + np.log(5) / 40),
    ):
        assert gaussian_noisy_max_rdp(order, 2.0, candidates) == pytest.approx(rdp, rel=1e-13)
        assert gaussian_noisy_max_mu_squared(2.0, candidates) == pytest.approx(
            candidates / 16, rel=1e-13
        )
