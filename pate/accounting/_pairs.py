"""Pairs of two-outcome laws that cover every release of a kind, for the adaptive optimum.

A pair ``(p, q)`` gives the probability of one outcome on either of two neighbors. The pairs that a
kind of release allows lie below a concave arc. The corners of a polygon around the arc bound all of
them (`pate.accounting._adaptive_optimum`, fact 2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from pate._validation import FloatArray, require, require_count, require_positive

_CORNER_SLACK = 1e-12  # above the relative rounding error of a corner
# Phi(-25) = 3e-138: a pair with a rarer outcome adds less than (1 + gamma) 3e-138 to V(gamma)
_MAX_QUANTILE = 25.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


class Pairs(NamedTuple):
    """Bernoulli laws ``p`` against ``q``, ``[M]``, ``0 < q < p < 1``, played in both directions."""

    p: FloatArray
    q: FloatArray


def bounded_range_pairs(eta: float, *, sides: int = 64) -> Pairs:
    """Return corners around all ``eta``-bounded-range releases.

    A release of largest loss ``t`` is a post-processing of randomized response with losses ``t``
    and ``t - eta``, for which ``p = (e^eta - e^t) / (e^eta - 1)`` and ``q = p e^-t``
    (docs/accounting.md). These points lie on a hyperbola with coordinates ``e^t`` and
    ``e^(eta - t)``. Two of its tangents meet at the harmonic means of the coordinates.
    """
    require_positive(eta=eta)
    require(eta <= 20, "eta <= 20", eta=eta)
    require_count(2, sides=sides)
    sides += sides % 2
    width = eta / sides
    middle = eta * (np.arange(sides // 2, sides) + 0.5) / sides
    # the harmonic mean of e^(t - width / 2) and e^(t + width / 2) is e^t (1 - bend)
    bend = 2 * np.sinh(width / 4) ** 2 / np.cosh(width / 2)
    p = np.exp(middle) * (np.expm1(eta - middle) + bend) / np.expm1(eta)
    q = (np.expm1(eta - middle) - np.exp(eta - middle) * bend) / np.expm1(eta)
    return _moved_outwards(p, q)


def randomized_response_pairs(epsilon: float) -> Pairs:
    """Return randomized response: it covers every ``epsilon``-DP release by post-processing."""
    require(epsilon <= 10, "epsilon <= 10", epsilon=epsilon)
    high = 1 / (1 + np.exp(-epsilon))
    return _moved_outwards(np.array([high]), np.array([high * np.exp(-epsilon)]))


def gaussian_bit_pairs(mu: float, reach: float, *, spacing: float = 0.1) -> Pairs:
    """Return corners around ``Bernoulli(Phi(a))`` against ``Bernoulli(Phi(b))``, ``|a - b| <= mu``.

    ``reach`` bounds ``|a|`` and ``|b|``. These are the released bits of a Gaussian stability test:
    ``mu`` is its window over sigma. The pairs with ``b - a = mu`` lie on the arc ``(Phi(c - mu/2),
    Phi(c + mu/2))``, of slope ``exp(-c mu)``.
    """
    require_positive(mu=mu, reach=reach, spacing=spacing)
    require(mu <= 8, "mu <= 8", mu=mu)
    require(spacing <= 0.5, "spacing <= 0.5", spacing=spacing)
    end = min(reach, _MAX_QUANTILE) + mu
    centers = np.linspace(-end, 0.0, int(np.ceil(end / spacing)) + 1)
    p, q, slope = ndtr(centers + mu / 2), ndtr(centers - mu / 2), np.exp(-mu * centers)
    # two tangents meet at q + (dp - s' dq) / (s - s'); as an integral of positive terms this keeps
    # its digits
    width = float(centers[1] - centers[0])
    at = width * (_NODES + 1) / 2
    density = np.exp(-((centers[:-1, None] + at - mu / 2) ** 2) / 2) / np.sqrt(2 * np.pi)
    run = width / 2 * (density * np.expm1(mu * (width - at)) / np.expm1(mu * width)) @ _WEIGHTS
    corners_q, corners_p = q[:-1] + run, p[:-1] + slope[:-1] * run
    return _moved_outwards(np.append(p[0], corners_p), np.append(q[0], corners_q))


def _moved_outwards(p: FloatArray, q: FloatArray) -> Pairs:
    # up and to the left: the triangle with (0, 0) and (1, 1) then covers the corner
    return Pairs(p * (1 + _CORNER_SLACK), q * (1 - _CORNER_SLACK))
