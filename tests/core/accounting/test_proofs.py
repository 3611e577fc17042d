"""Accountants are ways to prove an epsilon; a total is the smallest one."""

import math

import pytest
from scipy.special import ndtr

from pate._core.accounting.accountant import (
    TIGHTEST,
    EqualRoundsAccountant,
    GaussianAccountant,
    ManyBitsAccountant,
    OrderedAccountant,
    RenyiAccountant,
)
from pate.accounting import (
    Accountant,
    BoundedRangeEvent,
    Composed,
    Event,
    GaussianEvent,
    Guarantee,
    RDPAccountant,
    RenyiCurveEvent,
)
from tests.core.accounting.test_accountant import REPLACE, accountant, gaussian, pure, stable_top_k

CURVE = RenyiCurveEvent(orders=(2.0, 8.0), rdp=(0.1, 0.4), neighboring_relation=REPLACE)
CHOICE = BoundedRangeEvent(eta=0.1, neighboring_relation=REPLACE)
TEST = stable_top_k(REPLACE, scale_gap=39, sigma=60, delta_test=1e-9)

# the kinds of events whose price each accountant does not know
UNKNOWN: list[tuple[Accountant, list[str]]] = [
    (RenyiAccountant(), []),
    (GaussianAccountant(), ["RenyiCurveEvent"]),
    (ManyBitsAccountant(), ["RenyiCurveEvent"]),
    (EqualRoundsAccountant(), ["RenyiCurveEvent", "StabilityTestEvent", "GaussianEvent"]),
    (OrderedAccountant(), ["RenyiCurveEvent"]),
]


@pytest.mark.parametrize(("by", "unknown"), UNKNOWN)
def test_an_accountant_says_which_events_it_supports(by: Accountant, unknown: list[str]) -> None:
    assert by.unsupported([CURVE, CHOICE, TEST, gaussian(9.0), pure(0.1)]) == unknown


@pytest.mark.parametrize(
    ("by", "event"),
    [
        (GaussianAccountant(), CURVE),
        (ManyBitsAccountant(), gaussian(9.0)),
        (EqualRoundsAccountant(), gaussian(9.0)),
        (OrderedAccountant(), CHOICE),
    ],
)
def test_there_is_no_epsilon_without_a_proof(by: Accountant, event: Event) -> None:
    total = accountant((event, 3))
    assert total.guarantee(delta=1e-6, by=[by]) == Guarantee(
        epsilon=math.inf, delta=1e-6, delta0=0.0
    )
    assert total.guarantee(delta=1e-6).epsilon < math.inf


def test_a_total_is_the_smallest_figure_and_tells_its_proof() -> None:
    total = RDPAccountant(relation=REPLACE, in_order=True).compose([gaussian(20.0), CHOICE], [1, 9])
    so_far = [total.guarantee(delta=1e-6, by=TIGHTEST[:n]) for n in range(1, len(TIGHTEST) + 1)]
    epsilons = [each.epsilon for each in so_far]
    assert epsilons == sorted(epsilons, reverse=True) and epsilons[0] > epsilons[-1]
    assert so_far[0].order is not None
    assert so_far[-1] == total.guarantee(delta=1e-6) and so_far[-1].in_order == 10


class Halves(Accountant):
    """An accountant of a user, who is wrong by half."""

    def supports(self, event: Event) -> bool:
        return True

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        epsilon = sum(event.epsilon * n / 2 for event, n in composed.leaves())  # type: ignore[attr-defined]
        return composed.proven(epsilon, delta) if epsilon < below else None


def test_an_accountant_of_a_user_is_asked_too() -> None:
    total = accountant((pure(0.5), 4))
    assert total.guarantee(delta=1e-6, by=[*TIGHTEST, Halves()]).epsilon == 1.0
    assert total.get_epsilon(delta=1e-6) > 1.0
    large = accountant((pure(0.5), 4000))
    assert large.guarantee(delta=1e-6, by=[*TIGHTEST, Halves()]) == large.guarantee(delta=1e-6)
    assert Halves().get_delta(large._composed(), 1.0) == 1.0


@pytest.mark.parametrize("mu", [0.25, 2.0])
def test_a_delta_of_gaussian_noise_is_that_of_its_trade_off(mu: float) -> None:
    """By the formula of Balle & Wang (2018): a larger one would promise too little, a smaller one
    too much."""
    summed = RDPAccountant(relation=REPLACE).compose(
        GaussianEvent(noise_multiplier=1 / mu, neighboring_relation=REPLACE)
    )
    below, above = ndtr([mu / 2 - 0.5 / mu, -mu / 2 - 0.5 / mu])
    assert summed.get_delta(0.5) == pytest.approx(below - math.exp(0.5) * above, rel=1e-6)
