"""Costs add up part by part."""

import math

import numpy as np
import pytest

from pate._core.accounting.cost import WIDTHS
from pate.accounting import DEFAULT_ORDERS, Cost


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
