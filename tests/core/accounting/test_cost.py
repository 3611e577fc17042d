"""Costs add up part by part."""

import itertools
import math

import numpy as np
import pytest
from mpmath import mp
from scipy.special import ndtri
from scipy.stats import norm

from pate._core.accounting.cost import (
    WIDTHS,
    _fall,
    _mills,
    format_epsilon,
    format_guess,
    gaussian_delta,
    gaussian_log_delta,
    largest_count_where,
    largest_mu,
    smallest_where,
)
from pate.accounting import DEFAULT_ORDERS, Cost, NeighboringRelation, gaussian_epsilon


def approx(cost: Cost) -> list[object]:
    """All parts of a cost, to compare another with."""
    return [part if part is None else pytest.approx(part, rel=1e-14) for part in cost]


@pytest.mark.parametrize("weights", [None, np.linspace(0.1, 0.2, WIDTHS.size)])
def test_a_number_of_releases_costs_their_sum(weights: np.ndarray | None) -> None:
    cost = Cost(DEFAULT_ORDERS / 8, -1e-9, 0.25, weights, rounds=2.0)
    four = cost + cost + cost + cost
    assert (
        list(cost * 4) == approx(four)
        and four.rounds == 8
        and four.log_survival == pytest.approx(-4e-9)
    )
    assert list(cost * 1) == approx(cost)
    for nothing in (cost * 0, Cost.nothing(DEFAULT_ORDERS)):
        assert list(nothing) == approx(Cost(np.zeros(257), 0.0, 0.0)) and not nothing.rdp.any()
    assert list(cost + Cost.nothing(DEFAULT_ORDERS)) == approx(cost)


def test_what_has_no_weights_has_its_mu_squared_at_all_widths() -> None:
    light, plain = (
        Cost(np.ones(257), 0.0, 0.5, np.full(WIDTHS.shape, 0.3), 1.0),
        Cost(np.ones(257), 0.0, 0.5),
    )
    for both in (light + plain, plain + light):
        assert (
            both.mu_squared == 1
            and both.rounds == 1
            and both.narrow_weights == pytest.approx(np.full(WIDTHS.shape, 0.8))
        )
    assert (plain + plain).weights is None and (plain.narrow_weights == 0.5).all()
    assert Cost(np.ones(257), 0.0).mu_squared == math.inf


def test_orders_run_from_next_to_1_to_a_billion() -> None:
    assert DEFAULT_ORDERS.shape == (257,) and (np.diff(DEFAULT_ORDERS) > 0).all()
    assert DEFAULT_ORDERS[[0, -2, -1]] == pytest.approx([1.01, 1 + 1e5, 1e9], rel=1e-12)
    assert repr(DEFAULT_ORDERS) == "DEFAULT_ORDERS" != repr(DEFAULT_ORDERS[:2])
    assert Cost(np.ones(257), math.log1p(-1e-12)).delta0 == pytest.approx(1e-12, rel=1e-12, abs=0)


# far below and above mu^2 / 2, on both sides of mu = 1 and of epsilon / mu - mu / 2 = -1
PLACES = [
    *((0.0, 1e-12), (0.0, 1.0), (0.0, 9.0), (1.5, 3.0), (1.0, 1.01), (1e-3, 1e-4)),
    *((0.7, 0.3), (20.0, 1.5), (1.2, 0.1), (60.0, 12.0)),
]


def log_delta(epsilon: float, mu: float) -> float:
    with mp.workdps(60):
        near, far = mp.mpf(epsilon) / mu - mp.mpf(mu) / 2, mp.mpf(epsilon) / mu + mp.mpf(mu) / 2
        return float(
            mp.log(mp.erfc(near / mp.sqrt(2)) / 2 - mp.exp(epsilon) * mp.erfc(far / mp.sqrt(2)) / 2)
        )


@pytest.mark.parametrize(("epsilon", "mu"), PLACES)
def test_delta_is_that_of_its_formula(epsilon: float, mu: float) -> None:
    exact = log_delta(epsilon, mu)
    assert gaussian_log_delta(epsilon, mu) == pytest.approx(exact, rel=1e-11, abs=1e-13)
    assert gaussian_delta(epsilon, mu) == pytest.approx(math.exp(exact), rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(epsilon, mu) for epsilon, mu in PLACES if epsilon > mu * (mu / 2 - 2)]
)
def test_epsilon_and_mu_are_its_inverses(epsilon: float, mu: float) -> None:
    """Where delta is nearly 1 it has too few digits to tell one epsilon from another."""
    delta = math.exp(log_delta(epsilon, mu))
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-9, abs=1e-9)
    assert largest_mu(epsilon, delta) == pytest.approx(mu, rel=1e-9)
    # each errs toward more privacy lost
    assert gaussian_log_delta(gaussian_epsilon(delta, mu), mu) <= math.log(delta) + 1e-13
    assert gaussian_log_delta(epsilon, largest_mu(epsilon, delta)) <= math.log(delta) + 1e-13


@pytest.mark.parametrize("mu", [1e5, 1e13, 1.1e13, 1e153, 1e200])
@pytest.mark.parametrize("delta", [1e-300, 0.5])
def test_epsilon_of_next_to_no_noise(delta: float, mu: float) -> None:
    """Of ``exp(epsilon) Phi(-far) = phi(near) m(far)`` a Mills ratio of nearly ``1 / far`` is left."""

    def missing(near: mp.mpf) -> mp.mpf:
        return mp.log((mp.ncdf(-near) - mp.npdf(near) / (near + mu)) / delta)

    with mp.workdps(40):
        near = mp.findroot(missing, -ndtri(delta))
        exact = mp.mpf(mu) ** 2 / 2 + near * mu
    epsilon = gaussian_epsilon(delta, mu)
    assert epsilon >= exact * (1 - 1e-15)
    assert epsilon <= exact * (1 + 1e-11) or (exact > 1e308 and epsilon == math.inf)


