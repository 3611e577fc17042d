"""Renyi-DP curves: event -> cost.

A cost is ``(rdp, log_survival, mu_squared)``: the curve on a grid of orders and ``log(1 - delta0)``, which together say
that the release is delta0-approximate RDP, and the square of the smallest known ``mu`` for which what delta0 leaves is
``mu``-GDP (Dong, Roth & Su (2022)). All three add under (adaptive) composition.

The primitive curves are pure functions that broadcast: ``orders`` of shape ``[K]`` against parameters of shape
``[..., 1]`` give ``[..., K]``. Where the formula loses digits, the value is raised by a bound on the rounding error,
so that what comes out is never below the true curve.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_ndtr, ndtri

from pate.accounting._threshold_bit import threshold_bit_rdp
from pate.accounting._two_outcomes import stability_test_rdp
from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    GaussianNoisyMaxEvent,
    GaussianThresholdEvent,
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
    "threshold_bit_rdp",
    "total_cost",
]

FloatArray = NDArray[np.float64]

DEFAULT_ORDERS: FloatArray = np.append(1 + np.geomspace(1e-2, 1e5, 256), 1e9)
"""Orders on which curves are evaluated: within 0.05% of the best order for zCDP-like curves of rho from 1e-6 to 1e3.

The last one stands for pure DP: its conversion adds next to nothing.
"""
DEFAULT_ORDERS.setflags(write=False)

_ROUNDING = 16 * np.finfo(np.float64).eps
_LOOSE = 1e-12  # above the relative error of a normal quantile, twice
_ROWS = 512  # parameters worked on at once, so that the intermediate arrays stay in cache


class Cost(NamedTuple):
    """``rdp`` of shape ``[K]`` on a grid of orders, ``log_survival = log(1 - delta0)``, and ``mu_squared``."""

    rdp: FloatArray
    log_survival: float
    mu_squared: float = math.inf
    """Gaussian differential privacy beside delta0; infinite where no ``mu`` is known."""

    @classmethod
    def nothing(cls, orders: FloatArray) -> Cost:
        """Return what no release costs."""
        return cls(np.zeros(orders.shape), 0.0, 0.0)

    def plus(self, other: Cost) -> Cost:
        """Return the cost of both."""
        return Cost(self.rdp + other.rdp, self.log_survival + other.log_survival, self.mu_squared + other.mu_squared)

    def times(self, count: float) -> Cost:
        """Return the cost of ``count`` releases of this one."""
        if count == 0:
            return Cost(np.zeros(self.rdp.shape), 0.0, 0.0)
        return Cost(self.rdp * count, self.log_survival * count, self.mu_squared * count)

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
            # variance of the tilted law over that of the first one, less 1; rounded downwards, as the divergence falls
            # with it: where the pole lies within the rounding, it is infinite
            tilted = alpha * np.expm1(2 * log_ratio)
            tilted = tilted - _ROUNDING * np.abs(tilted)
            widened = np.log1p(tilted)
            moved = shift * np.minimum(np.exp(2 * log_ratio), 1) / (1 + tilted)
            lost = _ROUNDING * (alpha * beta + np.abs(widened))
            widths = (alpha * log_ratio - widened / 2 + lost) / (alpha - 1)
            curve = np.where(tilted > -1, (moved + widths) * (1 + _ROUNDING), np.inf)
        worst = np.fmax(worst, np.where(np.isnan(curve), np.inf, curve))
    return worst


def gaussian_mu_squared(noise_multiplier: ArrayLike) -> FloatArray:
    """Return ``1 / noise_multiplier^2``: the Gaussian mechanism is ``mu``-GDP (Dong, Roth & Su (2022), Theorem 2.7)."""
    multiplier = np.asarray(noise_multiplier, dtype=np.float64)
    with np.errstate(over="ignore"):
        squared: FloatArray = 1 / multiplier / multiplier
    return squared


def gaussian_noisy_max_mu_squared(noise_multiplier: ArrayLike, num_candidates: ArrayLike) -> FloatArray:
    """Return ``m / (4 s^2)``: all m noisy scores are released, each moved by half the window of width 1."""
    squared: FloatArray = gaussian_mu_squared(noise_multiplier) * np.asarray(num_candidates, dtype=np.float64) / 4
    return squared


def pure_dp_mu_squared(epsilon: ArrayLike) -> FloatArray:
    """Return ``mu^2`` of any pure ``epsilon``-DP mechanism, ``mu = 2 Phi^-1(1 / (1 + e^-epsilon))``.

    Its trade-off function is at least that of randomised response, two chords that meet where ``1 + e^epsilon`` errors
    of either kind are one. ``G_mu`` is convex and passes through the same three points, so that it lies below.
    """
    eps = np.asarray(epsilon, dtype=np.float64)
    mu = -2 * ndtri(expit(-eps))
    # concave in epsilon: the tangent at 0 is above it, and keeps its digits where the quantile is next to 0
    squared: FloatArray = np.where(eps < 1e-3, eps * math.sqrt(math.pi / 2), mu) ** 2 * (1 + _LOOSE)
    return squared


def bounded_range_mu_squared(eta: ArrayLike) -> FloatArray:
    """Return ``mu^2`` of an ``eta``-bounded-range mechanism, ``mu = 2 Phi^-1(1 / (1 + e^(-eta / 2)))``.

    Its worst pairs are generalised randomised response: Bernoulli laws of ``p`` and ``q`` whose logits differ by
    ``eta`` (Dong, Durfee & Rogers (2020)), which ``G_mu`` lies below if ``mu >= Phi^-1(p) - Phi^-1(q)``: the rise of
    ``g(x) = Phi^-1(1 / (1 + e^-x))`` over an interval of length ``eta``. It is largest around 0, as g' falls with
    ``abs(x)``: with ``z = g(x) > 0`` this says ``(2 Phi(z) - 1) phi(z) >= z Phi(z) Phi(-z)``. Both sides agree at 0
    and at infinity, and the slope of their difference, ``2 phi^2 - Phi(z) Phi(-z)``, changes its sign once, because
    ``phi^2 / (Phi(z) Phi(-z))`` falls (the slope of the hazard rate is below 1; Sampford (1953)).
    """
    return pure_dp_mu_squared(np.asarray(eta, dtype=np.float64) / 2)


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
    total = Cost.nothing(orders)
    if len(kinds) > 1 or not weights.all():
        for kind in kinds:
            chosen = np.fromiter((type(event) is kind for event in events), dtype=np.bool_, count=len(events))
            chosen &= weights > 0
            part = [event for event, yes in zip(events, chosen, strict=True) if yes]
            total = total.plus(total_cost(part, weights[chosen], orders))
        return total
    for kind in kinds:
        return _COSTS[kind](events, weights, orders)
    return total


def cost(event: Event, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
    """Return the cost of ``event`` on ``orders`` ``[K]``. Raises ``TypeError`` on an event that it does not know."""
    return total_cost((event,), 1, orders)


def _gaussian_cost(events: Sequence[Any], weights: FloatArray, orders: FloatArray) -> Cost:
    multipliers = _values(events, "noise_multiplier")
    with np.errstate(over="ignore"):
        mu_squared = float(np.sum(weights * gaussian_mu_squared(multipliers)))
        return Cost(gaussian_rdp(orders, 1.0) * mu_squared, 0.0, mu_squared)


def _failure_cost(events: Sequence[Any], weights: FloatArray, orders: FloatArray) -> Cost:
    return Cost(np.zeros(orders.shape), float(weights @ np.log1p(-_values(events, "delta"))), 0.0)


def _renyi_curve_cost(events: Sequence[Any], weights: FloatArray, orders: FloatArray) -> Cost:
    curves = [renyi_curve_rdp(orders, event.orders, event.rdp) for event in events]
    return Cost((weights[:, None] * np.stack(curves)).sum(axis=0), 0.0)


def _stability_cost(events: Sequence[Any], weights: FloatArray, orders: FloatArray) -> Cost:
    often: defaultdict[StabilityTestEvent, float] = defaultdict(float)
    for event, weight in zip(events, weights.tolist(), strict=True):
        often[event] += weight
    total, key = Cost.nothing(orders), orders.tobytes()
    for event, weight in often.items():
        total = total.plus(_stability_cost_once(event, key).times(weight))
    return total


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
    # the released bit says on which side of a threshold a Gaussian lies, whose mean moves by `window`
    mu_squared = float(gaussian_mu_squared(event.sigma / window))
    with np.errstate(divide="ignore"):  # a test that any gap passes costs all of delta
        return Cost(rdp, float(np.log1p(-np.exp(log_delta0))), mu_squared)


def _summed(
    curve: Callable[..., FloatArray], mu_squared: Callable[..., FloatArray], *names: str
) -> Callable[[Sequence[Any], FloatArray, FloatArray], Cost]:
    """Return the cost of a kind of event: sums of ``curve`` and ``mu_squared`` over the parameters ``names``."""

    def cost_of(events: Sequence[Any], weights: FloatArray, orders: FloatArray) -> Cost:
        parameters = np.stack([_values(events, name) for name in names], axis=1)
        distinct, which = np.unique(parameters, axis=0, return_inverse=True)
        repeats = np.bincount(which.reshape(-1), weights)
        rdp = np.zeros(orders.shape)
        for start in range(0, len(distinct), _ROWS):
            rows = slice(start, start + _ROWS)
            columns = (distinct[rows, i : i + 1] for i in range(len(names)))
            rdp += (repeats[rows, None] * curve(orders, *columns)).sum(axis=0)
        return Cost(rdp, 0.0, float(repeats @ mu_squared(*distinct.T)))

    return cost_of


def _no_mu_squared(beta: FloatArray, noise_multiplier: FloatArray) -> FloatArray:
    # a variance that differs between neighbors has a likelihood ratio that no shift of a Gaussian has
    return np.full(beta.shape, np.inf)


_COSTS: dict[type[Event], Callable[[Sequence[Any], FloatArray, FloatArray], Cost]] = {
    GaussianEvent: _gaussian_cost,
    GaussianThresholdEvent: _summed(threshold_bit_rdp, gaussian_mu_squared, "noise_multiplier"),
    BoundedRangeEvent: _summed(bounded_range_rdp, bounded_range_mu_squared, "eta"),
    PureDPEvent: _summed(pure_dp_rdp, pure_dp_mu_squared, "epsilon"),
    GaussianNoisyMaxEvent: _summed(
        gaussian_noisy_max_rdp, gaussian_noisy_max_mu_squared, "noise_multiplier", "num_candidates"
    ),
    SmoothSensitivityEvent: _summed(smooth_sensitivity_rdp, _no_mu_squared, "beta", "noise_multiplier"),
    StabilityTestEvent: _stability_cost,
    FailureEvent: _failure_cost,
    RenyiCurveEvent: _renyi_curve_cost,
}


def _values(events: Sequence[Any], name: str) -> FloatArray:
    return np.array([getattr(event, name) for event in events], dtype=np.float64)
