"""The share of right guesses that a guarantee bounds, by the worst adversary."""

import numpy as np
import pytest
from scipy.stats import norm

from pate._core.accounting.cost import format_guess


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


def _percent(text: str) -> float:
    return float(text.rstrip("%")) / 100


def _gaussian_delta(mu: float, epsilon: float) -> float:
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )
