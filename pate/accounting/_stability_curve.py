"""The curve of a stability test: the largest Renyi divergence of its bit between neighbors.

Where a formula loses digits, the value is raised by a bound on the rounding error.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from pate._validation import FloatArray, IntArray
from pate.accounting._curves import ROUNDING

LOSS_ERROR = 1e-12
"""Above the relative error of ``log(Phi(a) / Phi(b))``, for any delta_test above 1e-300."""
UNDERFLOW = 1e-60
"""Above the loss where a probability is too small for a float."""
_MAX_GAPS = 2**52  # beyond, floats cannot tell one gap from the next: the Gaussian bound is used
_PARTS = 8  # of a block of gaps that is split
# of an integral over a rise of width 1 at most
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_MAX_BLOCKS = 400_000  # beyond, bounds on blocks replace their gaps: a larger value, less memory


def stability_test_rdp(
    orders: ArrayLike,
    *,
    sigma: float,
    delta_test: float,
    shift: int,
    window: int,
    num_teachers: int,
) -> FloatArray:
    """Exact two-outcome curve of a stability test that releases the same set on both neighbors.

    The test subtracts ``shift``; between neighbors the gap moves by ``window`` votes. The maximum
    runs over all gaps ``q`` in ``{shift, shift + 1/2, ...}`` up to ``num_teachers`` and
    both directions. Returns ``[K]``; never more than the Gaussian ``alpha window^2 / (2 sigma^2)``.

    A block of gaps is skipped if a bound on all of them lies below a gap already evaluated. With
    ``x`` the ``Phi^-1`` of the probability that a gap passes, Q and P the laws at ``x`` and ``x +
    w`` (or the other way round), and ``l`` the losses ``log(P / Q)``, the divergence at order a is
    ``log(1 + E_Q[g(l)]) / (a - 1)`` with ``g(l) = e^(a l) - 1 - a (e^l - 1) >= 0``, which grows
    with ``abs(l)``. As x rises, the loss of a pass falls and the loss of a failure grows in
    absolute value, because the hazard rate of a normal law rises (Sampford (1953)); ``Phi(x)``
    rises and ``Phi(-x)`` falls. So each of the four is largest at one end of a block.
    """
    alpha = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    with np.errstate(over="ignore"):
        bound = alpha * (window / sigma) * (window / sigma) / 2
    last = max(0, 2 * (num_teachers - shift))  # gaps are counted in half votes beyond the shift

    if last > _MAX_GAPS:
        return bound

    def divergence(order_index: IntArray, starts: IntArray, ends: IntArray) -> FloatArray:
        largest = _largest_rdp(
            alpha[order_index],
            starts,
            ends,
            float(ndtri(delta_test)),
            1 / (2 * sigma),
            window / sigma,
        )
        # beyond the range of floats: the Gaussian bound is used
        return np.where(np.isnan(largest), np.inf, largest)

    # ends of blocks, and the order that each is there for
    start = np.zeros(alpha.size, dtype=np.int64)
    end, order_index = np.full_like(start, last), np.arange(alpha.size)
    worst = np.maximum(divergence(order_index, start, start), divergence(order_index, end, end))
    while start.size:
        cuts = start[:, None] + (end - start)[:, None] * np.arange(_PARTS + 1) // _PARTS
        order_of = np.broadcast_to(order_index[:, None], cuts.shape)
        inner = cuts[:, 1:-1]
        np.maximum.at(worst, order_of[:, 1:-1], divergence(order_of[:, 1:-1], inner, inner))
        start, end, order_index = cuts[:, :-1].ravel(), cuts[:, 1:].ravel(), order_of[:, 1:].ravel()
        inside = end - start > 1
        start, end, order_index = start[inside], end[inside], order_index[inside]
        highest = divergence(order_index, start, end)
        # nothing above the Gaussian bound counts
        undecided = (highest > worst[order_index]) & (worst[order_index] < bound[order_index])
        start, end, order_index, highest = (
            start[undecided],
            end[undecided],
            order_index[undecided],
            highest[undecided],
        )
        if start.size > _MAX_BLOCKS:
            np.maximum.at(worst, order_index, highest)
            break
    return np.minimum(worst + UNDERFLOW, bound)


def _largest_rdp(
    alpha: FloatArray, left: IntArray, right: IntArray, start: float, step: float, width: float
) -> FloatArray:
    """Bound the divergence of Bernoulli(Phi(x)) and Bernoulli(Phi(x + width)) in both directions.

    Rounded upwards, for each of ``alpha`` over all ``x`` from ``start + step left`` to ``start +
    step right``; exact where they are equal. All shapes are the same.
    """
    gaps, index = np.unique(np.stack([left, right]), return_inverse=True)
    first, last = index.reshape((2, *left.shape))
    low: FloatArray = np.asarray(start + step * gaps, dtype=np.float64)
    high = low + width
    with np.errstate(over="ignore", invalid="ignore"):
        # both losses log(Phi(high) / Phi(low)) are positive; with x the loss of a pass falls and
        # the loss of a failure rises
        passes, fails = log_ndtr_rise(low, width), log_ndtr_rise(-high, width)
        upward = _two_outcome_rdp(
            alpha,
            _Outcome(passes[first], passes[first], high[first], low[first], low[last]),
            _Outcome(-fails[last], -fails[first], -high[first], -low[first], -low[first]),
        )
        downward = _two_outcome_rdp(
            alpha,
            _Outcome(-passes[first], -passes[last], low[last], high[last], high[last]),
            _Outcome(fails[last], fails[last], -low[last], -high[last], -high[first]),
        )
    return np.maximum(upward, downward)


class _Outcome(NamedTuple):
    """Bounds on one outcome of two laws P and Q, for a block of pairs of laws."""

    loss: FloatArray
    """``log(P / Q)`` where its absolute value is largest."""
    top: FloatArray
    """``log(P / Q)`` where it is largest."""
    p: FloatArray
    """``Phi^-1(P)`` there."""
    q: FloatArray
    """``Phi^-1(Q)`` there."""
    most: FloatArray
    """The largest ``Phi^-1(Q)``."""


def _two_outcome_rdp(alpha: FloatArray, *outcomes: _Outcome) -> FloatArray:
    """Return the largest Renyi divergence of P from Q, rounded upwards."""
    excess, largest = np.zeros(()), np.zeros(())
    for loss, _, _, _, most in outcomes:
        # E_Q[r^alpha] - 1 as E_Q[r^alpha - 1 - alpha (r - 1)]: no term is negative, so small ones
        # keep their digits
        curved, linear = np.expm1(alpha * loss), alpha * np.expm1(loss)
        slack = ROUNDING * (np.abs(curved) + np.abs(linear))
        excess = excess + ndtr(most) * (
            (curved - linear) * (1 + LOSS_ERROR * (2 + np.abs(alpha * loss))) + slack
        )
        largest = np.maximum(largest, np.abs(alpha * loss))
    total: FloatArray = np.asarray(np.log1p(excess), dtype=np.float64)
    # beyond the range of exp, in log space
    far = ~(largest < 600)
    terms = [
        alpha[far] * top[far]
        + log_ndtr(most[far])
        - ROUNDING * alpha[far] * (log_ndtr(p[far]) + log_ndtr(q[far]))
        for _, top, p, q, most in outcomes
    ]
    total[far] = np.logaddexp(*terms) + ROUNDING
    return total / (alpha - 1)


def log_ndtr_rise(start: FloatArray, width: float) -> FloatArray:
    """Return ``log(Phi(start + width) / Phi(start))``."""
    # the integral of phi / Phi keeps the digits of a small rise
    if width > 1:
        return np.asarray(log_ndtr(start + width) - log_ndtr(start), dtype=np.float64)
    at = start[..., None] + width * (_NODES + 1) / 2
    return np.asarray(
        width / np.sqrt(2 * np.pi) * (1 / erfcx(-at / np.sqrt(2))) @ _WEIGHTS, dtype=np.float64
    )
