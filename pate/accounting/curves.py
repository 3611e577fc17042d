"""Renyi-DP curves: event -> cost.

A cost is ``(rdp, log_survival)``: the curve on a grid of orders and ``log(1 - delta0)``, which together say that the
release is delta0-approximate RDP. Curves add under (adaptive) composition, and so does ``log_survival``.

The primitive curves are pure functions that broadcast: ``orders`` of shape ``[K]`` against parameters of shape
``[..., 1]`` give ``[..., K]``. Where the formula loses digits, the value is raised by a bound on the rounding error,
so that what comes out is never below the true curve.
"""

from functools import lru_cache, singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    PureDPEvent,
    RepeatedEvent,
    StabilityTestEvent,
)

FloatArray = NDArray[np.float64]

DEFAULT_ORDERS: FloatArray = 1 + np.geomspace(1e-2, 1e5, 256)
"""Orders on which curves are evaluated: within 0.05% of the best order for zCDP-like curves of rho from 1e-6 to 1e3."""
DEFAULT_ORDERS.setflags(write=False)

_ROUNDING = 16 * np.finfo(np.float64).eps
# relative error of log(Phi(a) / Phi(b)), which grows with a^2 and is below this for any delta_test above 1e-300
_LOSS_ERROR = 1e-12
# The exact curve of the stability test is a maximum over gaps up to the number of teachers. Beyond this many the
# Gaussian bound, which it never exceeds, stands in for it.
_MAX_GAPS = 50_000


class Cost(NamedTuple):
    """``rdp`` of shape ``[K]`` on a grid of orders, and ``log_survival = log(1 - delta0)``."""

    rdp: FloatArray
    log_survival: float

    @property
    def delta0(self) -> float:
        """Probability mass that the curve leaves out."""
        return float(-np.expm1(self.log_survival))


def gaussian_rdp(orders: ArrayLike, noise_multiplier: ArrayLike) -> FloatArray:
    """Curve ``alpha / (2 noise_multiplier^2)`` of the Gaussian mechanism (Mironov (2017), Proposition 7)."""
    multiplier = np.asarray(noise_multiplier, dtype=np.float64)
    with np.errstate(over="ignore"):
        # dividing twice keeps a multiplier near 1e-160 from underflowing in its square
        return np.asarray(orders, dtype=np.float64) / multiplier / multiplier / 2


def bounded_range_rdp(orders: ArrayLike, eta: ArrayLike) -> FloatArray:
    """Tight curve of an ``eta``-bounded-range mechanism, for adaptive composition.

    The supremum over generalised randomised response with losses in ``{t - eta, t}`` (Dong, Durfee & Rogers (2020)),
    never more than ``eta`` (pure DP) nor ``alpha eta^2 / 8`` (Cesar & Rogers (2021), Lemma 3.2).
    """
    alpha, eta = np.broadcast_arrays(np.asarray(orders, dtype=np.float64), np.asarray(eta, dtype=np.float64))
    with np.errstate(over="ignore"):
        zcdp = np.minimum(alpha * eta**2 / 8, eta)
        # a window too narrow for the logarithms is widened: rounded upwards, the value then exceeds `zcdp`
        wide = np.maximum(eta, 1e-100)
        upper = np.log(-np.expm1(-alpha * wide))
        lower = np.log(-np.expm1(-(alpha - 1) * wide))
        spread = np.log(-np.expm1(-wide))
        tight = np.log1p(-1 / alpha) + upper + wide - lower + (upper - np.log(alpha) - spread) / (alpha - 1)
        scale = 1 + np.abs(lower) + wide + (1 + np.abs(upper) + np.log(alpha) + np.abs(spread)) / (alpha - 1)
    return np.minimum(zcdp, tight + _ROUNDING * scale)


def pure_dp_rdp(orders: ArrayLike, epsilon: ArrayLike) -> FloatArray:
    """Tight curve of a pure ``epsilon``-DP mechanism: that of randomised response (Mironov (2017), Proposition 5).

    Written as ``log(cosh((alpha - 1/2) epsilon) / cosh(epsilon / 2)) / (alpha - 1)``.
    """
    alpha, eps = np.broadcast_arrays(np.asarray(orders, dtype=np.float64), np.asarray(epsilon, dtype=np.float64))
    with np.errstate(over="ignore"):
        wide, narrow, far = (alpha - 0.5) * eps, eps / 2, (alpha - 1) * eps
    # cosh(a) / cosh(b) = 1 + 2 sinh((a + b) / 2) sinh((a - b) / 2) / cosh(b)
    small = np.minimum(wide, 1.0)
    shrink = np.divide(small, wide, out=np.ones_like(wide), where=wide > 0)
    tame = eps * shrink
    near = np.log1p(2 * np.sinh(alpha * tame / 2) * np.sinh((alpha - 1) * tame / 2) / np.cosh(tame / 2))
    far = far + np.log1p(np.exp(-wide) ** 2) - np.log1p(np.exp(-eps)) + _ROUNDING * np.exp(-narrow)
    return np.minimum(np.where(wide <= 1.0, near, far) * (1 + _ROUNDING) / (alpha - 1), eps)


