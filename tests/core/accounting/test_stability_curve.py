"""The curve of a stability test against sixty (or more) digits, gap by gap."""

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtri

from pate._core.accounting.curves import (
    ROUNDING,
    _largest_rdp,
    _Outcome,
    _two_outcome_rdp,
    gaussian_rdp,
    stability_test_rdp,
)
from pate.accounting import DEFAULT_ORDERS, NeighboringRelation, StabilityTestEvent
from tests.core.accounting import oracles

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
ORDERS = np.array([1.01, 1.1, 1.5, 2, 3.3, 10, 64, 500, 1e4, 1e5, 1e9])


@pytest.mark.parametrize("delta_test", [1e-300, 1e-9, 0.9])
@pytest.mark.parametrize("sigma", [1e-2, 10.0, 1e6])
def test_stability_curve_is_never_below_the_truth(sigma: float, delta_test: float) -> None:
    # a few gaps: at the bottom, around the threshold of the test, and beyond it
    threshold, some = max(0.0, -sigma * float(ndtri(delta_test))), ORDERS[::3]
    for window in (1, 2):
        gaps = [
            gap for gap in {0.0, 1.0, round(threshold), round(threshold + sigma)} if gap <= 1000
        ]
        found = stability_test_rdp(
            some,
            sigma=sigma,
            delta_test=delta_test,
            shift=window,
            window=window,
            num_teachers=int(max(gaps)) + window,
        )
        with mp.workdps(60 - round(np.log10(delta_test))):  # delta_test beside 1
            z = oracles.quantile(delta_test, float(ndtri(delta_test)))
            s = mp.mpf(sigma)
            true = [
                max(oracles.bernoulli_shift(a, z + g / s, z + (g + window) / s) for g in gaps)
                for a in some
            ]
            above = oracles.excess(found, true)
        assert above.min() > -1e-12
        assert (found <= gaussian_rdp(some, sigma / window)).all()


def test_stability_curve_is_the_maximum_over_gaps() -> None:
    # sixty votes: every gap by its definition
    found = stability_test_rdp(
        ORDERS, sigma=8.0, delta_test=1e-4, shift=2, window=2, num_teachers=60
    )
    with mp.workdps(60):
        z = oracles.quantile(1e-4, float(ndtri(1e-4)))
        shifts = [mp.mpf(gap) / 2 for gap in range(2 * 58 + 1)]
        true = [
            max(oracles.bernoulli_shift(a, z + g / 8, z + (g + 2) / 8) for g in shifts)
            for a in ORDERS[:7]
        ]
        above = oracles.excess(found[:7], true)
    assert above.min() > 0 and above.max() < 1e-9


def outcome(p: float, q: float) -> _Outcome:
    """One outcome of probabilities ``Phi(p)`` and ``Phi(q)``."""
    loss = np.array([float(mp.log(oracles.phi(mp.mpf(p)) / oracles.phi(mp.mpf(q))))])
    return _Outcome(loss, np.array([p]), np.array([q]), *[np.array([0])] * 3)


@pytest.mark.parametrize(
    ("alpha", "p", "q"),
    [
        *(
            (1.01, 0.3, 0.1),
            (2.0, -1.0, -1.25),
            (2.0, 1.0, 1.25),
            (3.0, -6.0, -6.5),
            (40.0, 0.6, -3.0),
            (9.0, -2.0, 4.0),
        ),
        *((2.0, 0.5, 0.5 - 1e-6), (30.0, -1.0, -1 + 1e-7), (1.5, 2.0, 2 + 1e-9)),
        # in log space
        *(
            (1e4, 0.5, 0.3),
            (1e4, 0.3, 0.5),
            (1e3, -9.0, -9.5),
            (1e5, 5.0, 4.0),
            (4e9, 7.0, 6.9),
            (1e11, 7.0, 6.9),
        ),
    ],
)
@np.errstate(over="ignore", invalid="ignore")
def test_two_outcomes_are_raised_by_what_their_digits_lose(
    alpha: float, p: float, q: float
) -> None:
    """Two parts in 10^12 and more of a loss for what curves, sixteen roundings of what cancels; and
    by no more."""
    with mp.workdps(60):
        outcomes = outcome(p, q), outcome(-p, -q)
        stated = float(_two_outcome_rdp(np.array([alpha]), *outcomes)[0]) * (mp.mpf(alpha) - 1)
        laws = [[oracles.phi(mp.mpf(sign * x)) for sign in (1, -1)] for x in (p, q)]
        powers = [alpha * mp.log(x / y) for x, y in zip(*laws, strict=True)]
        total = mp.fsum(y * mp.exp(power) for y, power in zip(laws[1], powers, strict=True))
        added = mp.mpf(0)
        for x, y, power in zip(*laws, powers, strict=True):
            if max(map(abs, powers)) < 600:
                curved, linear = mp.expm1(power), alpha * (x / y - 1)
                sizes = 1e-12 * (2 + abs(power)) * (curved - linear) + ROUNDING * (
                    abs(curved) + abs(linear)
                )
                added += y * sizes / total
            else:
                added -= y * mp.exp(power) / total * ROUNDING * alpha * mp.log(x * y)
        added += ROUNDING if max(map(abs, powers)) > 600 else 0
        assert float((stated - mp.log(total)) / added) == pytest.approx(1, abs=0.2)


