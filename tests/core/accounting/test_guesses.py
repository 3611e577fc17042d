"""The share of right guesses that a guarantee bounds, by the worst adversary."""

import numpy as np
import pytest
from scipy.stats import norm

from pate._core.accounting.cost import format_guess, gaussian_delta


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 0.0), (0.3, 1e-6), (1.5, 0.1), (4.0, 0.0), (30.0, 0.2)]
)
def test_nobody_guesses_better(epsilon: float, delta: float) -> None:
    """The worst mechanism of a guarantee, by all of its tests, and a Gaussian one, which is no
    worse."""
    stated = _percent(format_guess({"epsilon": epsilon, "delta": delta}))
    share = (1 - delta) / (1 + np.exp(epsilon))
    # says which, leans to it, leans away, never
    first = np.array([delta, np.exp(epsilon) * share, share, 0.0])
    best = max(
        (first[list(rows)].sum() + 1 - first[::-1][list(rows)].sum()) / 2
        for rows in [(0,), (0, 1), (0, 1, 2)]
    )
    assert best <= stated + 1e-12
    assert stated - best <= 0.00101  # of the rounding
    if delta:
        mu = next(mu for mu in np.arange(9, 0, -0.01) if _gaussian_delta(mu, epsilon) <= delta)
        assert norm.cdf(mu / 2) <= stated


@pytest.mark.parametrize("mu", [0.1, 0.448, 2.0])
def test_nobody_guesses_better_of_noisy_sums(mu: float) -> None:
    """Whoever says which of two normal laws by the point half-way is right as often as is stated,
    and no more."""
    stated = _percent(
        format_guess({"epsilon": 9.0, "delta": 0.001}, gaussian_delta(0.0, mu) + 0.001)
    )
    draws = np.random.default_rng(0).normal([[0.0], [mu]], size=(2, 100_000))
    right = ((draws[0] < mu / 2).mean() + (draws[1] > mu / 2).mean()) / 2
    error = 0.5 / np.sqrt(draws.size)
    assert right <= stated + 4 * error and stated - right <= 0.0005 + 0.001 + 4 * error
    assert stated < _percent(format_guess({"epsilon": 9.0, "delta": 0.0}))


def _percent(text: str) -> float:
    return float(text.rstrip("%")) / 100


def _gaussian_delta(mu: float, epsilon: float) -> float:
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )
