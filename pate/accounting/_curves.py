"""Renyi-DP curves, and the Gaussian mechanisms that dominate them, as pure functions.

They broadcast: ``orders`` of shape ``[K]`` against parameters of shape ``[..., 1]`` give
``[..., K]``. Where a formula loses digits, the value is raised by a bound on the rounding error, so
that it is never below the true curve.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, ndtri

from pate._validation import FloatArray

ROUNDING = 16 * np.finfo(np.float64).eps
"""Above the relative error of a dozen operations."""
_LOOSE = 1e-12  # above the relative error of a normal quantile, twice


def gaussian_rdp(orders: ArrayLike, noise_multiplier: ArrayLike) -> FloatArray:
    """Curve ``alpha / (2 noise_multiplier^2)`` of Gaussian noise (Mironov (2017), Prop. 7)."""
    multiplier = np.asarray(noise_multiplier, dtype=np.float64)
    with np.errstate(over="ignore"):
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


def bounded_range_rdp(orders: ArrayLike, eta: ArrayLike) -> FloatArray:
    """Tight curve of an ``eta``-bounded-range mechanism, for adaptive composition.

    The supremum over generalized randomized response with losses in ``{t - eta, t}`` (Dong, Durfee
    & Rogers (2020)), at most ``eta`` (pure DP) and at most ``alpha eta^2 / 8`` (Cesar & Rogers
    (2021), Lemma 3.2).
    """
    alpha, eta = np.asarray(orders, dtype=np.float64), np.asarray(eta, dtype=np.float64)
    with np.errstate(over="ignore"):
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
    / (alpha - 1)``, no factor of which cancels.
    """
    alpha, eps = np.asarray(orders, dtype=np.float64), np.asarray(epsilon, dtype=np.float64)
    with np.errstate(over="ignore"):
        largest_loss, all_losses = (alpha - 1) * eps, alpha * eps
    # beyond 700, all but the largest exponential are lost in rounding
    tame = np.minimum(largest_loss, 700.0)
    excess = np.expm1(tame) * -np.expm1(-all_losses) * expit(eps)
    total = largest_loss - tame + np.log1p(excess)
    return np.minimum(total * (1 + ROUNDING) / (alpha - 1), eps)


def gaussian_mu_squared(noise_multiplier: ArrayLike) -> FloatArray:
    """Return ``mu^2 = 1 / noise_multiplier^2`` (Dong, Roth & Su (2022), Theorem 2.7)."""
    multiplier = np.asarray(noise_multiplier, dtype=np.float64)
    with np.errstate(over="ignore"):
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
