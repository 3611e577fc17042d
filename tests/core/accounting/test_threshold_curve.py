"""The curve of a noisy threshold against thirty digits, wherever the statistic stands."""

import mpmath as mp
import numpy as np
import pytest
from scipy.special import log_ndtr

from pate._core.accounting import curves
from pate._core.accounting.curves import ROUNDING, gaussian_rdp, threshold_bit_rdp
from tests.core.accounting import oracles

ORDERS = np.array([1.001, 1.01, 1.2, 2.0, 5.0, 17.0, 80.0, 900.0])


def supremum(order: float, multiplier: float) -> mp.mpf:
    """Largest divergence of the bit over statistics: the best of a grid, then golden sections
    around it."""
    width = 1 / mp.mpf(multiplier)

    def divergence(a: mp.mpf) -> mp.mpf:
        return oracles.bernoulli_shift(order, a, a + width)

    grid = [mp.mpf(a) for a in np.linspace(-order / multiplier - 3, 1, 60)]
    best = max(grid, key=divergence)
    low, high = best - (grid[1] - grid[0]), best + (grid[1] - grid[0])
    golden = (mp.sqrt(5) - 1) / 2
    for _ in range(40):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (left, high) if divergence(left) < divergence(right) else (low, right)
    return divergence((low + high) / 2)


@pytest.mark.parametrize(
    "multiplier",
    [
        0.4,
        40.0,
        1e6,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (0.1, 1.0, 3.0, 1e3)),
    ],
)
def test_curve_is_the_supremum_and_never_below_it(multiplier: float) -> None:
    orders = ORDERS[30 * multiplier >= ORDERS]
    found = threshold_bit_rdp(orders, multiplier)
    with mp.workdps(30):
        true = [supremum(order, multiplier) for order in orders.tolist()]
        above = np.array(
            [float((mp.mpf(float(f)) - t) / t) for f, t in zip(found, true, strict=True)]
        )
    # so wide a deviation leaves few digits of the divergence, which is rounded upwards
    assert above.min() > 0 and above.max() < (1.2e-5 if multiplier < 1e6 else 5e-5), above


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 7.0, 200.0])
def test_no_statistic_and_no_smaller_move_costs_more(multiplier: float) -> None:
    """All statistics of a fine grid, both directions, moves of the sensitivity and of less; in log
    space."""
    found = threshold_bit_rdp(ORDERS, multiplier)
    statistics = np.linspace(-45, 45, 4001)
    for move in (1.0, 0.9, 0.5, -0.3, -1.0):
        p, q = (log_ndtr(np.outer((1, -1), statistics + shift)) for shift in (move / multiplier, 0))
        for order, value in zip(ORDERS.tolist(), found.tolist(), strict=True):
            worst = np.logaddexp.reduce(order * p + (1 - order) * q, axis=0).max() / (order - 1)
            assert worst <= value * (1 + 1e-9) + 1e-9, (move, order)


def test_beyond_the_cells_it_is_the_gaussian_curve() -> None:
    orders = np.array([29.0, 30.0, 30.1, 1e9])
    found, gaussian = threshold_bit_rdp(orders, 1.0), gaussian_rdp(orders, 1.0)
    assert (found[:2] < gaussian[:2] * 0.995).all()
    np.testing.assert_allclose(found[2:], gaussian[2:], rtol=1e-14)
    assert (found[2:] >= gaussian[2:]).all()
    # raised by sixteen roundings
    assert threshold_bit_rdp(64.0, 1.0) == 32 * (1 + 2.0**-48)
    for multiplier in (1e10, 1.5e10):
        np.testing.assert_allclose(
            threshold_bit_rdp(2.0, multiplier), gaussian_rdp(2.0, multiplier), rtol=1e-14
        )
    assert threshold_bit_rdp(2.0, 0.9e10) < gaussian_rdp(2.0, 0.9e10) * 0.9


