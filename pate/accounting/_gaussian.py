"""The exact (epsilon, delta) trade-off of composed Gaussian mechanisms.

Gaussian mechanisms with noise multipliers ``s_i`` compose, even adaptively, to one of ``mu =
sqrt(sum 1 / s_i^2)`` (Dong, Roth & Su (2022), Corollary 3.3). Its delta at epsilon is

    Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu)

(Balle & Wang (2018), Theorem 8).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import erfcx, log_ndtr

from pate._validation import FloatArray, require, require_in_open_unit_interval
from pate.accounting._bisection import smallest_where

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """Return ``log(delta)`` at ``epsilon >= 0`` of a Gaussian mechanism of ``mu > 0``."""
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if near < -1:
        # Phi(-near) is above 0.8, so the difference keeps its digits unless it is nearly 1 - 1
        lost = epsilon + float(log_ndtr(-far)) - float(log_ndtr(-near))
        return float(log_ndtr(-near)) + math.log(-math.expm1(lost))
    # exp(epsilon) phi(far) = phi(near), which leaves a difference of Mills ratios m, m' = x m - 1
    if mu > 1:
        mills = _mills(near) - _mills(far)
    else:
        at = near + mu * (_NODES + 1) / 2
        mills = mu / 2 * float(_WEIGHTS @ _fall(at))
    return -(near**2) / 2 - math.log(2 * math.pi) / 2 + math.log(mills)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta at ``epsilon >= 0`` of Gaussian mechanisms composed to ``mu >= 0``."""
    require(epsilon >= 0, "epsilon >= 0", epsilon=epsilon)
    require(mu >= 0, "mu >= 0", mu=mu)
    if mu == 0 or epsilon == math.inf:
        return 0.0
    return 1.0 if mu == math.inf else math.exp(gaussian_log_delta(epsilon, mu))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return epsilon at ``delta`` of Gaussians composed to ``mu >= 0``, to 1e-12, rounded up.

    >>> round(gaussian_epsilon(1e-6, 0.5), 3)
    2.254
    """
    require_in_open_unit_interval(delta=delta)
    require(mu >= 0, "mu >= 0", mu=mu)
    if mu == 0 or mu == math.inf:
        return mu
    log_delta = math.log(delta)
    if gaussian_log_delta(0.0, mu) <= log_delta:
        return 0.0
    # the conversion of zCDP is an upper bound, and never tight (Bun & Steinke (2016), Proposition
    # 1.3)
    above = mu**2 / 2 + mu * math.sqrt(-2 * log_delta)
    return smallest_where(lambda epsilon: gaussian_log_delta(epsilon, mu) <= log_delta, 0.0, above)


@lru_cache(maxsize=256)
def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest ``mu`` of (``epsilon``, ``delta``)-DP Gaussians, rounded down."""
    require_in_open_unit_interval(delta=delta)
    require(epsilon >= 0, "epsilon >= 0", epsilon=epsilon)
    log_delta = math.log(delta)

    def holds(inverse: float) -> bool:
        return gaussian_log_delta(epsilon, 1 / inverse) <= log_delta

    # delta falls with 1 / mu: bisect for the smallest 1 / mu at which it is small enough
    low, high = 1.0, 1.0
    while holds(low):
        low, high = low / 2, low
    while not holds(high):
        low, high = high, high * 2
    return 1 / smallest_where(holds, low, high)


def _mills(x: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def _fall(x: FloatArray) -> FloatArray:
    """Return ``1 - x m(x)``, minus the slope of the Mills ratio; a series for large ``x``."""
    direct = 1 - x * np.sqrt(np.pi / 2) * erfcx(x / np.sqrt(2))
    inverse = 1 / np.maximum(x, 1.0) ** 2
    terms, series = inverse, inverse.copy()
    for n in range(1, 9):
        terms = terms * -(2 * n + 1) * inverse
        series += terms
    return np.asarray(np.where(x > 12, series, direct), dtype=np.float64)
