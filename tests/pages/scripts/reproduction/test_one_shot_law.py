"""Probabilities of noise that is added once, against enumerated laws of sets."""

import numpy as np
import pytest

from pate._core.mechanisms.noise import Noise
from scripts.reproduction.shekelyan import probability_within
from tests.core.mechanisms import oracles

pytestmark = pytest.mark.slow

NOISES: tuple[Noise, ...] = ("gumbel", "exponential", "laplace", "logistic", "half_logistic")
SCORES = np.array([5.0, 4.5, 3.0, 3.0, 1.5, 0.0])
K = 3
BOUNDS = [(3, 3), (1, 4), (1, 6), (0, 4), (2, 5), (0, 6)]


def by_sets(noise: str, scale: float, head: int, tail: int) -> float:
    """Sum the enumerated law over the sets that pass: they are as ranks, for the scores fall."""
    law = oracles.one_shot_set_law(SCORES / scale, K, noise)
    passed = [
        {*range(head)} <= {*members} and max(members) < tail
        for members in oracles.sets(SCORES.size, K)
    ]
    return float(law[passed].sum())


@pytest.mark.parametrize("noise", NOISES)
def test_the_integral_is_the_sum_over_sets(noise: Noise) -> None:
    for scale in (0.3, 2.0):
        for head, tail in BOUNDS:
            found = probability_within(SCORES, k=K, scale=scale, noise=noise, head=head, tail=tail)
            expected = by_sets(noise, scale, head, tail)
            assert abs(found - expected) < 0.005 * min(expected, 1 - expected) + 1e-9, (
                scale,
                head,
                tail,
            )


def test_another_noise_has_another_law() -> None:
    """The negative control: the agreement above is no accident."""
    found = probability_within(SCORES, k=K, scale=2.0, noise="gumbel", head=3, tail=3)
    assert all(
        abs(found - by_sets(noise, 2.0, 3, 3)) > 5e-3 for noise in ("exponential", "logistic")
    )
