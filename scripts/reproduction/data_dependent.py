"""The data-dependent cost of noisy votes, and its release by smooth sensitivity.

When teachers agree, a label by noisy votes costs less than its event says: Papernot et al. (2018),
Theorem 6, bounds its curve by the probability that the noise overturns the majority. That bound is
a function of the votes: it is PRIVATE, must not be shown as a guarantee, and may be published only
with noise of its smooth sensitivity, whose cost `release_events` has.

One label is released as ``h + N(0, sigma^2) > T / 2``. The proofs use only that ``h`` moves by at
most one vote and stays in ``0..T``. So they hold under REPLACE_RECORD, and under ADD_REMOVE_TEACHER
too as T is the nominal number of teachers: a teacher that takes no part casts zeros and leaves T
unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from pate._core.accounting.curves import gaussian_rdp
from pate._core.validation import FloatArray, require, require_count, require_positive
from pate.accounting import CurveEvent, NeighboringRelation

_ROUNDING = 16 * np.finfo(np.float64).eps


def smooth_sensitivity_rdp(
    orders: ArrayLike, beta: ArrayLike, noise_multiplier: ArrayLike
) -> FloatArray:
    """Tight curve of Gaussian noise of ``noise_multiplier`` times a ``beta``-smooth sensitivity.

    Between neighbors the value moves by at most the smaller of the two sensitivities; their ratio r
    lies within ``e^-beta..e^beta``. The divergence of the two normal laws (Gil, Alajaji & Linder
    (2013)) is largest at an end of that range, and infinite where ``alpha (1 - e^(-2 beta)) >= 1``.
    """
    alpha, beta = np.asarray(orders, dtype=np.float64), np.asarray(beta, dtype=np.float64)
    shift = gaussian_rdp(alpha, noise_multiplier)
    worst = np.zeros(np.broadcast_shapes(alpha.shape, beta.shape, shift.shape))
    for log_ratio in (-beta, beta):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # variance of the tilted law over that of the first one, less 1; rounded downwards, as
            # the divergence falls with it: where the pole lies within the rounding, it is infinite
            tilted = alpha * np.expm1(2 * log_ratio)
            tilted = tilted - _ROUNDING * np.abs(tilted)
            widened = np.log1p(tilted)
            moved = shift * np.minimum(np.exp(2 * log_ratio), 1) / (1 + tilted)
            lost = _ROUNDING * (alpha * beta + np.abs(widened))
            widths = (alpha * log_ratio - widened / 2 + lost) / (alpha - 1)
            curve = np.where(tilted > -1, (moved + widths) * (1 + _ROUNDING), np.inf)
        worst = np.fmax(worst, np.where(np.isnan(curve), np.inf, curve))
    return worst


@dataclass(frozen=True, kw_only=True)
class SmoothSensitivityEvent(CurveEvent):
    """Gaussian noise of ``noise_multiplier`` times a ``beta``-smooth sensitivity (Papernot et al. (2018), Theorem 23).

    The curve is infinite at orders of ``1 / (2 beta)`` and above. No Gaussian is known to dominate
    it: if the variance differs between neighbors, the likelihood ratio is not a shifted
    Gaussian's.
    """

    beta: float
    noise_multiplier: float

    rdp = staticmethod(smooth_sensitivity_rdp)


def private_rdp_table(order: float, *, sigma: float, num_teachers: int) -> FloatArray:
    """Return the PRIVATE bound at ``order`` on the cost of one label for each possible count: ``[num_teachers + 1]``.

    Never more than ``order / (2 sigma^2)``, the cost of the label for any votes. The theorem bounds
    the divergence of the law on these votes from that on a neighbor. The divergence in the other
    direction is bounded by the theorem at the neighbor, so the larger bound of a count and those
    next to it holds for both.
    """
    require_positive(**{"order - 1": order - 1, "sigma": sigma})
    require_count(1, num_teachers=num_teachers)
    counts = np.arange(num_teachers + 1)
    log_q = np.asarray(log_ndtr(-np.abs(counts - num_teachers / 2) / sigma), dtype=np.float64)
    one_way = np.array([one_way_rdp(order, value, 1 / (2 * sigma**2)) for value in log_q.tolist()])
    return _largest_near(one_way)


def private_rdp(counts: ArrayLike, order: float, *, sigma: float, num_teachers: int) -> float:
    """Return the PRIVATE bound at ``order`` on the cost of all labels of all queries with counts ``[..., C]``."""
    table = private_rdp_table(order, sigma=sigma, num_teachers=num_teachers)
    return float(table[_checked(counts, num_teachers)].sum())


def private_smooth_sensitivity(
    counts: ArrayLike, order: float, *, sigma: float, num_teachers: int, beta: float
) -> float:
    """Return a PRIVATE ``beta``-smooth upper bound on the change of `private_rdp` by one record.

    One record changes one teacher, and so every count by at most one. The local sensitivity is at
    most the sum of the labels' sensitivities; at a distance of d records, it is at most the sum of
    the largest ones within d votes.
    """
    require_positive(beta=beta)
    table = private_rdp_table(order, sigma=sigma, num_teachers=num_teachers)
    often = np.bincount(_checked(counts, num_teachers).ravel(), minlength=num_teachers + 1)
    steps = np.abs(np.diff(table))
    local = np.maximum(np.append(steps, 0), np.append(0, steps))
    smooth = 0.0
    for distance in range(num_teachers + 1):
        smooth = max(smooth, math.exp(-beta * distance) * float(often @ local))
        local = _largest_near(local)
    return smooth


def release_events(
    *, beta: float, noise_multiplier: float
) -> dict[NeighboringRelation, SmoothSensitivityEvent]:
    """Return the cost of publishing `private_rdp` with Gaussian noise of its smooth sensitivity.

    Neighbors under ADD_REMOVE_TEACHER have counts ``h`` and ``h + v`` or ``h - v`` with v in {0,
    1}^C, at the same nominal T. Such a pair is one under REPLACE_RECORD, where v is in {-1, 0,
    1}^C. A guarantee over all of these pairs holds over some of them, so the event is the same
    under both.
    """
    return {
        relation: SmoothSensitivityEvent(
            beta=beta, noise_multiplier=noise_multiplier, neighboring_relation=relation
        )
        for relation in NeighboringRelation
    }


def one_way_rdp(order: float, log_q: float, slope: float) -> float:
    """Bound a divergence at ``order`` of a mechanism that misses its likely outcome with ``q``.

    The mechanism has the curve ``slope * order``. This is Theorem 6 as published, PRIVATE: it bounds
    the divergence from the law on a neighbor of the law on these votes, and not the other
    direction, for which see `private_rdp_table`. The two higher orders of the theorem come from its
    Proposition 10, for a curve of this slope.
    """
    independent = slope * order
    second = math.sqrt(-log_q / slope)
    first = second + 1
    if second <= 1 or first <= order:
        return independent
    cost_first, cost_second = slope * first, slope * second
    # the bound grows with q here, so that an upper bound on q suffices
    ceiling = (second - 1) * cost_second - second * (
        math.log1p(1 / (first - 1)) + math.log1p(1 / (second - 1))
    )
    if log_q > ceiling or log_q + cost_second >= 0:
        return independent
    stays = math.log1p(-math.exp(log_q))
    log_a = stays - math.log(-math.expm1((log_q + cost_second) * (1 - 1 / second)))
    log_b = cost_first - log_q / (first - 1)
    total = float(np.logaddexp(stays + (order - 1) * log_a, log_q + (order - 1) * log_b)) / (
        order - 1
    )
    return min(independent, max(total, 0.0))


def _largest_near(values: FloatArray) -> FloatArray:
    """Return the largest of each value and its two neighbors."""
    nearest: FloatArray = np.maximum(
        values, np.maximum(np.append(values[1:], 0), np.append(0, values[:-1]))
    )
    return nearest


def _checked(counts: ArrayLike, num_teachers: int) -> NDArray[np.integer]:
    values = np.asarray(counts)
    require(values.dtype.kind in "iu", "integer counts", dtype=str(values.dtype))
    inside = values.size == 0 or (values.min() >= 0 and values.max() <= num_teachers)
    require(inside, f"counts in 0..{num_teachers}", counts=values.ravel()[:5].tolist())
    return values
