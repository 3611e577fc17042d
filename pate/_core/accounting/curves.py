"""The laws of single releases, as pure functions: Renyi curves, Gaussian mechanisms, pairs of laws.

**Curves** broadcast: ``orders`` of shape ``[K]`` against parameters of shape ``[..., 1]`` give
``[..., K]``. Where a formula loses digits, the value is raised by a bound on the rounding error, so
that it is never below the true curve.

**Noisy bits** tell the outcome of a stability test or of a threshold. With ``w`` the sensitivity
over the standard deviation, the bit is 1 with probability ``Phi(a)`` on one side and ``Phi(a')`` on
the other, ``a`` any real number and ``|a - a'| <= w``. For a fixed ``a`` the divergence grows as
``a'`` moves away from it, and swapping 0 and 1 turns the move from ``a`` to ``a - w`` into the move
from ``-a`` to ``-a + w``. So the curve is the supremum over ``a`` of ``log(1 + E(a)) / (alpha -
1)``, the divergence of ``Phi(a + w)`` from ``Phi(a)``, where

    E(a) = Phi(a) psi(r) + Phi(-a) psi(s),    psi(t) = t^alpha - 1 - alpha (t - 1) >= 0,
    r = Phi(a + w) / Phi(a) >= 1,    s = Phi(-a - w) / Phi(-a) <= 1.

It is found by branch and bound: cells of the line are split until no bound on a cell exceeds the
best value found by more than a tolerance, which is added to the result. Two bounds hold on a cell
``[x, y]``; the second is the better one on narrow cells:

1. ``E <= Phi(y) psi(r(x)) + Phi(-x) psi(s(y))``. The inverse Mills ratio ``m = phi / Phi``
   decreases, so ``r`` and ``s`` decrease in ``a``, and psi grows away from 1.
2. ``E <= E(c) + (y - x) / 2 max |E'|``, ``c`` the middle. ``E'`` is the difference of

       phi(a) psi(r) + alpha Phi(-a - w) (1 - s^(alpha - 1)) (m(-a - w) - m(-a))    and
       phi(a) psi(s) + alpha Phi(a + w) (r^(alpha - 1) - 1) (m(a) - m(a + w)),

   in which every factor but phi is monotone, the last ones because m is convex (Sampford (1953)):
   its values at ``x`` and ``y`` enclose it.

Beyond the cells ``E`` is less than 1e-60 as long as ``alpha w <= 30``. To the left of ``-alpha w``,
``log(Phi(a) r^alpha)`` has the slope ``m(a) - alpha (m(a) - m(a + w)) >= -a - alpha w``, as ``-1 <
m' < 0``, so that 38 further on it has fallen by 722, from no more than 450; and ``psi(s)``
increases in ``a``. To the right of 38, ``E <= psi(r(38)) + (alpha - 1) Phi(-38)``. For larger
``alpha w`` the result is the curve ``alpha w^2 / 2`` of the Gaussian mechanism: the bit is a
function of its output. That is less than 2% too much for ``alpha >= 2``.

All losses but roundings, with the 1e-60 beyond the cells, are far less than the rest of the
tolerance.

**Pairs** ``(p, q)`` of laws give the probability of one outcome on either of two neighbors. The
pairs that a kind of release allows lie below a concave arc. The corners of a polygon around the arc
bound all of them (`pate._core.accounting.adaptive`, fact 2).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, expit, log_ndtr, ndtr, ndtri

from pate._core.validation import FloatArray, IntArray, read_only, require

ROUNDING = 16 * np.finfo(np.float64).eps
"""Above the relative error of a dozen operations."""
_LOOSE = 1e-12  # above the relative error of a normal quantile, twice


@np.errstate(over="ignore")
def gaussian_rdp(orders: ArrayLike, noise_multiplier: ArrayLike) -> FloatArray:
    """Curve ``alpha / (2 noise_multiplier^2)`` of Gaussian noise (Mironov (2017), Prop. 7)."""
    multiplier = np.asarray(noise_multiplier, dtype=np.float64)
    # dividing twice keeps a multiplier near 1e-160 from underflowing in its square
    return np.asarray(orders, dtype=np.float64) / multiplier / multiplier / 2


def gaussian_noisy_max_rdp(
    orders: ArrayLike, noise_multiplier: ArrayLike, num_candidates: ArrayLike
) -> FloatArray:
    """Curve of the largest of m scores with Gaussian noise: the smaller of two bounds.

    ``min(alpha / (2 s^2) + log(m) / (alpha - 1), m alpha / (8 s^2))`` for a standard deviation of
    ``s`` times the window of the scores. The first is Corollary 9 of Zhu & Wang (2022): it bounds
    each outcome by a move of its own score through the window, and adds up over the m outcomes. The
    second, ours, releases all noisy scores, each moved by half the window.
    """
    alpha, m = np.asarray(orders, dtype=np.float64), np.asarray(num_candidates, dtype=np.float64)
    vector = gaussian_rdp(alpha, noise_multiplier)
    return np.minimum(vector + np.log(m) / (alpha - 1), vector * (m / 4))


@np.errstate(over="ignore")
def bounded_range_rdp(orders: ArrayLike, eta: ArrayLike) -> FloatArray:
    """Tight curve of an ``eta``-bounded-range mechanism, for adaptive composition.

    The supremum over generalized randomized response with losses in ``{t - eta, t}`` (Dong, Durfee
    & Rogers (2020)), at most ``eta`` (pure DP) and at most ``alpha eta^2 / 8`` (Cesar & Rogers
    (2021), Lemma 3.2).
    """
    alpha, eta = np.asarray(orders, dtype=np.float64), np.asarray(eta, dtype=np.float64)
    zcdp = np.minimum(alpha * eta**2 / 8, eta)
    # a window too narrow for the logarithms is widened: rounded upwards, the value then exceeds
    # `zcdp`
    wide = np.maximum(eta, 1e-100)
    upper = np.log(-np.expm1(-alpha * wide))
    lower = np.log(-np.expm1(-(alpha - 1) * wide))
    spread = np.log(-np.expm1(-wide))
    log_alpha, over = np.log(alpha), 1 / (alpha - 1)
    tight = np.log1p(-1 / alpha) + upper + wide - lower + (upper - log_alpha - spread) * over
    scale = 1 - lower + wide + (1 - upper + log_alpha + np.abs(spread)) * over
    return np.minimum(zcdp, tight + ROUNDING * scale)


def pure_dp_rdp(orders: ArrayLike, epsilon: ArrayLike) -> FloatArray:
    """Tight curve of pure ``epsilon``-DP: randomized response (Mironov (2017), Proposition 5).

    Written as ``log(1 + (e^((alpha - 1) epsilon) - 1) (1 - e^(-alpha epsilon)) / (1 + e^-epsilon))
    / (alpha - 1)``, whose factors lose no digits.
    """
    alpha, eps = np.asarray(orders, dtype=np.float64), np.asarray(epsilon, dtype=np.float64)
    with np.errstate(over="ignore"):
        largest_loss, all_losses = (alpha - 1) * eps, alpha * eps
    # beyond 700, all but the largest exponential are lost in rounding
    tame = np.minimum(largest_loss, 700.0)
    excess = np.expm1(tame) * -np.expm1(-all_losses) * expit(eps)
    total = largest_loss - tame + np.log1p(excess)
    return np.minimum(total * (1 + ROUNDING) / (alpha - 1), eps)


@np.errstate(over="ignore")
def gaussian_mu_squared(noise_multiplier: ArrayLike) -> FloatArray:
    """Return ``mu^2 = 1 / noise_multiplier^2`` (Dong, Roth & Su (2022), Theorem 2.7)."""
    multiplier = np.asarray(noise_multiplier, dtype=np.float64)
    return 1 / multiplier / multiplier


def gaussian_noisy_max_mu_squared(
    noise_multiplier: ArrayLike, num_candidates: ArrayLike
) -> FloatArray:
    """Return ``m / (4 s^2)``: all m noisy scores are released, each moved by half the window."""
    return gaussian_mu_squared(noise_multiplier) * np.asarray(num_candidates, dtype=np.float64) / 4


def pure_dp_mu_squared(epsilon: ArrayLike) -> FloatArray:
    """Return ``mu^2`` of pure ``epsilon``-DP, ``mu = 2 Phi^-1(1 / (1 + e^-epsilon))``.

    Its trade-off function is at least the one of randomized response: two chords that meet where
    both errors are ``1 / (1 + e^epsilon)``. ``G_mu`` is convex and passes through the same three
    points, so that it lies below.
    """
    eps = np.asarray(epsilon, dtype=np.float64)
    mu = 2 * ndtri(expit(-eps))  # but for the sign
    # concave in epsilon: the tangent at 0 is above it, and keeps its digits where the quantile is
    # next to 0
    return np.where(eps < 1e-3, eps * math.sqrt(math.pi / 2), mu) ** 2 * (1 + _LOOSE)


def bounded_range_mu_squared(eta: ArrayLike) -> FloatArray:
    """Return ``mu^2`` of an ``eta``-bounded range, ``mu = 2 Phi^-1(1 / (1 + e^(-eta / 2)))``.

    Its worst pairs are generalized randomized response: Bernoulli laws of ``p`` and ``q`` with
    logits that differ by ``eta`` (Dong, Durfee & Rogers (2020)). ``G_mu`` lies below these if ``mu
    >= Phi^-1(p) - Phi^-1(q)``, the rise of ``g(x) = Phi^-1(1 / (1 + e^-x))`` over an interval of
    length ``eta``. It is largest around 0, as g' falls with ``abs(x)``: with ``z = g(x) > 0`` this
    says ``(2 Phi(z) - 1) phi(z) >= z Phi(z) Phi(-z)``. Both sides agree at 0 and at infinity, and
    the slope of their
    difference, ``2 phi^2 - Phi(z) Phi(-z)``, changes its sign once, because ``phi^2 / (Phi(z)
    Phi(-z))`` falls (the slope of the hazard rate is below 1; Sampford (1953)).
    """
    return pure_dp_mu_squared(np.asarray(eta, dtype=np.float64) / 2)


def renyi_curve_rdp(orders: ArrayLike, known_orders: ArrayLike, known_rdp: ArrayLike) -> FloatArray:
    """Bound ``[K]`` at ``orders`` a curve known at ascending ``known_orders``; infinite beyond."""
    alpha, nodes, values = (
        np.asarray(array, dtype=np.float64) for array in (orders, known_orders, known_rdp)
    )
    chord = np.interp(alpha, nodes, (nodes - 1) * values) / (alpha - 1)
    return np.where(alpha <= nodes[0], values[0], np.where(alpha > nodes[-1], np.inf, chord))


LOSS_ERROR = 1e-12
"""Above the relative error of ``log(Phi(a) / Phi(b))``, for any delta_test above 1e-300."""
UNDERFLOW = 1e-60
"""Above the loss where a probability is too small for a float."""
_MAX_GAPS = 2**52  # beyond, floats cannot tell one gap from the next: the Gaussian bound is used
_SURE = 68.0  # from here on E is below 1e-60 if ``alpha w`` is `_LARGEST_EXPONENT` at most
_POINTS = 512  # gaps that are tried at once where few orders are asked for
_PARTS = 8  # of a block of gaps, or a cell of the line, that is split
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
    both directions. Returns ``[K]``; never more than the Gaussian ``alpha window^2 / (2 sigma^2)``,
    which it is at orders ``alpha w > 30``, ``w = window / sigma``, of teachers whose gaps reach
    beyond all that matter below. The best order is about ``1 + sqrt(2 log(1 / delta)) / w``: that
    of no epsilon below 100 at a delta above 1e-100 is there.

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
    # gaps are counted in half votes beyond the shift
    last, lowest = max(0, 2 * (num_teachers - shift)), float(ndtri(delta_test))
    if last > _MAX_GAPS:
        return bound

    def divergence(order_index: IntArray, starts: IntArray, ends: IntArray) -> FloatArray:
        largest = _largest_rdp(
            alpha[order_index], starts, ends, lowest, 1 / (2 * sigma), window / sigma
        )
        # beyond the range of floats: the Gaussian bound is used
        return np.where(np.isnan(largest), np.inf, largest)

    near = int(min(last, 2 * sigma * (_SURE - lowest)))
    # up to this order all gaps beyond `near` cost less than `UNDERFLOW`
    searched = alpha * (window / sigma) <= (_LARGEST_EXPONENT if near < last else math.inf)
    worst = np.where(searched, 0.0, bound)
    # blocks of the gaps above `start` up to `end`, and the order that each is there for
    order_index = np.flatnonzero(searched)
    start, end = np.full(order_index.size, -1), np.full(order_index.size, near)
    while start.size:
        parts = min(int((end - start).min()), max(_PARTS, _POINTS // start.size))
        cuts = start[:, None] + (end - start)[:, None] * np.arange(parts + 1) // parts
        start, points = cuts[:, :-1].ravel(), cuts[:, 1:].ravel()
        point_order, inside = np.repeat(order_index, parts), points - start > 1
        start, end, order_index = start[inside], points[inside], point_order[inside]
        # gaps and blocks at once: few calls matter more than few numbers
        at_points, highest = np.split(
            divergence(
                np.append(point_order, order_index),
                np.append(points, start),
                np.append(points, end),
            ),
            [points.size],
        )
        np.maximum.at(worst, point_order, at_points)
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


@np.errstate(over="ignore", invalid="ignore")
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
    # both losses log(Phi(high) / Phi(low)) are positive; with x the loss of a pass falls and
    # the loss of a failure rises
    passes, fails = log_ndtr_rise(low, width), log_ndtr_rise(-high, width)
    upward = _two_outcome_rdp(
        alpha,
        _Outcome(passes, high, low, first, first, last),
        _Outcome(-fails, -high, -low, last, first, first),
    )
    downward = _two_outcome_rdp(
        alpha,
        _Outcome(-passes, low, high, first, last, last),
        _Outcome(fails, -low, -high, last, last, first),
    )
    return np.maximum(upward, downward)


class _Outcome(NamedTuple):
    """One outcome of pairs of laws P and Q, and which of the pairs bound it in each block."""

    loss: FloatArray
    """``log(P / Q)`` of each pair."""
    p: FloatArray
    """``Phi^-1(P)``."""
    q: FloatArray
    """``Phi^-1(Q)``."""
    furthest: IntArray
    """The pair of each block with the largest absolute value of the loss."""
    top: IntArray
    """The one with the largest loss."""
    most: IntArray
    """The one with the largest Q."""


def _two_outcome_rdp(alpha: FloatArray, *outcomes: _Outcome) -> FloatArray:
    """Return the largest Renyi divergence of P from Q in each block, rounded upwards."""
    excess, largest = np.zeros(()), np.zeros(())
    # blocks share pairs: the slow functions of one pair are evaluated once
    for loss, _, q, furthest, _, most in outcomes:
        # E_Q[r^alpha] - 1 as E_Q[r^alpha - 1 - alpha (r - 1)]: no term is negative, so small ones
        # keep their digits
        power = alpha * loss[furthest]
        curved, linear = np.expm1(power), alpha * np.expm1(loss)[furthest]
        excess = excess + ndtr(q)[most] * (
            (curved - linear) * (1 + LOSS_ERROR * (2 + np.abs(power)))
            + ROUNDING * np.abs(curved + linear)
        )
        largest = np.maximum(largest, np.abs(power))
    total: FloatArray = np.asarray(np.log1p(excess), dtype=np.float64)
    # beyond the range of exp, in log space
    far = ~(largest < 600)
    if far.any():
        terms = [
            alpha[far] * (loss - ROUNDING * (log_ndtr(p) + log_ndtr(q)))[top[far]]
            + log_ndtr(q)[most[far]]
            for loss, p, q, _, top, most in outcomes
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


_TOLERANCE = 1e-5  # relative, of the logarithm; added to the best value found
# A cell is settled within this much of the best value. The rest of the tolerance, 1e-7, covers the
# relative errors of the computation, which are below 1e-8.
_DECIDED = 0.99e-5
_LARGEST_EXPONENT = 30.0  # largest alpha w for which E is below 1e-60 outside the cells
_WIDEST = 1e10  # deviation over sensitivity beyond which too few digits of the divergence are left
_ROUNDS = 8  # of splitting, each to an eighth: cells that remain take the Gaussian bound
# From -68 = -(30 + 38) to 38, the range that the bounds above leave; fine where E is largest.
_EDGES = np.concatenate((np.arange(-68.0, -8), np.arange(-8, 2, 1 / 32), np.arange(2.0, 39)))


def threshold_bit_rdp(orders: ArrayLike, noise_multiplier: ArrayLike) -> FloatArray:
    """Curve of one bit: whether the worst statistic with Gaussian noise reaches a threshold.

    ``orders`` of shape ``[K]`` and a ``noise_multiplier`` of shape ``[..., 1]``, the standard
    deviation over the sensitivity, give ``[..., K]``. The result is about ``2 / pi`` of the
    Gaussian curve ``alpha / (2 noise_multiplier^2)`` at moderate orders, and never more. It is
    never below the true curve, and at most a relative 1e-5 above it as long as ``alpha <= 30
    noise_multiplier`` and the multiplier is below 1e5; beyond, digits are lost.
    """
    alpha, multiplier = (
        np.atleast_1d(np.asarray(orders, np.float64)),
        np.asarray(noise_multiplier, np.float64),
    )
    return np.stack(
        [_curve(alpha.tobytes(), ratio) for ratio in multiplier.ravel().tolist()]
    ).reshape(*multiplier.shape[:-1], alpha.size)


@lru_cache(maxsize=4096)
def _curve(orders: bytes, multiplier: float) -> FloatArray:
    alpha = np.frombuffer(orders)
    with np.errstate(over="ignore"):
        curve = alpha / multiplier / multiplier / 2 * (1 + ROUNDING)
    near = (alpha <= _LARGEST_EXPONENT * multiplier) & (multiplier < _WIDEST)
    if near.any():
        curve[near] = np.fmin(curve[near], _supremum(alpha[near], 1 / multiplier))
    return read_only(curve)


@np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore")
def _supremum(alpha: FloatArray, width: float) -> FloatArray:
    """Return the supremum of the divergences over all statistics, ``[K]``."""
    first = _parts_at(_EDGES, width)
    bounds = np.log1p(
        _first_bound(alpha[:, None], first.at(slice(None, -1)), first.at(slice(1, None)))
    )
    best = np.log1p(_excess(alpha[:, None], first)).max(axis=1)
    order, cell = np.nonzero(bounds > best[:, None] * (1 + _DECIDED))
    start, size = _EDGES[cell], np.diff(_EDGES)[cell]
    for _ in range(_ROUNDS):
        if not order.size:
            break
        # edges and middles of the parts, alternating; orders share most of the cells
        places, again = np.unique(start + 1j * size, return_inverse=True)
        shares = np.arange(2 * _PARTS + 1) / (2 * _PARTS)
        points = places.real[:, None] + places.imag[:, None] * shares
        parts, alpha_of_cell = _parts_at(points, width).at(again), alpha[order][:, None]
        points = points[again]
        x, c, y = (parts.at((slice(None), slice(i, i - 2 or None, 2))) for i in range(3))
        second = _second_bound(alpha_of_cell, x, c, y, size[:, None] / _PARTS)
        upper = np.log1p(np.fmin(_first_bound(alpha_of_cell, x, y), second))
        np.maximum.at(best, order, np.log1p(_excess(alpha_of_cell, c)).max(axis=1))
        row, part = np.nonzero(~(upper <= best[order][:, None] * (1 + _DECIDED)))
        start, size, order = points[row, 2 * part], size[row] / _PARTS, order[row]
    best[order] = np.inf  # if cells remain undecided, the Gaussian bound is used
    return best * (1 + _TOLERANCE) / (alpha - 1)


class _Parts(NamedTuple):
    """The terms of the bounds, evaluated at points of the line; all of one shape."""

    gain: FloatArray
    """``log r``, decreasing."""
    loss: FloatArray
    """``-log s``, increasing."""
    log_yes: FloatArray
    """``log Phi(a)``, increasing."""
    log_no: FloatArray
    """``log Phi(-a)``, decreasing."""
    log_yes_moved: FloatArray
    """``log Phi(a + w)``, increasing."""
    log_no_moved: FloatArray
    """``log Phi(-a - w)``, decreasing."""
    distance: FloatArray
    """``abs(a)``."""
    fall: FloatArray
    """``m(a) - m(a + w)``, decreasing."""
    rise: FloatArray
    """``m(-a - w) - m(-a)``, increasing."""
    slack: FloatArray
    """Above the rounding error of ``fall`` and ``rise``."""

    def at(self, where: Any) -> _Parts:
        """Return the parts at some of the points."""
        return _Parts(*(terms[where] for terms in self))


def _parts_at(a: FloatArray, width: float) -> _Parts:
    moved = a + width
    mills = [_mills(points) for points in (a, moved, -moved, -a)]
    return _Parts(
        gain=log_ndtr_rise(a, width),
        loss=log_ndtr_rise(-moved, width),
        log_yes=log_ndtr(a),
        log_no=log_ndtr(-a),
        log_yes_moved=log_ndtr(moved),
        log_no_moved=log_ndtr(-moved),
        distance=np.abs(a),
        fall=mills[0] - mills[1],
        rise=mills[2] - mills[3],
        slack=ROUNDING * np.sum(mills, axis=0),
    )


def _mills(a: FloatArray) -> FloatArray:
    """Return ``phi(a) / Phi(a)``."""
    return np.asarray(np.sqrt(2 / np.pi) / erfcx(-a / np.sqrt(2)), dtype=np.float64)


def _log_psi_of_gain(alpha: FloatArray, gain: FloatArray) -> FloatArray:
    """Return ``log psi(e^gain)``, rounded upwards."""
    # psi times e^-(alpha gain), so that no exponential exceeds 1
    power, line = -np.expm1(-alpha * gain), alpha * np.exp(-(alpha - 1) * gain) * -np.expm1(-gain)
    return alpha * gain + np.log((power - line) + ROUNDING * (power + line))


def _psi_of_loss(alpha: FloatArray, loss: FloatArray) -> FloatArray:
    """Return ``psi(e^-loss)``, rounded upwards."""
    power, line = -np.expm1(-alpha * loss), -alpha * np.expm1(-loss)
    return (line - power) + ROUNDING * (line + power)


def _excess(alpha: FloatArray, at: _Parts) -> FloatArray:
    """Return E, rounded upwards."""
    return _first_bound(alpha, at, at)


def _first_bound(alpha: FloatArray, x: _Parts, y: _Parts) -> FloatArray:
    yes = np.exp(y.log_yes + _log_psi_of_gain(alpha, x.gain))
    return yes + np.exp(x.log_no) * _psi_of_loss(alpha, y.loss)


def _second_bound(
    alpha: FloatArray, x: _Parts, c: _Parts, y: _Parts, size: FloatArray
) -> FloatArray:
    return _excess(alpha, c) + size / 2 * _slope(alpha, x, y)


def _slope(alpha: FloatArray, x: _Parts, y: _Parts) -> FloatArray:
    """Return a bound on ``|E'|`` between ``x`` and ``y``, points on the same side of 0."""
    steepest, flattest = (
        -(np.fmin(x.distance, y.distance) ** 2) / 2,
        -(np.fmax(x.distance, y.distance) ** 2) / 2,
    )
    height = 1 / np.sqrt(2 * np.pi)
    up = height * np.exp(steepest + _log_psi_of_gain(alpha, x.gain))
    up += alpha * (y.rise + y.slack) * np.exp(x.log_no_moved) * -np.expm1(-(alpha - 1) * y.loss)
    least_up = height * np.exp(flattest + _log_psi_of_gain(alpha, y.gain))
    least_up += (
        alpha
        * np.maximum(x.rise - x.slack, 0)
        * np.exp(y.log_no_moved)
        * -np.expm1(-(alpha - 1) * x.loss)
    )
    down = height * np.exp(steepest) * _psi_of_loss(alpha, y.loss)
    down += alpha * (x.fall + x.slack) * _times_expm1(y.log_yes_moved, (alpha - 1) * x.gain)
    least_down = height * np.exp(flattest) * _psi_of_loss(alpha, x.loss)
    least_down += (
        alpha
        * np.maximum(y.fall - y.slack, 0)
        * _times_expm1(x.log_yes_moved, (alpha - 1) * y.gain)
    )
    return np.maximum(up - least_down, down - least_up)


