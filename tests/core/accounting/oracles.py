"""Curves, trade-offs and epsilons by their plain definitions in mpmath.

No formula is shared with the package.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import mpmath as mp
import numpy as np
from scipy.special import log_ndtr

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(120)


def renyi(p: Sequence[mp.mpf], q: Sequence[mp.mpf], alpha: float) -> mp.mpf:
    """Renyi divergence of enumerated laws; infinite where q lacks an outcome of p."""
    a = mp.mpf(alpha)
    total = mp.mpf(0)
    for x, y in zip(p, q, strict=True):
        if x == 0:
            continue
        if y == 0:
            return mp.inf
        total += mp.exp(a * mp.log(x) + (1 - a) * mp.log(y))
    return mp.log(total) / (a - 1)


def phi(x: mp.mpf) -> mp.mpf:
    """Distribution function of the standard normal law."""
    return _phi(x, mp.mp.prec)


@lru_cache(maxsize=4096)
def _phi(x: mp.mpf, precision: int) -> mp.mpf:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def quantile(probability: float, near: float) -> mp.mpf:
    """Quantile of the standard normal law, from a first guess, by Newton steps."""
    x = mp.mpf(near)
    for _ in range(20):
        step = (phi(x) - mp.mpf(probability)) * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
        x -= step
        if step * step < mp.eps:  # about the error that is left
            break
    return x


def gaussian(alpha: float, noise_multiplier: float) -> mp.mpf:
    """Divergence of N(0, s^2) from N(1, s^2)."""
    return mp.mpf(alpha) / (2 * mp.mpf(noise_multiplier) ** 2)


def randomised_response(alpha: float, epsilon: float) -> mp.mpf:
    """Divergence of the two laws of randomised response."""
    high = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    return renyi((high, 1 - high), (1 - high, high), alpha)


def bounded_range(alpha: float, eta: float) -> mp.mpf:
    """Largest divergence of two outcomes with log-ratios t and t - eta, over t in 0..eta."""
    eta = mp.mpf(eta)

    def divergence(t: mp.mpf) -> mp.mpf:
        q = (1 - mp.exp(t - eta)) / (mp.exp(t) - mp.exp(t - eta))  # q e^t + (1 - q) e^(t - eta) = 1
        p = q * mp.exp(t)
        return renyi((p, 1 - p), (q, 1 - q), alpha)

    # the golden section to 1e-13: around a maximum, the value is then known to twice as many digits
    golden = (mp.sqrt(5) - 1) / 2
    low, high = mp.mpf(0), eta
    a, b = high - golden * high, golden * high
    at_a, at_b = divergence(a), divergence(b)
    for _ in range(62):
        if at_a < at_b:
            low, a, at_a = a, b, at_b
            b = low + golden * (high - low)
            at_b = divergence(b)
        else:
            high, b, at_b = b, a, at_a
            a = high - golden * (high - low)
            at_a = divergence(a)
    return divergence((low + high) / 2)


def bernoulli_shift(alpha: float, low: mp.mpf, high: mp.mpf) -> mp.mpf:
    """Divergence of Bernoulli(Phi(low)) and Bernoulli(Phi(high)), the larger of both directions."""
    p, q = (phi(low), phi(-low)), (phi(high), phi(-high))
    return max(renyi(p, q, alpha), renyi(q, p, alpha))


def normal_divergence(alpha: float, shift: float, first: float, second: float) -> float:
    """Divergence of N(0, first^2) from N(shift, second^2) as a sum over a fine grid, or
    infinite."""
    precision = alpha / first**2 + (1 - alpha) / second**2
    if precision <= 0:
        return float("inf")
    center, width = (1 - alpha) * shift / second**2 / precision, precision**-0.5
    x, step = np.linspace(center - 40 * width, center + 40 * width, 4001, retstep=True)
    log_p = -(x**2) / (2 * first**2) - np.log(first)
    log_q = -((x - shift) ** 2) / (2 * second**2) - np.log(second)
    total = np.logaddexp.reduce(alpha * log_p + (1 - alpha) * log_q) + np.log(
        step / np.sqrt(2 * np.pi)
    )
    return float(total / (alpha - 1))


def gaussian_epsilon(delta: float, mu: float) -> mp.mpf:
    """Epsilon of a Gaussian mechanism by bisection on its plain trade-off."""
    low, high = mp.mpf(0), mp.mpf(10)
    m = mp.mpf(mu)

    def spends(epsilon: mp.mpf) -> mp.mpf:
        return phi(m / 2 - epsilon / m) - mp.exp(epsilon) * phi(-m / 2 - epsilon / m)

    while spends(high) > delta:
        high *= 2
    while high - low > 1e-11 * high + mp.mpf("1e-30"):
        middle = (low + high) / 2
        low, high = (middle, high) if spends(middle) > delta else (low, middle)
    return high


def epsilon_of_curve(rdp: Sequence[float], orders: Sequence[float], delta: float) -> float:
    """Proposition 12 of Canonne, Kamath & Steinke (2020), one order after another."""
    best = mp.inf
    for value, order in zip(rdp, orders, strict=True):
        a = mp.mpf(float(order))
        best = min(
            best, mp.mpf(float(value)) + mp.log(1 - 1 / a) - (mp.log(delta) + mp.log(a)) / (a - 1)
        )
    return float(max(best, 0))


def noisy_max_law(scores: Sequence[float], sd: float) -> np.ndarray:
    """Law of the largest of scores with normal noise, by Gauss-Hermite quadrature on the winner's
    noise."""
    nodes, weights = _NODES, _WEIGHTS
    x = np.asarray(scores, dtype=float) / sd
    log_wins = np.array(
        [sum(log_ndtr(nodes + x[i] - x[j]) for j in range(len(x)) if j != i) for i in range(len(x))]
    )
    law = np.exp(log_wins) @ weights
    return np.asarray(law / law.sum())


def excess(bounds: np.ndarray, exact_values: list[mp.mpf]) -> np.ndarray:
    """How far each value is above the truth, relative to it."""
    assert not np.isnan(bounds).any() and (bounds >= 0).all()
    pairs = zip(bounds.tolist(), exact_values, strict=True)
    return np.array([float((mp.mpf(bound) - exact) / exact) for bound, exact in pairs])


def exact_epsilon(p: Sequence[float], q: Sequence[float], *, delta: float) -> float:
    """Return the epsilon of two enumerated laws at ``delta``, in both directions."""
    first, second = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    return max(_one_way(first, second, delta), _one_way(second, first, delta))


def _one_way(p: Any, q: Any, delta: float) -> float:
    def close(epsilon: float) -> bool:
        return float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) <= delta * (1 + 1e-12)

    if float(p[q == 0].sum()) > delta:
        return math.inf
    if close(0.0):
        return 0.0
    shared = (q > 0) & (p > 0)
    highest = float(np.max(np.log(p[shared]) - np.log(q[shared])))
    return _smallest(close, highest) if highest < 700 else math.inf


def _smallest(holds: Callable[[float], bool], high: float) -> float:
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
