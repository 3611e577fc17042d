"""The Renyi curve of Gaussian noise on a sum over a Poisson sample, for a change of a record.

A step takes each record with probability q, independently, and releases the sum of the
contributions of the taken records, each of norm at most 1, with Gaussian noise of standard
deviation ``s``. Write ``u`` for the contribution of a record and ``v`` for the altered one's, 0 if
it is removed. Given the other taken records, the two laws are

    P = (1 - q) N(0, s^2) + q N(u, s^2)    and    Q = (1 - q) N(0, s^2) + q N(v, s^2)

up to a common shift, and a divergence of mixtures is at most the largest of its parts, by joint
convexity. Among all ``u`` and ``v`` of norm at most 1, in any dimension, ``u = 1`` and ``v = -1``
on a line are the worst for every hockey-stick divergence, and so for every f-divergence:

- Let ``a`` and ``b`` be the likelihood ratios of ``N(u, s^2)`` and ``N(v, s^2)`` to ``N(0, s^2)``.
  The divergence at ``t >= 0`` is ``E phi(a - t b)`` under ``N(0, s^2)``, with ``phi(x) = max(0, (1
  - q) (1 - t) + q x)`` convex.
- A longer ``u``: add a part that is orthogonal to ``u`` and ``v``. It multiplies ``a`` by an
  independent factor of mean 1, and by Jensen's inequality ``E phi`` does not fall. The same holds
  for ``v``. So both have norm 1.
- Then ``log a`` and ``log b`` are normal, with a covariance ``r = u.v / s^2`` and all else fixed.
  The derivative of an expectation by a covariance is the expected mixed second derivative
  (Plackett (1954)), here ``E[phi''(a - t b) a (-t b)] <= 0``. So ``r`` is as small as it can be:
  ``v = -u``.

A pair that dominates each step dominates all steps together, however each depends on earlier ones
(Zhu, Dong & Wang (2022), Theorem 10). The pair is its own mirror image, so that one
direction of the divergence is both.
"""

from __future__ import annotations

import math

import numpy as np

from pate._core.validation import FloatArray

# noise below this is charged as if every record were taken in each step
_LEAST_NOISE = 0.25
# above the loss from adding up, in relation to the logarithm and to the exponents
_RELATIVE, _ABSOLUTE = 1e-9, 1e-11


def sampled_gaussian_rdp(orders: FloatArray, noise_multiplier: float, rate: float) -> FloatArray:
    """Return the curve ``[K]`` of one step for ``orders`` ``[K]`` above 1, rounded up.

    At ``x + i y`` the integrand is at most ``exp(3)`` times its size at ``x``, as long as ``y`` is
    at most ``2 / (w sqrt(order))``, with ``w`` the larger of 1 and ``1 / noise_multiplier``: a
    mixture is at most its size at ``x``, and at least ``cos(y / (2 noise_multiplier))`` times that.
    A width of 0.15 of that height therefore errs by less than ``exp(-35)`` of the integral
    (Trefethen & Weideman (2014), Theorem 5.1).

    Args:
        orders: Renyi orders.
        noise_multiplier: standard deviation of the noise over the largest norm of a contribution.
        rate: the probability with which a record is taken.
    """
    # the same pair without sampling, which no sampling makes worse: two Gaussians at a distance of
    # 2
    unsampled = 2 * orders / noise_multiplier**2
    if rate == 1 or noise_multiplier < _LEAST_NOISE:
        return unsampled
    return np.minimum(
        unsampled, [_one_order(order, 1 / noise_multiplier, rate) for order in orders.tolist()]
    )


def _one_order(order: float, shift: float, rate: float) -> float:
    """Return the divergence at one order, for unit noise and contributions of norm ``shift``."""
    width = 0.3 / (max(1.0, shift) * math.sqrt(order))
    # the integrand is a sum of Gaussian tails around points between -shift and 2 order shift
    points = np.arange(-shift - 12, 2 * order * shift + 12, width)
    stay, go = math.log1p(-rate), math.log(rate) - shift**2 / 2
    log_p = np.logaddexp(stay, go + shift * points)
    log_q = np.logaddexp(stay, go - shift * points)
    exponents = order * log_p + (1 - order) * log_q - points**2 / 2
    top = float(exponents.max())
    total = top + math.log(float(np.exp(exponents - top).sum()) * width / math.sqrt(2 * math.pi))
    return (max(0.0, total) * (1 + _RELATIVE) + _ABSOLUTE) / (order - 1)