def _times_expm1(log_factor: FloatArray, power: FloatArray) -> FloatArray:
    return np.exp(log_factor + power) * -np.expm1(-power)


_CORNER_SLACK = 1e-12  # above the relative rounding error of a corner
# Phi(-25) = 3e-138: a pair with a rarer outcome adds less than (1 + gamma) 3e-138 to V(gamma)
_MAX_QUANTILE = 25.0
_SPACING = 0.1  # of corners in the middle, in standard deviations
# standard deviations from the middle where corners of bits are twice as far apart as there
_SPARSE = 6.0
# of integrands that grow by exp(31) at most: errors are below 1e-18 of the largest value
_CORNER_NODES, _CORNER_WEIGHTS = np.polynomial.legendre.leggauss(24)


class Pairs(NamedTuple):
    """Bernoulli laws ``p`` against ``q``, ``[M]``, ``0 < q < p < 1``, played in both directions."""

    p: FloatArray
    q: FloatArray


def bounded_range_pairs(eta: float, *, sides: int = 64) -> Pairs:
    """Return corners around all ``eta``-bounded-range releases.

    A release of largest loss ``t`` is a post-processing of randomized response with losses ``t``
    and ``t - eta``, for which ``p = (e^eta - e^t) / (e^eta - 1)`` and ``q = p e^-t``
    (docs/appendix/costs.md). These points lie on a hyperbola with coordinates ``e^t`` and
    ``e^(eta - t)``. Two of its tangents meet at the harmonic means of the coordinates.
    """
    require(eta <= 20, "eta <= 20", eta=eta)
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