def stability_test_rdp(
    orders: ArrayLike, *, sigma: float, delta_test: float, shift: int, window: int, num_teachers: int
) -> FloatArray:
    """Exact two-outcome curve of a stability test whose released set is the same on both neighbors.

    ``shift`` is what the test subtracts, ``window`` by how many votes the gap moves between neighbors. The maximum runs
    over all gaps ``q`` in ``{shift, shift + 1/2, ...}`` up to ``num_teachers`` and both directions. Returns ``[K]``;
    never more than the Gaussian ``alpha window^2 / (2 sigma^2)``.
    """
    alpha = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    bound = gaussian_rdp(alpha, sigma / window)
    if num_teachers > _MAX_GAPS:
        return bound
    gaps = np.arange(0, max(0, num_teachers - shift) + 0.5, 0.5)
    worst = np.zeros_like(alpha)
    for block in np.array_split(gaps, max(1, gaps.size // 2048)):
        low = block[:, None] / sigma + ndtri(delta_test)
        worst = np.maximum(worst, _shifted_bernoulli_rdp(alpha, low, window / sigma).max(axis=0))
    # where numbers beyond the range of floats left no curve, the Gaussian bound is the answer
    return np.fmin(worst, bound)


def _shifted_bernoulli_rdp(alpha: FloatArray, low: FloatArray, width: float) -> FloatArray:
    """Renyi divergence between Bernoulli(Phi(low)) and Bernoulli(Phi(low + width)), the larger of both directions.

    Rounded upwards; ``[gaps, K]`` for ``low`` of shape ``[gaps, 1]``.
    """
    high = low + width
    with np.errstate(over="ignore", invalid="ignore"):
        yes, no = _log_ndtr_rise(low, width), -_log_ndtr_rise(-high, width)
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
    return np.where(largest < 600, np.log1p(excess), np.logaddexp(*terms) + _ROUNDING) / (alpha - 1)


def _log_ndtr_rise(start: FloatArray, width: float) -> FloatArray:
    """Return ``log(Phi(start + width) / Phi(start))``; the integral of ``phi / Phi`` keeps the digits of a small one."""
    if width > 1:
        return np.asarray(log_ndtr(start + width) - log_ndtr(start), dtype=np.float64)
    nodes, weights = np.polynomial.legendre.leggauss(10)
    at = start[..., None] + width * (nodes + 1) / 2
    return np.asarray(width / np.sqrt(2 * np.pi) * (1 / erfcx(-at / np.sqrt(2))) @ weights, dtype=np.float64)


@lru_cache(maxsize=4096)
def _cached_test_cost(event: StabilityTestEvent, orders: tuple[float, ...]) -> Cost:
    window = event.neighboring_relation.count_window
    rdp = stability_test_rdp(
        np.array(orders),
        sigma=event.sigma,
        delta_test=event.delta_test,
        shift=event.shift,
        window=window,
        num_teachers=event.num_teachers,
    )
    rdp.setflags(write=False)
    # Two neighbors may hold different sets while the gap is at most `window`; the test passes such a gap with
    # probability Phi((window - shift) / sigma - z) at most, which is delta_test under the mechanism's own relation.
    if window > event.shift:
        log_delta0 = float(log_ndtr((window - event.shift) / event.sigma + ndtri(event.delta_test)))
    else:
        log_delta0 = float(np.log(event.delta_test))
    with np.errstate(divide="ignore"):  # a test that any gap passes costs all of delta
        return Cost(rdp, float(np.log1p(-np.exp(log_delta0))))


@singledispatch
def cost(event: Event, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
    """Return the cost of ``event`` on ``orders`` ``[K]``. Raises ``TypeError`` on an event that it does not know."""
    raise TypeError(f"Expected an event with a known curve, got {type(event).__name__}")


@cost.register
def _(event: GaussianEvent, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
    return Cost(gaussian_rdp(orders, event.noise_multiplier), 0.0)


@cost.register
def _(event: BoundedRangeEvent, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
    return Cost(bounded_range_rdp(orders, event.eta), 0.0)


@cost.register
def _(event: PureDPEvent, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
    return Cost(pure_dp_rdp(orders, event.epsilon), 0.0)


@cost.register
def _(event: StabilityTestEvent, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
    return _cached_test_cost(event, tuple(orders.tolist()))


@cost.register
def _(event: RepeatedEvent, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
    once = cost(event.event, orders)
    return Cost(event.count * once.rdp, event.count * once.log_survival)


@cost.register
def _(event: ComposedEvent, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
    costs = [cost(part, orders) for part in event.events]
    return Cost(np.sum([c.rdp for c in costs], axis=0), float(sum(c.log_survival for c in costs)))
