"""Renyi-DP curves: event -> cost.

A cost is ``(rdp, log_survival)``: the curve on a grid of orders and ``log(1 - delta0)``, which together say that the
release is delta0-approximate RDP. Curves add under (adaptive) composition, and so does ``log_survival``.

The primitive curves are pure functions that broadcast: ``orders`` of shape ``[K]`` against parameters of shape
``[..., 1]`` give ``[..., K]``. Where the formula loses digits, the value is raised by a bound on the rounding error,
so that what comes out is never below the true curve.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri

from pate.accounting._two_outcomes import stability_test_rdp
from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    GaussianNoisyMaxEvent,
    PureDPEvent,
    RenyiCurveEvent,
    RepeatedEvent,
    SmoothSensitivityEvent,
    StabilityTestEvent,
    leaves,
)

__all__ = [
    "DEFAULT_ORDERS",
    "Cost",
    "bounded_range_rdp",
    "cost",
    "gaussian_noisy_max_rdp",
    "gaussian_rdp",
    "pure_dp_rdp",
    "renyi_curve_rdp",
    "smooth_sensitivity_rdp",
    "stability_test_rdp",
    "total_cost",
]

FloatArray = NDArray[np.float64]

DEFAULT_ORDERS: FloatArray = np.append(1 + np.geomspace(1e-2, 1e5, 256), 1e9)
"""Orders on which curves are evaluated: within 0.05% of the best order for zCDP-like curves of rho from 1e-6 to 1e3.

