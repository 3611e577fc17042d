"""The curve of a noised sum over a Poisson sample: the worst pair is the worst, and its integral is
right."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from scipy.integrate import quad

from pate._core.validation import FloatArray
from pate.accounting import DEFAULT_ORDERS, NeighboringRelation, RDPAccountant, RenyiCurveEvent
from scripts.rivals.sampled_curve import sampled_gaussian_rdp

pytestmark = pytest.mark.slow

ORDERS = DEFAULT_ORDERS[::6][DEFAULT_ORDERS[::6] < 1000]


def plane() -> tuple[FloatArray, float]:
    """Points of a square ``[N, 2]`` that holds all of the normal law, and the area of each."""
    line = np.linspace(-8, 9, 426)
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2), (line[1] - line[0]) ** 2


def hockey_sticks(u: FloatArray, v: FloatArray, rate: float, levels: FloatArray) -> FloatArray:
    """Return the divergences at ``levels`` of a step's laws for contributions ``u`` and ``v`` in
    the plane."""
    points, area = plane()
    base = np.exp(-(points**2).sum(axis=1) / 2) / (2 * np.pi) * area
    p, q = (1 - rate + rate * np.exp(points @ w - w @ w / 2) for w in (u, v))
    return np.array([(base * np.maximum(0, p - level * q)).sum() for level in levels])


LEVELS = np.array([0.5, 0.9, 1.0, 1.1, 1.5, 3.0])


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_opposite_contributions_are_the_worst(rate: float) -> None:
    generator, size = np.random.default_rng(0), 1.3
    worst = hockey_sticks(np.array([size, 0.0]), np.array([-size, 0.0]), rate, LEVELS)
    for _ in range(12):
        u, v = (
            size * w / max(1.0, float(np.linalg.norm(w)))
            for w in generator.normal(scale=0.8, size=(2, 2))
        )
        assert (hockey_sticks(u, v, rate, LEVELS) <= worst + 1e-9).all()
    # a removed record is less than an altered one
    removed = hockey_sticks(np.array([size, 0.0]), np.zeros(2), rate, LEVELS)
    assert (removed[1:5] < 0.9 * worst[1:5]).all()


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


def test_no_sampling_is_the_gaussian_of_twice_the_clip() -> None:
    assert sampled_gaussian_rdp(ORDERS, 3.0, 1.0) == pytest.approx(ORDERS * 2**2 / (2 * 3.0**2))
    low = ORDERS[(ORDERS > 1.1) & (ORDERS < 6)]
    assert sampled_gaussian_rdp(low, 3.0, 1 - 1e-9) == pytest.approx(low * 2 / 9, rel=1e-5)


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