@np.errstate(all="ignore")
@pytest.mark.parametrize("width", [3.0, 0.3, 0.004])
def test_both_bounds_hold_on_cells(width: float) -> None:
    """What branch and bound rests on, at random cells of all widths that it comes to."""
    generator = np.random.default_rng(0)
    tight = 0
    for alpha in (1.05, 3.0, 0.9 * curves._LARGEST_EXPONENT / width):
        for size in (1.0, 1 / 32, 1 / 256, 1 / 2048):
            start = generator.uniform(-12, 8, 200) // size * size  # no cell contains 0
            inside = curves._excess(
                np.array(alpha),
                curves._parts_at(start[:, None] + size * np.linspace(0, 1, 33), width),
            )
            x, c, y = (curves._parts_at(start + size * share, width) for share in (0, 0.5, 1))
            first = curves._first_bound(np.array(alpha), x, y)
            second = curves._second_bound(np.array(alpha), x, c, y, np.array(size))
            assert (inside.max(axis=1) <= first * (1 + 1e-9) + 1e-290).all()
            assert (inside.max(axis=1) <= second * (1 + 1e-9) + 1e-290).all()
            steps = np.abs(np.diff(inside, axis=1)).max(axis=1) * 32 / size
            assert (
                steps
                <= curves._slope(np.array(alpha), x, y) * (1 + 1e-6)
                + 1e-9 * inside.max(axis=1) / size
            ).all()
            tight += int((second < first).sum())
    assert tight > 0


@pytest.mark.parametrize(("alpha", "width"), [(1.5, 0.3), (3.0, 0.05), (4.0, 2.0), (30.0, 0.5)])
def test_the_bound_on_the_slope_is_the_slope_where_a_cell_is_a_point(
    alpha: float, width: float
) -> None:
    """So that cells that are narrow enough are decided by it."""
    points, step, order = np.array([-9.0, -4.0, -1.7, -0.6, 0.3, 1.2]), 1e-4, np.array(alpha)
    below, above = (
        curves._excess(order, curves._parts_at(points + move, width)) for move in (-step, step)
    )
    here = curves._parts_at(points, width)
    slope, height = np.abs(above - below) / (2 * step), curves._excess(order, here)
    np.testing.assert_allclose(
        curves._slope(order, here, here), slope, rtol=1e-5, atol=float(height.max()) * 1e-7
    )


def exact_slopes(order: float, a: float, width: float) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
    """E, and the two parts of the docstring whose difference is its derivative."""
    order, a, width = mp.mpf(order), mp.mpf(a), mp.mpf(width)

    def mills(x: mp.mpf) -> mp.mpf:
        return mp.npdf(x) / oracles.phi(x)

    r, s = oracles.phi(a + width) / oracles.phi(a), oracles.phi(-a - width) / oracles.phi(-a)
    gain, loss = (t**order - 1 - order * (t - 1) for t in (r, s))
    up = mp.npdf(a) * gain
    up += order * oracles.phi(-a - width) * (1 - s ** (order - 1)) * (mills(-a - width) - mills(-a))
    down = mp.npdf(a) * loss + order * oracles.phi(a + width) * (r ** (order - 1) - 1) * (
        mills(a) - mills(a + width)
    )
    return oracles.phi(a) * gain + oracles.phi(-a) * loss, up, down


@pytest.mark.parametrize("width", [1e-4, 1e-7])
def test_narrow_bits_are_rounded_upwards(width: float) -> None:
    """By sixteen roundings of the terms whose digits cancel: ``2 alpha w m`` of psi, four Mills
    ratios of a slope."""
    for order in (1.5, 20.0):
        for a in (-3.0, -0.4, 0.7, 3.0):
            here = curves._parts_at(np.array(a), width)
            m, yes, no = float(curves._mills(np.array(a))), *np.exp([here.log_yes, here.log_no])
            with mp.workdps(60):
                exact = exact_slopes(order, a, width)[0]
                raised = float(
                    (mp.mpf(float(curves._excess(np.array(order), here))) - exact) / ROUNDING
                )
            assert raised == pytest.approx(4 * order * width * m * yes, rel=0.3, abs=0)
            assert here.slack == pytest.approx(2 * ROUNDING * (m + m * yes / no), rel=1e-3, abs=0)
            # to both sides of the slope's difference
            loose, sharp = (
                curves._slope(np.array(order), at, at)
                for at in (here, here._replace(slack=np.array(0.0)))
            )
            slack = 2 * order * (order - 1) * float(here.slack) * width * m * yes
            assert loose - sharp == pytest.approx(slack, rel=0.01, abs=0)