The last one stands for pure DP: its conversion adds next to nothing.
"""
DEFAULT_ORDERS.setflags(write=False)

_ROUNDING = 16 * np.finfo(np.float64).eps
_ROWS = 512  # parameters worked on at once, so that the intermediate arrays stay in cache


class Cost(NamedTuple):
    """``rdp`` of shape ``[K]`` on a grid of orders, and ``log_survival = log(1 - delta0)``."""

    rdp: FloatArray
    log_survival: float

    @property
    def delta0(self) -> float:
        """Probability mass that the curve leaves out."""
        return float(0.0 - np.expm1(self.log_survival))


def gaussian_rdp(orders: ArrayLike, noise_multiplier: ArrayLike) -> FloatArray:
    """Curve ``alpha / (2 noise_multiplier^2)`` of the Gaussian mechanism (Mironov (2017), Proposition 7)."""
    multiplier = np.asarray(noise_multiplier, dtype=np.float64)
    with np.errstate(over="ignore"):
        # dividing twice keeps a multiplier near 1e-160 from underflowing in its square
        curve: FloatArray = np.asarray(orders, dtype=np.float64) / multiplier / multiplier / 2
    return curve


def gaussian_noisy_max_rdp(orders: ArrayLike, noise_multiplier: ArrayLike, num_candidates: ArrayLike) -> FloatArray:
    """Curve of the largest of m scores with Gaussian noise (Zhu & Wang (2022), Corollary 9).

    ``min(alpha / (2 s^2) + log(m) / (alpha - 1), m alpha / (8 s^2))`` for a standard deviation of ``s`` times the
    window of the scores. The first bounds each outcome by a move of its own score through the window, and adds up over
    the m outcomes. The second releases all noisy scores, each moved by half the window.
    """
    alpha, m = np.asarray(orders, dtype=np.float64), np.asarray(num_candidates, dtype=np.float64)
    vector = gaussian_rdp(alpha, noise_multiplier)
    curve: FloatArray = np.minimum(vector + np.log(m) / (alpha - 1), vector * (m / 4))
    return curve


def bounded_range_rdp(orders: ArrayLike, eta: ArrayLike) -> FloatArray:
    """Tight curve of an ``eta``-bounded-range mechanism, for adaptive composition.

    The supremum over generalised randomised response with losses in ``{t - eta, t}`` (Dong, Durfee & Rogers (2020)),
    never more than ``eta`` (pure DP) nor ``alpha eta^2 / 8`` (Cesar & Rogers (2021), Lemma 3.2).
    """
    alpha, eta = np.asarray(orders, dtype=np.float64), np.asarray(eta, dtype=np.float64)
    with np.errstate(over="ignore"):
        zcdp = np.minimum(alpha * eta**2 / 8, eta)
        # a window too narrow for the logarithms is widened: rounded upwards, the value then exceeds `zcdp`
        wide = np.maximum(eta, 1e-100)
        upper = np.log(-np.expm1(-alpha * wide))
        lower = np.log(-np.expm1(-(alpha - 1) * wide))
        spread = np.log(-np.expm1(-wide))
        log_alpha, over = np.log(alpha), 1 / (alpha - 1)
        tight = np.log1p(-1 / alpha) + upper + wide - lower + (upper - log_alpha - spread) * over
        scale = 1 - lower + wide + (1 - upper + log_alpha + np.abs(spread)) * over
    curve: FloatArray = np.minimum(zcdp, tight + _ROUNDING * scale)
    return curve


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
    curve: FloatArray = np.minimum(np.where(wide <= 1.0, near, far) * (1 + _ROUNDING) / (alpha - 1), eps)
    return curve


def smooth_sensitivity_rdp(orders: ArrayLike, beta: ArrayLike, noise_multiplier: ArrayLike) -> FloatArray:
    """Tight curve of Gaussian noise of ``noise_multiplier`` times a ``beta``-smooth sensitivity.

    Between neighbors the value moves by at most the smaller of the two sensitivities, whose ratio r lies within
    ``e^-beta..e^beta``. The divergence of the two normal laws (Gil, Alajaji & Linder (2013)) is largest at an end of
    that range, and infinite where ``alpha (1 - e^(-2 beta)) >= 1``.
    """
    alpha, beta = np.asarray(orders, dtype=np.float64), np.asarray(beta, dtype=np.float64)
    shift = gaussian_rdp(alpha, noise_multiplier)
    worst = np.zeros(np.broadcast_shapes(alpha.shape, beta.shape, shift.shape))
    for log_ratio in (-beta, beta):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # variance of the tilted law over that of the first one
            tilted = alpha * np.expm1(2 * log_ratio)
            moved = shift * np.minimum(np.exp(2 * log_ratio), 1) / (1 + tilted)
            widths = (alpha * log_ratio - np.log1p(tilted) / 2 + _ROUNDING * alpha * beta) / (alpha - 1)
            curve = np.where(tilted > -1, (moved + widths) * (1 + _ROUNDING), np.inf)
        worst = np.fmax(worst, np.where(np.isnan(curve), np.inf, curve))
    return worst


def renyi_curve_rdp(orders: ArrayLike, known_orders: ArrayLike, known_rdp: ArrayLike) -> FloatArray:
    """Bound at ``orders`` ``[K]`` on a curve known at ascending ``known_orders``; infinite beyond the last of them."""
    alpha, known, values = (np.asarray(each, dtype=np.float64) for each in (orders, known_orders, known_rdp))
    chord = np.interp(alpha, known, (known - 1) * values) / (alpha - 1)
    curve: FloatArray = np.where(alpha <= known[0], values[0], np.where(alpha > known[-1], np.inf, chord))
    return curve


def total_cost(events: Sequence[Event], counts: ArrayLike = 1, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
    """Return the cost on ``orders`` ``[K]`` of ``events``, each as often as ``counts`` (one for all, or ``[N]``) says.

    Events of one kind are worked on together. Raises ``TypeError`` on an event without a known curve.
    """
    kinds = set(map(type, events))
    unknown = sorted(kind.__name__ for kind in kinds - {*_COSTS, RepeatedEvent, ComposedEvent})
    if unknown:
        raise TypeError(f"Expected events with a known curve, got {', '.join(unknown)}")
    weights = np.broadcast_to(np.asarray(counts, dtype=np.float64), (len(events),))
    if kinds & {RepeatedEvent, ComposedEvent}:
        flat = [leaf for event, count in zip(events, weights.tolist(), strict=True) for leaf in leaves(event, count)]
        return total_cost([event for event, _ in flat], [count for _, count in flat], orders)
    rdp, log_survival = np.zeros(orders.shape), 0.0
    if len(kinds) > 1 or not weights.all():
        for kind in kinds:
            chosen = np.fromiter((type(event) is kind for event in events), dtype=np.bool_, count=len(events))
            chosen &= weights > 0
            part = total_cost(
                [event for event, yes in zip(events, chosen, strict=True) if yes], weights[chosen], orders
            )
            rdp, log_survival = rdp + part.rdp, log_survival + part.log_survival
        return Cost(rdp, log_survival)
    for kind in kinds:
        return _COSTS[kind](events, weights, orders)
    return Cost(rdp, log_survival)


def cost(event: Event, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
    """Return the cost of ``event`` on ``orders`` ``[K]``. Raises ``TypeError`` on an event that it does not know."""
    return total_cost((event,), 1, orders)


def _gaussian_cost(events: Sequence[Any], weights: FloatArray, orders: FloatArray) -> Cost:
    multipliers = _values(events, "noise_multiplier")
    with np.errstate(over="ignore"):
        return Cost(gaussian_rdp(orders, 1.0) * float(np.sum(weights / multipliers / multipliers)), 0.0)


def _failure_cost(events: Sequence[Any], weights: FloatArray, orders: FloatArray) -> Cost:
    return Cost(np.zeros(orders.shape), float(weights @ np.log1p(-_values(events, "delta"))))


def _renyi_curve_cost(events: Sequence[Any], weights: FloatArray, orders: FloatArray) -> Cost:
    curves = [renyi_curve_rdp(orders, event.orders, event.rdp) for event in events]
    return Cost((weights[:, None] * np.stack(curves)).sum(axis=0), 0.0)


def _stability_cost(events: Sequence[Any], weights: FloatArray, orders: FloatArray) -> Cost:
    often: defaultdict[StabilityTestEvent, float] = defaultdict(float)
    for event, weight in zip(events, weights.tolist(), strict=True):
        often[event] += weight
    rdp, log_survival, key = np.zeros(orders.shape), 0.0, orders.tobytes()
    for event, weight in often.items():
        once = _stability_cost_once(event, key)
        rdp, log_survival = rdp + weight * once.rdp, log_survival + weight * once.log_survival
    return Cost(rdp, log_survival)


@lru_cache(maxsize=4096)
def _stability_cost_once(event: StabilityTestEvent, orders: bytes) -> Cost:
    window = event.gap_window
    rdp = stability_test_rdp(
        np.frombuffer(orders),
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


def _summed(curve: Callable[..., FloatArray], *names: str) -> Callable[[Sequence[Any], FloatArray, FloatArray], Cost]:
    """Return the cost of a kind of event: the sum of ``curve`` over the parameters ``names`` of the events."""

    def cost_of(events: Sequence[Any], weights: FloatArray, orders: FloatArray) -> Cost:
        parameters = np.stack([_values(events, name) for name in names], axis=1)
        distinct, which = np.unique(parameters, axis=0, return_inverse=True)
        repeats = np.bincount(which.reshape(-1), weights)
        rdp = np.zeros(orders.shape)
        for start in range(0, len(distinct), _ROWS):
            rows = slice(start, start + _ROWS)
            columns = (distinct[rows, i : i + 1] for i in range(len(names)))
            rdp += (repeats[rows, None] * curve(orders, *columns)).sum(axis=0)
        return Cost(rdp, 0.0)

    return cost_of


_COSTS: dict[type[Event], Callable[[Sequence[Any], FloatArray, FloatArray], Cost]] = {
    GaussianEvent: _gaussian_cost,
    BoundedRangeEvent: _summed(bounded_range_rdp, "eta"),
    PureDPEvent: _summed(pure_dp_rdp, "epsilon"),
    GaussianNoisyMaxEvent: _summed(gaussian_noisy_max_rdp, "noise_multiplier", "num_candidates"),
    SmoothSensitivityEvent: _summed(smooth_sensitivity_rdp, "beta", "noise_multiplier"),
    StabilityTestEvent: _stability_cost,
    FailureEvent: _failure_cost,
    RenyiCurveEvent: _renyi_curve_cost,
}


def _values(events: Sequence[Any], name: str) -> FloatArray:
    return np.array([getattr(event, name) for event in events], dtype=np.float64)
