"""Audits: nothing honest is accused, and every planted fault is caught."""

from collections.abc import Hashable

import numpy as np
import pytest

from pate.mechanisms import seeded_generator
from pate.testing import exact_epsilon, sampled_epsilon

# exact


def test_exact_epsilon_of_randomised_response() -> None:
    p = np.exp([1.0, 0.0]) / (1 + np.e)
    assert exact_epsilon(p.tolist(), p[::-1].tolist(), delta=0.0) == pytest.approx(1.0)
    # delta = p - e^epsilon q
    epsilon = exact_epsilon(p.tolist(), p[::-1].tolist(), delta=0.1)
    assert p[0] - np.exp(epsilon) * p[1] == pytest.approx(0.1)
    assert exact_epsilon([0.5, 0.5, 0.0], [0.5, 0.3, 0.2], delta=0.1) == np.inf
    assert exact_epsilon([0.5, 0.5], [0.5, 0.5], delta=0.0) == 0
    with pytest.raises(ValueError, match="Expected two laws of one shape"):
        exact_epsilon([1.0], [0.5, 0.5], delta=0.1)


# by sampling


def response(epsilon: float, n: int, generator: np.random.Generator, bit: int) -> list[Hashable]:
    keep = generator.random(n) < np.exp(epsilon) / (1 + np.exp(epsilon))
    return list(np.where(keep, bit, 1 - bit).tolist())


def test_sampled_bound_is_below_the_truth_and_near_it() -> None:
    found = sampled_epsilon(
        lambda bit, n, generator: response(1.0, n, generator, bit),
        0,
        1,
        delta=0.0,
        draws=40_000,
        generator=seeded_generator(0),
    )
    assert 0.9 < found.epsilon <= 1.0
    same = sampled_epsilon(
        lambda bit, n, generator: response(1.0, n, generator, 0),
        0,
        1,
        delta=0.0,
        draws=40_000,
        generator=seeded_generator(0),
    )
    assert same.epsilon == 0
    with pytest.raises(ValueError, match="Expected an integer draws >= 4"):
        sampled_epsilon(
            lambda bit, n, generator: [], 0, 1, delta=0.0, draws=3, generator=seeded_generator(0)
        )
