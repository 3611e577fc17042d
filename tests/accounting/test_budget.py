"""Filters: bounds that follow from the budget, hold against whoever chooses releases by earlier ones, and go far."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from pate.accounting.budget import Budget, GaussianFilter, RenyiFilter, affordable, filter_from_dict, make_filter
from pate.accounting.conversion import conversion_overhead
from pate.accounting.cost import DEFAULT_ORDERS, Cost
from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    RenyiCurveEvent,
    StabilityTestEvent,
)
from pate.accounting.gaussian import gaussian_delta, gaussian_epsilon, largest_mu
from pate.accounting.relation import NeighboringRelation

REPLACE = NeighboringRelation.REPLACE_RECORD
NOTHING = Cost.nothing(DEFAULT_ORDERS)
BUDGET = Budget(max_epsilon=1.0, delta=1e-6, neighboring_relation=REPLACE)
GAUSSIAN = GaussianEvent(noise_multiplier=100.0, neighboring_relation=REPLACE)
CHOICE = BoundedRangeEvent(eta=0.01, neighboring_relation=REPLACE)
TEST = StabilityTestEvent(sigma=200.0, delta_test=1e-9, shift=2, num_teachers=400, neighboring_relation=REPLACE)
CURVE = RenyiCurveEvent(orders=(2.0, 100.0), rdp=(1e-6, 1e-4), neighboring_relation=REPLACE)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-5), (30.0, 0.1), (0.0, 0.3), (1e-9, 1e-12)]
)
def test_largest_mu_is_on_the_private_side(epsilon: float, delta: float) -> None:
    mu = largest_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta * (1 + 1e-9) < gaussian_delta(epsilon, mu * (1 + 1e-6))
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0, 8.0])
def test_gaussian_releases_go_further_under_a_gaussian_filter(epsilon: float) -> None:
    budget = Budget(max_epsilon=epsilon, delta=1e-6, neighboring_relation=REPLACE)
    once = GAUSSIAN.cost()
    bounds = make_filter(budget, NOTHING, once)
    assert isinstance(bounds, GaussianFilter)
    by_curve = max(
        (epsilon - overhead) / rdp
        for overhead, rdp in zip(conversion_overhead(DEFAULT_ORDERS, 1e-6), once.rdp, strict=True)
    )
    assert 1.08 < affordable(budget, NOTHING, once) / by_curve < 1.2


@pytest.mark.parametrize("event", [CHOICE, ComposedEvent(events=(CHOICE, TEST)), CURVE])
def test_other_releases_go_further_under_a_renyi_filter(event: Event) -> None:
    bounds = make_filter(BUDGET, NOTHING, event.cost())
    assert isinstance(bounds, RenyiFilter)
    most = affordable(BUDGET, NOTHING, event.cost())
    assert bounds.admits(event.cost(bounds.orders).times(most))
    assert not bounds.admits(event.cost(bounds.orders).times(most + 1))


def test_a_gaussian_filter_takes_other_releases_at_the_mu_that_dominates_them() -> None:
    bounds = make_filter(BUDGET, NOTHING, GAUSSIAN.cost())
    paid = GAUSSIAN.cost(bounds.orders).times(affordable(BUDGET, NOTHING, GAUSSIAN.cost()) - 10)
    test = TEST.cost(bounds.orders)
    assert not bounds.admits(paid.plus(test)), "no part of delta was set aside for failures"
    patient = Budget(max_epsilon=1.0, delta=1e-6, neighboring_relation=REPLACE, max_delta0=5e-9)
    bounds = make_filter(patient, NOTHING, GAUSSIAN.cost())
    assert isinstance(bounds, GaussianFilter) and bounds.max_delta0 == 5e-9
    paid = GAUSSIAN.cost(bounds.orders).times(affordable(patient, NOTHING, GAUSSIAN.cost()))
    room = bounds.max_mu_squared - paid.mu_squared + 5 / 100**2
    paid = paid._replace(mu_squared=paid.mu_squared - 5 / 100**2)
    for event in (TEST, CHOICE):
        each = event.cost(bounds.orders)
        most = int(min(room / each.mu_squared, 5.0 if event is TEST else math.inf))
        assert bounds.admits(paid.plus(each.times(most))) and not bounds.admits(paid.plus(each.times(most + 1)))
    assert not bounds.admits(CURVE.cost(bounds.orders))


@pytest.mark.parametrize("event", [GAUSSIAN, ComposedEvent(events=(CHOICE, TEST))])
def test_a_filter_follows_from_its_budget_and_no_other(event: Event) -> None:
    bounds = make_filter(BUDGET, NOTHING, event.cost())
    bounds.expect_follows(BUDGET)
    assert filter_from_dict(bounds.to_dict()) == bounds
    stated = bounds.to_dict()
    wrong = [{"max_delta0": 2e-6}, {"max_delta0": (stated["max_delta0"] + 1e-6) / 2}]
    wrong += [{name: stated[name] * 1.001} for name in ("max_rdp", "max_mu_squared") if name in stated]
    for change in wrong:
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
            filter_from_dict(stated | change).expect_follows(BUDGET)
    for smaller in ({"max_epsilon": 0.99}, {"delta": 9e-7}):
        arguments: dict[str, Any] = BUDGET.to_dict() | smaller
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
            bounds.expect_follows(Budget(**arguments))
    with pytest.raises(ValueError, match=r"^Expected max_delta0 of"):
        filter_from_dict(bounds.to_dict() | {"max_delta0": 1e-9}).expect_follows(
            Budget(max_epsilon=1.0, delta=1e-6, neighboring_relation=REPLACE, max_delta0=1e-12)
        )


def worst_delta(epsilon: float, squares: float, step: float, rounds: int) -> float:
    """Largest delta at ``epsilon`` of an adversary who sees on which side of a threshold a Gaussian fell, then chooses.

    In each round it chooses, by all that it saw, a threshold and a mean that moves by 1 to 3 steps while their squares
    sum up to ``squares`` at most; the threshold tells one bit. Every choice is enumerated.
    """
    thresholds = np.linspace(-1.5, 1.5, 7).tolist()

    def value(gamma: float, left: float, rounds: int) -> float:
        best = max(0.0, 1 - gamma)
        if rounds == 0:
            return best
        for n in (1, 2, 3):
            mu = n * step
            if mu**2 > left * (1 + 1e-9):
                break
            for at in thresholds:
                p, q = float(ndtr(at + mu)), float(ndtr(at))
                for yes, no in ((p, q), (q, p)):
                    branches = ((yes, no), (1 - yes, 1 - no))
                    found = sum(one * value(gamma * other / one, left - mu**2, rounds - 1) for one, other in branches)
                    best = max(best, found)
        return best

    return value(math.exp(epsilon), squares, rounds)


@pytest.mark.slow
def test_no_adaptive_adversary_exceeds_the_gaussian_filter() -> None:
    for mu, epsilon in ((0.9, 0.5), (1.2, 1.0)):
        delta = gaussian_delta(epsilon, mu)
        found = worst_delta(epsilon, mu**2, mu / 3, 3)
        assert 0.5 * delta < found <= delta
        # a wider filter would be refuted
        assert worst_delta(epsilon, (1.3 * mu) ** 2, 1.3 * mu / 3, 3) > delta


def test_malformed_filters_raise() -> None:
    gaussian, renyi = {"max_mu_squared": 1.0, "max_delta0": 0.0}, {"order": 2.0, "max_rdp": 0.0, "max_delta0": 0.0}
    for right in (gaussian, renyi):
        assert filter_from_dict(right).to_dict() == right
        for changes in ({"max_delta0": 1.0}, {"max_delta0": -1e-9}, {"max_delta0": math.nan}):
            with pytest.raises(ValueError, match=r"^Expected 0 <= max_delta0 < 1, got [^\n]*$"):
                filter_from_dict(right | changes)
    for wrong in (gaussian | {"max_mu_squared": 0.0}, renyi | {"max_rdp": -1e-9}, renyi | {"order": 1.0}):
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
            filter_from_dict(wrong)
