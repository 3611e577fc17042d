"""The curve of a stability test: the largest Renyi divergence of its released bit between neighbors.

Where a formula loses digits, the value is raised by a bound on the rounding error.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

FloatArray = NDArray[np.float64]

_ROUNDING = 16 * np.finfo(np.float64).eps
# relative error of log(Phi(a) / Phi(b)), which grows with a^2 and is below this for any delta_test above 1e-300
_LOSS_ERROR = 1e-12
# above what is lost where a probability is too small for a float
_UNDERFLOW = 1e-60
# The exact curve is a maximum over gaps up to the number of teachers. Beyond this many the Gaussian bound, which it
# never exceeds, stands in for it.
_MAX_GAPS = 50_000


def stability_test_rdp(
    orders: ArrayLike, *, sigma: float, delta_test: float, shift: int, window: int, num_teachers: int
) -> FloatArray:
    """Exact two-outcome curve of a stability test whose released set is the same on both neighbors.

    ``shift`` is what the test subtracts, ``window`` by how many votes the gap moves between neighbors. The maximum runs
    over all gaps ``q`` in ``{shift, shift + 1/2, ...}`` up to ``num_teachers`` and both directions. Returns ``[K]``;
    never more than the Gaussian ``alpha window^2 / (2 sigma^2)``.
    """
    alpha = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    with np.errstate(over="ignore"):
        bound = alpha * (window / sigma) * (window / sigma) / 2
    if num_teachers > _MAX_GAPS:
        return bound
    gaps = np.arange(0, max(0, num_teachers - shift) + 0.5, 0.5)
    worst = np.zeros_like(alpha)
    for block in np.array_split(gaps, max(1, gaps.size // 2048)):
        low = block[:, None] / sigma + ndtri(delta_test)
        worst = np.maximum(worst, _shifted_bernoulli_rdp(alpha, low, window / sigma).max(axis=0))
    # where numbers beyond the range of floats left no curve, the Gaussian bound is the answer
    result: FloatArray = np.fmin(worst + _UNDERFLOW, bound)
    return result


def _shifted_bernoulli_rdp(alpha: FloatArray, low: FloatArray, width: float) -> FloatArray:
    """Renyi divergence between Bernoulli(Phi(low)) and Bernoulli(Phi(low + width)), the larger of both directions.

    Rounded upwards; ``[gaps, K]`` for ``low`` of shape ``[gaps, 1]``.
    """
    high = low + width
    with np.errstate(over="ignore", invalid="ignore"):
        yes, no = log_ndtr_rise(low, width), -log_ndtr_rise(-high, width)
        # losses log(P / Q) of a pass and of a failure, and the two sides of P and Q
        upward = _two_outcome_rdp(alpha, ((yes, high, low), (no, -high, -low)))
        downward = _two_outcome_rdp(alpha, ((-yes, low, high), (-no, -low, -high)))
    return np.maximum(upward, downward)


def _two_outcome_rdp(alpha: FloatArray, outcomes: tuple[tuple[FloatArray, FloatArray, FloatArray], ...]) -> FloatArray:
    """Renyi divergence of two distributions over ``(log(P / Q), Phi^-1(P), Phi^-1(Q))``, rounded upwards."""
    excess, terms, largest = np.zeros(()), [], np.zeros(())
    for loss, p, q in outcomes:
        # E_Q[r^alpha] - 1 as E_Q[r^alpha - 1 - alpha (r - 1)]: no term is negative, so small ones keep their digits
        curved, linear = np.expm1(alpha * loss), alpha * np.expm1(loss)
        slack = _ROUNDING * (np.abs(curved) + np.abs(linear))
        excess = excess + ndtr(q) * ((curved - linear) * (1 + _LOSS_ERROR * (2 + np.abs(alpha * loss))) + slack)
        terms.append(alpha * loss + log_ndtr(q) - _ROUNDING * alpha * (log_ndtr(p) + log_ndtr(q)))
        largest = np.maximum(largest, np.abs(alpha * loss))
    # beyond the range of exp, in log space
    total = np.where(largest < 600, np.log1p(excess), np.logaddexp(*terms) + _ROUNDING)
    return np.asarray(total / (alpha - 1), dtype=np.float64)


def log_ndtr_rise(start: FloatArray, width: float) -> FloatArray:
    """Return ``log(Phi(start + width) / Phi(start))``."""
    # the integral of phi / Phi keeps the digits of a small rise
    if width > 1:
        return np.asarray(log_ndtr(start + width) - log_ndtr(start), dtype=np.float64)
    nodes, weights = np.polynomial.legendre.leggauss(10)
    at = start[..., None] + width * (nodes + 1) / 2
    return np.asarray(width / np.sqrt(2 * np.pi) * (1 / erfcx(-at / np.sqrt(2))) @ weights, dtype=np.float64)