def test_bound_on_a_block_of_gaps_holds_for_each() -> None:
    chance = np.random.default_rng(1)
    for _ in range(60):
        sigma, start = float(10 ** chance.uniform(-1, 3)), float(chance.uniform(-20, 1))
        gaps = np.sort(chance.integers(0, int(30 * sigma) + 2, 40))[:, None] * np.ones(
            ORDERS.size, dtype=np.int64
        )
        orders, step = np.broadcast_to(ORDERS, gaps.shape), 1 / (2 * sigma)
        for window in (1, 2):
            by_gap = _largest_rdp(orders, gaps, gaps, start, step, window / sigma).max(axis=0)
            block = _largest_rdp(ORDERS, gaps[0], gaps[-1], start, step, window / sigma)
            assert (block >= by_gap * (1 - 1e-11)).all()


@pytest.mark.parametrize(
    "num_teachers", [50_001, pytest.param(10**6, marks=pytest.mark.slow), 10**12]
)
def test_stability_curve_of_many_teachers_is_that_of_some(num_teachers: int) -> None:
    arguments = {"sigma": 60.0, "delta_test": 1e-9, "shift": 2, "window": 2}
    some = stability_test_rdp(DEFAULT_ORDERS, num_teachers=2_000, **arguments)  # type: ignore[arg-type]
    many = stability_test_rdp(DEFAULT_ORDERS, num_teachers=num_teachers, **arguments)  # type: ignore[arg-type]
    assert (many >= some * (1 - 1e-11)).all()
    low = DEFAULT_ORDERS < 500
    np.testing.assert_allclose(many[low], some[low], rtol=1e-11)
    endless = stability_test_rdp(DEFAULT_ORDERS, num_teachers=10**30, **arguments)  # type: ignore[arg-type]
    np.testing.assert_allclose(endless, gaussian_rdp(DEFAULT_ORDERS, 30.0), rtol=1e-12)


@pytest.mark.parametrize("num_teachers", [1, 2])
def test_a_test_without_votes_to_spare_has_one_gap(num_teachers: int) -> None:
    orders = np.array([1.5, 4.0, 30.0])
    found = stability_test_rdp(
        orders, sigma=3.0, delta_test=0.01, shift=2, window=2, num_teachers=num_teachers
    )
    with mp.workdps(60):
        z = oracles.quantile(0.01, float(ndtri(0.01)))
        above = oracles.excess(
            found, [oracles.bernoulli_shift(a, z, z + mp.mpf(2) / 3) for a in orders]
        )
    assert above.min() > 0 and above.max() < 1e-9
    # of a probability that is none, what it may have been
    rare = stability_test_rdp(
        orders[:1], sigma=3.0, delta_test=1e-200, shift=2, window=2, num_teachers=num_teachers
    )
    assert rare == pytest.approx(1e-60, rel=1e-9, abs=0)


@pytest.mark.parametrize(
    ("ran", "asked"),
    [(REPLACE, TEACHER), (TEACHER, REPLACE), (REPLACE, REPLACE), (TEACHER, TEACHER)],
)
def test_delta0_of_a_test_under_either_relation(
    ran: NeighboringRelation, asked: NeighboringRelation
) -> None:
    event = StabilityTestEvent(
        sigma=5.0,
        delta_test=1e-6,
        shift=ran.score_range,
        num_teachers=100,
        neighboring_relation=asked,
    )
    with mp.workdps(50):
        z = oracles.quantile(1e-6, float(ndtri(1e-6)))
        # the largest probability with which a gap passes that may separate two sets
        passes = oracles.phi(z + max(0, mp.mpf(asked.score_range - ran.score_range)) / 5)
    assert event.cost().delta0 == pytest.approx(float(passes), rel=1e-9)