def test_mills_ratio_and_its_slope_keep_their_digits() -> None:
    points = np.array([-3.0, -0.4, 0.0, 0.7, 5.0, 11.9, 12.1, 40.0, 1e4])
    with mp.workdps(60):
        exact = [
            mp.sqrt(mp.pi / 2) * mp.exp(mp.mpf(x) ** 2 / 2) * mp.erfc(mp.mpf(x) / mp.sqrt(2))
            for x in points
        ]
        slopes = [
            float(1 - mp.mpf(x) * ratio) for x, ratio in zip(points.tolist(), exact, strict=True)
        ]
    np.testing.assert_allclose(
        [_mills(x) for x in points.tolist()], [float(ratio) for ratio in exact], rtol=1e-13
    )
    np.testing.assert_allclose(_fall(points), slopes, rtol=5e-11)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 0.0), (0.3, 1e-6), (1.5, 0.1), (4.0, 0.0), (30.0, 0.2)]
)
def test_nobody_guesses_better(epsilon: float, delta: float) -> None:
    """The worst mechanism of a guarantee, by all of its tests, and a Gaussian one, which is no
    worse."""
    stated = _percent(format_guess({"epsilon": epsilon, "delta": delta}))
    share = (1 - delta) / (1 + np.exp(epsilon))
    # says which, leans to it, leans away, never
    first = np.array([delta, np.exp(epsilon) * share, share, 0.0])
    best = max(
        (first[list(rows)].sum() + 1 - first[::-1][list(rows)].sum()) / 2
        for rows in [(0,), (0, 1), (0, 1, 2)]
    )
    assert best <= stated + 1e-12
    assert stated - best <= 0.00101  # of the rounding
    if delta:
        mu = next(mu for mu in np.arange(9, 0, -0.01) if _gaussian_delta(mu, epsilon) <= delta)
        assert norm.cdf(mu / 2) <= stated


def _percent(text: str) -> float:
    return float(text.rstrip("%")) / 100


def _gaussian_delta(mu: float, epsilon: float) -> float:
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )


THIRD, LEAST = 1 / 3, 5e-324


@pytest.mark.parametrize(
    ("low", "high", "turn"),
    [
        (0.0, 1.0, THIRD),
        (0.0, 1.0, 0.5 + 1e-15),  # the grid of twice the tolerance is farther away
        (0.0, 1e300, 7.0),
        (-1.0, 1.0, -THIRD),
        (-8e307, 9e307, 1e307),
        (-3.0, -2.0, -2.5 + 1e-13),
        (0.0, 1.0, 1e-200),
    ],
)
def test_the_smallest_is_met_or_missed_by_the_tolerance(
    low: float, high: float, turn: float
) -> None:
    answer = smallest_where(lambda x: x >= turn, low, high)
    assert turn <= answer <= turn + 1e-13 * abs(turn)


def test_narrow_brackets_are_bisected_to_neighboring_floats() -> None:
    """The tolerance is relative to the bracket where that is narrower than its ends are large."""
    for low, high, turn in (
        (1.0, 1 + 1e-6, 1 + 3e-7),
        (-2.0, -2 + 1e-6, -2 + 3e-7),
        (0.0, 5 * LEAST, 3 * LEAST),
    ):
        assert smallest_where(lambda x, turn=turn: x >= turn, low, high) == turn  # type: ignore[misc]
    assert smallest_where(lambda x: x >= 0.3, 0.3, 0.3) == 0.3


@pytest.mark.parametrize("limit", [1, 2, 5, 8, 9, 2**53])
def test_the_largest_count_is_any_up_to_the_limit(limit: int) -> None:
    for largest in {0, 1, 2, 3, 6, limit - 1, limit, limit + 1}:
        found = largest_count_where(largest.__ge__, limit=limit)
        assert found == min(largest, limit)


def test_epsilons_have_the_digits_that_are_asked_for() -> None:
    assert [format_epsilon(1.23401, digits) for digits in (1, 2, 3, 4)] == [
        "1.3",
        "1.24",
        "1.235",
        "1.2341",
    ]
    assert format_epsilon(math.inf) == "unbounded" and format_epsilon(1e300) == "1.000e+300"
    assert format_epsilon(1e15) == "1.000e+15" and format_epsilon(1.00001e15, 4) == "1.0001e+15"
    assert format_epsilon(0.99e15) == "990000000000000.000"


MOVES = {
    NeighboringRelation.REPLACE_RECORD: (-1, 0, 1),
    NeighboringRelation.ADD_REMOVE_TEACHER: (0, 1),
}


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_the_score_range_covers_all_moves(relation: NeighboringRelation) -> None:
    counts = np.array([7, 5, 2])
    moves = np.array(list(itertools.product(MOVES[relation], repeat=3)))
    assert (moves.max(axis=1) - moves.min(axis=1)).max() == relation.score_range
    # a gap between sorted counts moves by the same at most, either way
    gaps = -np.diff(-np.sort(-(counts + moves), axis=1)) + np.diff(-np.sort(-counts))
    assert np.abs(gaps).max() == relation.score_range
