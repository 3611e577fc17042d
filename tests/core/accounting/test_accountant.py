"""The accountant: what it adds up to, converts to, refuses, and agrees with."""

import math
from typing import Any

import mpmath as mp
import pytest

from pate._core.accounting.accountant import GaussianAccountant, RenyiAccountant
from pate._core.accounting.cost import gaussian_delta
from pate.accounting import (
    Accountant,
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    NeighboringRelation,
    PureDPEvent,
    RDPAccountant,
    RenyiCurveEvent,
    RepeatedEvent,
    StabilityTestEvent,
    gaussian_epsilon,
)
from tests.core.accounting import oracles

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER


def gaussian(noise_multiplier: float, relation: NeighboringRelation = REPLACE) -> Event:
    return GaussianEvent(noise_multiplier=noise_multiplier, neighboring_relation=relation)


def pure(epsilon: float, relation: NeighboringRelation = REPLACE) -> Event:
    return PureDPEvent(epsilon=epsilon, neighboring_relation=relation)


def accountant(
    *charges: tuple[Event, int], relation: NeighboringRelation = REPLACE
) -> RDPAccountant:
    total = RDPAccountant(relation=relation)
    for event, count in charges:
        total.compose(event, count)
    return total


def stable_top_k(
    relation: NeighboringRelation, *, scale_gap: float, sigma: float, delta_test: float
) -> Event:
    window = relation.score_range
    return ComposedEvent(
        events=(
            BoundedRangeEvent(eta=2 * window / scale_gap, neighboring_relation=relation),
            StabilityTestEvent(
                sigma=sigma,
                delta_test=delta_test,
                shift=window,
                num_teachers=800,
                neighboring_relation=relation,
            ),
        )
    )


# figures


@pytest.mark.parametrize(("delta", "counts"), [(1e-6, 100), (1e-12, 3), (0.2, 1)])
def test_conversion_is_the_minimum_over_orders(delta: float, counts: int) -> None:
    total = accountant((gaussian(12.0), counts), (pure(0.05), counts))
    by_hand = oracles.epsilon_of_curve(total.rdp.tolist(), total.orders.tolist(), delta)
    found = total.guarantee(delta=delta, by=[RenyiAccountant()])
    assert found.epsilon == pytest.approx(by_hand, rel=1e-12) and found.order in total.orders


@pytest.mark.parametrize("by", [RenyiAccountant(), GaussianAccountant()])
def test_delta_and_epsilon_are_inverse(by: Accountant) -> None:
    total = accountant((gaussian(20.0), 300))
    for delta in (1e-12, 1e-6, 1e-3):
        epsilon = total.guarantee(delta=delta, by=[by]).epsilon
        assert by.get_delta(total._composed(), epsilon) == pytest.approx(delta, rel=1e-6)


def test_delta_of_an_infinite_or_impossible_epsilon() -> None:
    total = accountant(
        (gaussian(20.0), 300), (FailureEvent(delta=1e-7, neighboring_relation=REPLACE), 2)
    )
    assert total.get_delta(math.inf) == pytest.approx(2e-7)
    assert accountant((gaussian(1e-3), 1)).get_delta(0.0) <= 1
    assert accountant().get_delta(0.0) == 0
    for wrong in (-0.1, math.nan, True, "1", [1.0], 10**400):
        with pytest.raises(ValueError, match="Expected epsilon >= 0, got"):
            total.get_delta(wrong)  # type: ignore[arg-type]


# delta0


def test_delta0_is_never_lost() -> None:
    event = stable_top_k(REPLACE, scale_gap=39, sigma=60, delta_test=1e-9)
    total = accountant((event, 500))
    total.compose(RepeatedEvent(event=event, count=250), 2)
    assert total.delta0 == pytest.approx(1e-6, rel=1e-5)
    assert total.get_epsilon(delta=9.9e-7) == math.inf
    assert total.get_epsilon(delta=total.delta0) == math.inf
    assert total.get_epsilon(delta=1.1e-6) > total.get_epsilon(delta=1e-5)
    assert total.get_delta(50.0) >= total.delta0


def test_delta_left_is_what_the_probabilities_say() -> None:
    # (epsilon, d)-DP but for delta0 is (epsilon, delta0 + (1 - delta0) d)-DP
    plain, failing = accountant((gaussian(5.0), 1)), accountant((gaussian(5.0), 1))
    failing.compose(FailureEvent(delta=1e-3, neighboring_relation=REPLACE))
    d = plain.get_delta(1.0)
    assert failing.get_delta(1.0) == pytest.approx(1e-3 + (1 - 1e-3) * d, rel=1e-12)
    assert failing.get_epsilon(delta=1e-3 + (1 - 1e-3) * d) == pytest.approx(
        plain.get_epsilon(delta=d), rel=1e-9
    )


