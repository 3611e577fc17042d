"""The trade-off of Gaussian mechanisms against its formula in sixty digits, and its inverses."""

import math

import numpy as np
import pytest
from mpmath import mp
from scipy.special import ndtri

from pate._core.accounting.cost import _fall, _mills, gaussian_delta, gaussian_log_delta, largest_mu
from pate.accounting import gaussian_epsilon

# far below and above mu^2 / 2, on both sides of mu = 1 and of epsilon / mu - mu / 2 = -1
PLACES = [
    *((0.0, 1e-12), (0.0, 1.0), (0.0, 9.0), (1.5, 3.0), (1.0, 1.01), (1e-3, 1e-4)),
    *((0.7, 0.3), (20.0, 1.5), (1.2, 0.1), (60.0, 12.0)),
]


def log_delta(epsilon: float, mu: float) -> float:
    with mp.workdps(60):
        near, far = mp.mpf(epsilon) / mu - mp.mpf(mu) / 2, mp.mpf(epsilon) / mu + mp.mpf(mu) / 2
        return float(
            mp.log(mp.erfc(near / mp.sqrt(2)) / 2 - mp.exp(epsilon) * mp.erfc(far / mp.sqrt(2)) / 2)
        )


@pytest.mark.parametrize(("epsilon", "mu"), PLACES)
def test_delta_is_that_of_its_formula(epsilon: float, mu: float) -> None:
    exact = log_delta(epsilon, mu)
    assert gaussian_log_delta(epsilon, mu) == pytest.approx(exact, rel=1e-11, abs=1e-13)
    assert gaussian_delta(epsilon, mu) == pytest.approx(math.exp(exact), rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(epsilon, mu) for epsilon, mu in PLACES if epsilon > mu * (mu / 2 - 2)]
)
def test_epsilon_and_mu_are_its_inverses(epsilon: float, mu: float) -> None:
    """Where delta is nearly 1 it has too few digits to tell one epsilon from another."""
    delta = math.exp(log_delta(epsilon, mu))
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-9, abs=1e-9)
    assert largest_mu(epsilon, delta) == pytest.approx(mu, rel=1e-9)
    # each errs toward more privacy lost
    assert gaussian_log_delta(gaussian_epsilon(delta, mu), mu) <= math.log(delta) + 1e-13
    assert gaussian_log_delta(epsilon, largest_mu(epsilon, delta)) <= math.log(delta) + 1e-13


@pytest.mark.parametrize("mu", [1e5, 1e13, 1.1e13, 1e153, 1e200])
@pytest.mark.parametrize("delta", [1e-300, 0.5])
def test_epsilon_of_next_to_no_noise(delta: float, mu: float) -> None:
    """Of ``exp(epsilon) Phi(-far) = phi(near) m(far)`` a Mills ratio of nearly ``1 / far`` is left."""

    def missing(near: mp.mpf) -> mp.mpf:
        return mp.log((mp.ncdf(-near) - mp.npdf(near) / (near + mu)) / delta)

    with mp.workdps(40):
        near = mp.findroot(missing, -ndtri(delta))
        exact = mp.mpf(mu) ** 2 / 2 + near * mu
    epsilon = gaussian_epsilon(delta, mu)
    assert epsilon >= exact * (1 - 1e-15)
    assert epsilon <= exact * (1 + 1e-11) or (exact > 1e308 and epsilon == math.inf)


def test_mills_ratio_and_its_slope_keep_their_digits() -> None:
    points = np.array([-3.0, -0.4, 0.0, 0.7, 5.0, 11.9, 12.1, 40.0, 1e4])
    with mp.workdps(60):
        exact = [
            mp.sqrt(mp.pi / 2) * mp.exp(mp.mpf(x) ** 2 / 2) * mp.erfc(mp.mpf(x) / mp.sqrt(2))
            for x in points
        ]
        slopes = [
            float(1 - mp.mpf(x) * ratio) for x, ratio in zip(points.tolist(), exact, strict=True)
        ]
    np.testing.assert_allclose(
        [_mills(x) for x in points.tolist()], [float(ratio) for ratio in exact], rtol=1e-13
    )
    np.testing.assert_allclose(_fall(points), slopes, rtol=5e-11)
