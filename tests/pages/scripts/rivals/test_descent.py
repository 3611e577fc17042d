"""Descent on noised gradients: clipped by unit, noised as paid for, with a public learning rate."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from scipy.integrate import quad
from scipy.special import expit

from pate.accounting import (
    DEFAULT_ORDERS,
    NeighboringRelation,
    RDPAccountant,
    RenyiCurveEvent,
    Target,
    calibrate_scale,
    epsilon_of,
)
from scripts.rivals.contributions import Contributions
from scripts.rivals.descent import Descent, descend, learning_rate
from scripts.rivals.sampled_curve import sampled_gaussian_rdp

pytestmark = pytest.mark.slow

ONE = np.array([0.6, 0.3, 0.1])


def contributions(*sizes: int, seed: int = 0) -> Contributions:
    generator = np.random.default_rng(seed)
    num = sum(sizes)
    features = generator.normal(size=(num, 3)).astype(np.float32)
    features /= np.maximum(1, np.linalg.norm(features, axis=1, keepdims=True))
    labels = (generator.random((num, 2)) < 0.3).astype(np.float32)
    return Contributions(
        features=features, labels=labels, starts=np.cumsum([0, *sizes[:-1]]).astype(np.int64)
    )


def gradients(private: Contributions, clip: float) -> np.ndarray:
    """The clipped gradient of each unit at zero weights, ``[U, F, C]``."""
    found = []
    for start, size in zip(private.starts, private.sizes, strict=True):
        x, y = private.features[start : start + size], private.labels[start : start + size]
        slope = x.T @ (expit(0.0) - y) / size
        found.append(slope * min(1.0, clip * math.sqrt(2) / float(np.linalg.norm(slope))))
    return np.stack(found)


@pytest.mark.parametrize("sizes", [(1,) * 12, (3, 1, 5, 2, 1)])
@pytest.mark.parametrize("clip", [0.1, 10.0])
def test_one_step_follows_the_clipped_gradients(sizes: tuple[int, ...], clip: float) -> None:
    pytest.importorskip("opacus")
    private, settings = contributions(*sizes), Descent(num_steps=1, sampling_rate=1.0, clip=clip)
    found = descend(private, ONE, settings, 1e-9, generator=np.random.default_rng(0))
    rate = learning_rate(
        ONE, settings=settings, num_labels=2, noise_multiplier=1e-9, count=len(sizes)
    )
    expected = -rate * gradients(private, clip).mean(axis=0)
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    other = -rate * gradients(private, 0.2).mean(axis=0)
    assert found != pytest.approx(other, rel=1e-2)


def test_noise_has_the_law_that_is_paid_for() -> None:
    """Features of zeros have no gradient: what moves is noise."""
    pytest.importorskip("opacus")
    private = contributions(*(1,) * 5000)
    silent = Contributions(
        features=0 * private.features, labels=private.labels, starts=private.starts
    )
    settings = Descent(num_steps=1, sampling_rate=0.5, clip=0.25)
    drawn = [
        descend(silent, ONE, settings, 2.0, generator=np.random.default_rng(seed))
        for seed in range(150)
    ]
    rate = learning_rate(ONE, settings=settings, num_labels=2, noise_multiplier=2.0, count=5000)
    # the count is noisy by 40 in 5000
    spread = float(np.std(drawn)) / (rate * 2.0 * 0.25 * math.sqrt(2) / (0.5 * 5000))
    assert spread == pytest.approx(1, abs=5 / math.sqrt(2 * 900))
    assert spread != pytest.approx(1.2, abs=5 / math.sqrt(2 * 900))


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_noise_meets_its_target(epsilon: float) -> None:
    settings = Descent()
    noise = calibrate_scale(
        settings.event, Target(epsilon=epsilon, delta=1e-6, num_queries=1), tolerance=1e-4
    )
    assert 0.99 * epsilon < epsilon_of(settings.event(noise), count=1, delta=1e-6) <= epsilon
    # by another accountant and another method, for the same relation
    step = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(noise))
    parts = [
        dp_accounting.SelfComposedDpEvent(step, 200),
        dp_accounting.GaussianDpEvent(20 * noise),
    ]
    peer = pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    theirs = peer.compose(dp_accounting.ComposedDpEvent(parts)).get_epsilon(1e-6)
    assert 0.85 * epsilon < theirs < 1.02 * epsilon


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