def test_the_tighter_of_curve_and_gaussian_is_stated() -> None:
    gaussians = accountant(
        (gaussian(25.0), 300), (FailureEvent(delta=1e-9, neighboring_relation=REPLACE), 100)
    )
    found = gaussians.guarantee(delta=1e-6)
    assert (
        found.mu == pytest.approx(math.sqrt(300) / 25, rel=1e-12)
        and found.order is found.rdp is None
    )
    rest = (1e-6 - gaussians.delta0) / (1 - gaussians.delta0)
    assert found.epsilon == gaussian_epsilon(rest, math.sqrt(gaussians.cost.mu_squared))
    assert found.epsilon < gaussians.guarantee(delta=1e-6, by=[RenyiAccountant()]).epsilon
    # a Gaussian that dominates a bounded-range choice costs pi / 2 of its curve: the curve is the
    # tighter one
    ranges = (0.1, *[0.1 + 1e-9] * 9)  # which differ, so that they are no equal rounds
    choices = accountant(
        *((BoundedRangeEvent(eta=eta, neighboring_relation=REPLACE), 1) for eta in ranges)
    )
    found = choices.guarantee(delta=1e-6)
    assert found.mu is None and found.order is not None
    assert found == choices.guarantee(delta=1e-6, by=[RenyiAccountant()])
    assert choices.cost.mu_squared == pytest.approx(10 * 0.1**2 * math.pi / 8, rel=1e-3)
    equal = accountant((BoundedRangeEvent(eta=0.1, neighboring_relation=REPLACE), 10)).guarantee(
        delta=1e-6
    )
    assert equal.rounds == 10 and equal.epsilon < found.epsilon
    # nothing is known of a curve from elsewhere
    mixed = gaussians.compose(
        RenyiCurveEvent(orders=(2.0,), rdp=(1e-9,), neighboring_relation=REPLACE)
    )
    assert (
        mixed.guarantee(delta=1e-6).order == pytest.approx(2.0, abs=0.2)
        and mixed.cost.mu_squared == math.inf
    )


# what is refused


@pytest.mark.parametrize(
    ("events", "counts", "error"),
    [
        (object(), 1, TypeError),
        ([object()], 1, TypeError),
        ([gaussian(1.0), "x"], 1, TypeError),
        (gaussian(1.0, TEACHER), 1, ValueError),
        ([gaussian(1.0), gaussian(1.0, TEACHER)], 1, ValueError),
        (gaussian(1.0), -1, ValueError),
        (gaussian(1.0), 1.5, ValueError),
        (gaussian(1.0), True, ValueError),
        ([gaussian(1.0)] * 2, [1], ValueError),
        ([gaussian(1.0)] * 2, [1, -1], ValueError),
        ([gaussian(1.0)] * 2, [1.0, 2.0], ValueError),
    ],
)
def test_bad_input_raises_and_changes_nothing(
    events: Any, counts: Any, error: type[Exception]
) -> None:
    total = accountant((pure(0.3), 2))
    before = total.rdp, total.delta0, total.events
    with pytest.raises(error, match=r"^Expected [^\n]*$"):
        total.compose(events, counts)
    assert (total.rdp == before[0]).all() and (total.delta0, total.events) == before[1:]


def test_nothing_costs_nothing() -> None:
    total = accountant((gaussian(1.0), 0))
    assert total.events == () and total.get_epsilon(delta=1e-6) == 0 and total.get_delta(0.0) == 0
    assert total.compose([], []).events == ()
    unbounded = accountant((FailureEvent(delta=0.1, neighboring_relation=REPLACE), 1))
    assert unbounded.get_epsilon(delta=0.01) == math.inf


# the exact epsilon of Gaussian mechanisms


@pytest.mark.parametrize("mu", [1e-6, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-100, 1e-9, 0.3])
def test_exact_gaussian_epsilon_to_nine_digits(mu: float, delta: float) -> None:
    with mp.workdps(120):
        true = oracles.gaussian_epsilon(delta, mu)
        found = gaussian_epsilon(delta, mu)
        assert found == 0 == round(float(true), 20) or abs(found / true - 1) < 1e-9
    assert gaussian_delta(found, mu) <= delta * (1 + 1e-9)


def test_exact_epsilon_of_a_composition() -> None:
    total = accountant((gaussian(30.0), 400), (RepeatedEvent(event=gaussian(5.0), count=2), 3))
    mu = math.sqrt(400 / 900 + 6 / 25)
    with mp.workdps(40):
        exact = float(oracles.gaussian_epsilon(1e-6, mu))
    assert total.get_epsilon(delta=1e-6) == pytest.approx(exact)
    by_curve = total.guarantee(delta=1e-6, by=[RenyiAccountant()]).epsilon
    assert exact < by_curve < 1.1 * exact


# peers


@pytest.mark.parametrize(
    ("noise", "count"),
    [
        (10.0, 50),
        pytest.param(1.0, 1, marks=pytest.mark.slow),
        pytest.param(60.0, 600, marks=pytest.mark.slow),
    ],
)
def test_epsilon_is_never_below_the_privacy_loss_distribution(noise: float, count: int) -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    total = accountant((gaussian(noise), count))
    distributions = [
        pld.from_gaussian_mechanism(
            noise / math.sqrt(count),
            value_discretization_interval=1e-4,
            pessimistic_estimate=pessimistic,
        )
        for pessimistic in (True, False)
    ]
    for delta in (1e-8, 1e-5):
        above, below = (each.get_epsilon_for_delta(delta) for each in distributions)
        assert total.guarantee(delta=delta, by=[RenyiAccountant()]).epsilon >= above
        assert below <= total.get_epsilon(delta=delta) <= above
