"""Descent on noised gradients: clipped by unit, noised as paid for, with a public learning rate."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from scipy.special import expit

from pate.accounting import Target, calibrate_scale, epsilon_of
from scripts.rivals.contributions import Contributions
from scripts.rivals.descent import Descent, descend, learning_rate

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