def gaussian_bit_pairs(mu: float, reach: float = _MAX_QUANTILE, *, nearest: float = 0.0) -> Pairs:
    """Return corners around ``Bernoulli(Phi(a))`` against ``Bernoulli(Phi(b))``, ``|a - b| <= mu``.

    ``reach`` bounds ``|a|`` and ``|b|``, and ``-2 nearest`` bounds ``a + b`` from above, unless
    ``nearest`` is 0. These are the released bits of a Gaussian stability test: ``mu`` is its window
    over sigma, and gaps between the counts of few teachers rarely pass it. The pairs with ``b - a =
    mu`` lie on the arc ``(Phi(c - mu/2), Phi(c + mu/2))``, of slope ``exp(-c mu)``.
    """
    require(mu <= 8, "mu <= 8", mu=mu)
    end, nearest = min(reach, _MAX_QUANTILE) + mu, min(nearest, _MAX_QUANTILE)
    # farther apart where few adversaries go
    far, near = -end - _SPARSE, -nearest - _SPARSE
    number = int(np.ceil(np.log(far / near) / np.log1p(_SPACING / _SPARSE))) + 1
    centers = np.geomspace(far, near, number) + _SPARSE
    p, q, slope = ndtr(centers + mu / 2), ndtr(centers - mu / 2), np.exp(-mu * centers)
    # two tangents meet at q + (dp - s' dq) / (s - s'); as an integral of positive terms this keeps
    # its digits
    width = np.diff(centers)[:, None]
    at = width * (_CORNER_NODES + 1) / 2
    density = np.exp(-((centers[:-1, None] + at - mu / 2) ** 2) / 2) / np.sqrt(2 * np.pi)
    shares = density * np.expm1(mu * (width - at)) / np.expm1(mu * width)
    run = width[:, 0] / 2 * (shares @ _CORNER_WEIGHTS)
    # the corner beyond the middle of the arc is the reflection of the last one
    last = [-1] if nearest else []
    corners_q, corners_p = q[:-1] + run, p[:-1] + slope[:-1] * run
    return _moved_outwards(
        np.concatenate([p[:1], corners_p, p[last]]), np.concatenate([q[:1], corners_q, q[last]])
    )


def _moved_outwards(p: FloatArray, q: FloatArray) -> Pairs:
    # up and to the left: the triangle with (0, 0) and (1, 1) then covers the corner
    return Pairs(p * (1 + _CORNER_SLACK), q * (1 - _CORNER_SLACK))
