"""The curve of a noised sum over a Poisson sample: the worst pair is the worst, and its integral is
right."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from scipy.integrate import quad

from pate.accounting import DEFAULT_ORDERS, NeighboringRelation, RDPAccountant, RenyiCurveEvent
from scripts.rivals.sampled_curve import sampled_gaussian_rdp

pytestmark = pytest.mark.slow

ORDERS = DEFAULT_ORDERS[::6][DEFAULT_ORDERS[::6] < 1000]


@pytest.mark.parametrize(
    ("order", "noise", "rate"), [(1.01, 2.0, 0.1), (2.0, 1.0, 0.1), (5.5, 0.8, 0.02), (9, 4, 0.9)]
)
def test_the_integral_is_that_of_the_worst_pair(order: float, noise: float, rate: float) -> None:
    def integrand(x: float) -> float:
        p, q = (1 - rate + rate * np.exp(side * x / noise - 0.5 / noise**2) for side in (1, -1))
        return float(
            np.exp(order * np.log(p) + (1 - order) * np.log(q) - x**2 / 2) / np.sqrt(2 * np.pi)
        )

    far = 2 * order / noise
    plain = np.log(
        quad(integrand, -15, far + 15, points=[0, far / 2, far], limit=500, epsabs=0)[0]
    ) / (order - 1)
    found = float(sampled_gaussian_rdp(np.array([order]), noise, rate)[0])
    assert plain <= found * (1 + 1e-12)
    assert found == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize(
    ("noise", "rate", "steps"),
    [
        (6.4, 0.05, 200),
        *(pytest.param(noise, 0.05, 200, marks=pytest.mark.slow) for noise in (1.0, 24.0)),
    ],
)
def test_a_distribution_of_losses_agrees(noise: float, rate: float, steps: int) -> None:
    """A peer of another method, for the same relation: never above, and close."""
    event = RenyiCurveEvent(
        orders=tuple(ORDERS.tolist()),
        rdp=tuple(sampled_gaussian_rdp(ORDERS, noise, rate).tolist()),
        neighboring_relation=NeighboringRelation.REPLACE_RECORD,
    )
    ours = (
        RDPAccountant(relation=NeighboringRelation.REPLACE_RECORD)
        .compose(event, steps)
        .get_epsilon(delta=1e-6)
    )
    peer = pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    theirs = peer.compose(dp_accounting.SelfComposedDpEvent(step, steps)).get_epsilon(1e-6)
    assert 0.98 * theirs < ours < 1.15 * theirs
