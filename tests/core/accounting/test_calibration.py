"""Calibration ends on the private side of its target, and close to it."""

from collections.abc import Callable
from itertools import product

import pytest

from pate._core.accounting.accountant import TIGHTEST
from pate.accounting import (
    DEFAULT_ORDERS,
    BoundedRangeEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    NeighboringRelation,
    PureDPEvent,
    RDPAccountant,
    RenyiCurveEvent,
    StabilityTestEvent,
    Target,
    calibrate_scale,
    epsilon_of,
)

REPLACE = NeighboringRelation.REPLACE_RECORD
FAMILIES: dict[str, Callable[[float], Event]] = {
    "gaussian": lambda scale: GaussianEvent(noise_multiplier=scale, neighboring_relation=REPLACE),
    "bounded range": lambda scale: BoundedRangeEvent(eta=2 / scale, neighboring_relation=REPLACE),
    "pure": lambda scale: PureDPEvent(epsilon=2 / scale, neighboring_relation=REPLACE),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("target", "count"), [(0.01, 1), (1.0, 600), (8.0, 10**6)])
def test_scale_is_on_the_private_side_of_the_target(family: str, target: float, count: int) -> None:
    event_of = FAMILIES[family]
    scale = calibrate_scale(event_of, Target(epsilon=target, delta=1e-6, num_queries=count))
    assert epsilon_of(event_of(scale), count=count, delta=1e-6) <= target
    assert epsilon_of(event_of(scale * (1 - 2e-6)), count=count, delta=1e-6) > target


@pytest.mark.parametrize(
    ("family", "count", "gain"), [("pure", 100, 1.03), ("bounded range", 30, 1.04)]
)
def test_equal_rounds_take_the_noise_that_their_statement_needs(
    family: str, count: int, gain: float
) -> None:
    """Less than the sum of their curves, Gaussians or bits would need."""
    event_of, target = FAMILIES[family], Target(epsilon=4.0, delta=1e-6, num_queries=count)
    scale = calibrate_scale(event_of, target)
    total = RDPAccountant(relation=REPLACE).compose(event_of(scale), count)
    stated = total.guarantee(delta=1e-6)
    assert stated.rounds == count and 4 * (1 - 1e-5) < stated.epsilon <= 4
    assert total.guarantee(delta=1e-6, by=TIGHTEST[:3]).epsilon > 4 * gain
    assert epsilon_of(event_of(scale * (1 - 2e-6)), count=count, delta=1e-6) > 4


def test_few_orders_tell_what_all_of_them_tell() -> None:
    """For events of any scale in turn, so that the best order moves far; also where few orders have
    a figure, or failures take all of delta."""
    curve = RenyiCurveEvent(
        orders=(1.5, 2.0, 2.5), rdp=(0.1, 0.2, 0.3), neighboring_relation=REPLACE
    )
    events = [curve, FailureEvent(delta=0.1, neighboring_relation=REPLACE)]
    for scale in (1.0, 1e4, 0.05, 30.0, 1e7, 300.0):
        test = StabilityTestEvent(
            sigma=scale, delta_test=1e-9, shift=2, num_teachers=200, neighboring_relation=REPLACE
        )
        events += [test, *(family(scale) for family in FAMILIES.values()), curve]
    for count, orders in product(
        (1, 40), (DEFAULT_ORDERS, DEFAULT_ORDERS[::6], DEFAULT_ORDERS[:2])
    ):
        target = Target(epsilon=1.0, delta=1e-6, num_queries=count)
        few = [target.epsilon_of(event, orders=orders) for event in events]
        assert few == pytest.approx(
            [epsilon_of(event, count=count, delta=1e-6, orders=orders) for event in events],
            rel=1e-12,
        )


def test_a_target_that_no_noise_reaches_is_refused() -> None:
    def failing(scale: float) -> Event:
        return FailureEvent(delta=1e-7, neighboring_relation=REPLACE)

    with pytest.raises(ValueError, match="Expected a target that some noise reaches"):
        calibrate_scale(failing, Target(epsilon=1.0, delta=1e-6, num_queries=100))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_cost_that_ignores_the_scale_ends_in_one_line(epsilon: float) -> None:
    scales: list[float] = []

    def constant(scale: float) -> Event:
        scales.append(scale)
        assert len(scales) < 100
        return PureDPEvent(epsilon=epsilon, neighboring_relation=REPLACE)

    message = "some noise exceeds" if epsilon < 1 else "some noise reaches, with delta = 1e-06"
    with pytest.raises(
        ValueError, match=f"^Expected a target that {message}, got target_epsilon=1.0$"
    ):
        calibrate_scale(constant, Target(epsilon=1.0, delta=1e-6, num_queries=1))
    assert min(scales) < 1e-50 or max(scales) > 1e50
