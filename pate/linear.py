"""The closed-form student: one linear model per label, from noisy shares or labels of public samples alone.

Nothing is left to set: how strongly a label's weights are shrunk follows from the likelihood of what was released, and
a label keeps its model only if the release itself shows that it is better than a constant answer.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc, expit, gammaln, logit

from pate.typing import BoolArray, FloatArray, IntArray
from pate.validation import expect, expect_positive

_RATIOS = np.geomspace(1e-3, 1e5, 25)  # of a label's signal to its noise along the widest direction
_FALSE = 0.1  # of the labels that have a model, the share that may hold nothing but noise
_STEPS = 40  # of accelerated gradient descent
_RIDGE = 1e-4  # of the link, relative to the widest direction: keeps separable labels finite
_SAMPLES = 10  # for each direction, that a logistic model needs
_SIGNIFICANT = 2.0  # standard errors


@dataclass(frozen=True)
class LinearStudent:
    """One linear model per label: ``x @ weights`` is the logit of a label.

    Attributes:
        weights: ``[F + 1, C]``, the intercepts last.
    """

    weights: FloatArray

    @property
    def departs(self) -> BoolArray:
        """``[C]``: whether the answer for a label depends on the features."""
        return np.asarray(self.weights[:-1].any(axis=0))

    def logits(self, features: ArrayLike) -> FloatArray:
        """Return logits ``[N, C]`` for features ``[N, ...]``."""
        found: FloatArray = _flat(features) @ self.weights[:-1] + self.weights[-1]
        return found

    def predict(self, features: ArrayLike) -> FloatArray:
        """Return probabilities ``[N, C]`` for features ``[N, ...]``."""
        return np.asarray(expit(self.logits(features)), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Directions:
    """Features as coordinates: ``features - centre = left * spread @ right.T``, widest direction first.

    Attributes:
        centre: ``[F]``, the mean.
        left: ``[N, P]`` with orthonormal columns.
        spread: ``[P]``, above 0.
        right: ``[F, P]`` with orthonormal columns.
    """

    centre: FloatArray
    left: FloatArray
    spread: FloatArray
    right: FloatArray

    @classmethod
    def of(cls, features: FloatArray) -> Directions:
        """Factorise features ``[N, F]``, in time of the third power of the smaller of samples and features."""
        centre = features.mean(axis=0)
        inner = features - centre
        wide = inner.shape[0] < inner.shape[1]
        values, vectors = np.linalg.eigh(inner @ inner.T if wide else inner.T @ inner)
        # what subtracting a rounded mean leaves of constant features is no direction
        rounding = len(inner) ** 3 * (np.finfo(np.float64).eps * np.abs(centre).max(initial=0.0)) ** 2
        held = values > max(1e-9 * float(values[-1:].max(initial=0.0)), rounding)
        spread, known = np.sqrt(values[held][::-1]), vectors[:, held][:, ::-1]
        if wide:
            return cls(centre, known, spread, inner.T @ known / spread)
        return cls(centre, inner @ known / spread, spread, known)


def fit_linear(
    features: ArrayLike, targets: ArrayLike, mask: ArrayLike, *, noise_std: float | None = None
) -> LinearStudent:
    """Fit a linear student to released labels or noisy shares, in seconds for thousands of features.

    Label by label, in the coordinates of one factorisation:

    1. Weights have a Gaussian prior whose size is that of the greatest likelihood, beside noise of at least
       ``noise_std``; a constant is kept unless the gain in likelihood is significant, at a false discovery rate of a
       tenth over all labels. Means of labels are shrunk towards each other by their known noise (Efron & Morris
       (1973)).
    2. With ten samples or more for each direction (Peduzzi et al. (1996)), a logistic model takes on the moments of the
       posterior mean, so that rare labels are not underestimated.
    3. Answers of the posterior mean with one sample left out, which is exact, are compared with the constant answer on
       that sample's own target, whose noise has mean 0. See `departures` for which labels keep their model. The
       logistic model, which is bolder, is not compared by itself.

    Args:
        features: ``[N, ...]``, flattened.
        targets: ``[N, C]``, labels in {0, 1} or noisy shares of any size.
        mask: ``[N, C]``, which targets were released. A label that never was is denied.
        noise_std: standard deviation of the noise in the shares; None for labels.

    Raises:
        ValueError: on shapes that do not match, or ``noise_std <= 0``.
    """
    x, y, seen = _flat(features), np.asarray(targets, dtype=np.float64), np.asarray(mask, dtype=np.bool_)
    expect(y.ndim == 2 and len(y) == len(x), f"targets of shape [{len(x)}, C]", shape=y.shape)
    expect(seen.shape == y.shape, f"a mask of shape {list(y.shape)}", shape=seen.shape)
    if noise_std is not None:
        expect_positive(noise_std=noise_std)
    weights = np.zeros((x.shape[1] + 1, y.shape[1]))
    weights[-1] = -np.inf  # a label of which nothing is known is denied
    models, gains, squares = weights.copy(), np.zeros(y.shape[1]), np.zeros(y.shape[1])
    fitted = np.zeros(y.shape[1], dtype=np.bool_)
    patterns, which = np.unique(seen, axis=1, return_inverse=True)
    for pattern, rows in enumerate(patterns.T):
        labels = np.flatnonzero(which.ravel() == pattern)
        if rows.any():
            found = _fit(x[rows], y[np.ix_(rows, labels)], noise_std or 0.0)
            weights[-1, labels], live = found.constants, labels[found.live]
            models[:, live], gains[live], squares[live] = found.models, found.gains, found.squares
            fitted[live] = True
    # together, whatever their masks: each label alone may prove little
    labels = np.flatnonzero(fitted)
    chosen = labels[departures(gains[labels], squares[labels])]
    weights[:, chosen] = models[:, chosen]
    return LinearStudent(weights)


def constant_logits(targets: ArrayLike, mask: ArrayLike, *, noise_std: float | None = None) -> FloatArray:
    """Return the logits ``[C]`` of the constant answer that a release supports: its means, shrunk as in `fit_linear`.

    Args:
        targets: ``[N, C]``, labels in {0, 1} or noisy shares of any size.
        mask: ``[N, C]``, which targets were released. A label that never was is denied.
        noise_std: standard deviation of the noise in the shares; None for labels.
    """
    y, seen = np.asarray(targets, dtype=np.float64), np.asarray(mask, dtype=np.bool_)
    known = np.asarray(seen.any(axis=0))
    y, seen = y[:, known], seen[:, known]
    num = seen.sum(axis=0)
    raw = (y * seen).sum(axis=0) / num
    noise = np.maximum((seen * (y - raw) ** 2).sum(axis=0) / np.maximum(1, num - 1), (noise_std or 0.0) ** 2)
    found = np.full(len(known), -np.inf)
    found[known] = logit(_shrunk_means(raw, noise / num).clip(0.5 / num, 1 - 0.5 / num))
    return found


def departures(gains: FloatArray, squares: FloatArray) -> BoolArray:
    """Return which labels ``[C]`` may depart from a constant answer: as many as are better than it all together.

    A label that is worse by more than a standard error stays constant. Of the others, the most convincing first, as
    many depart as leave the sum of their gains significant: at ``sqrt(4 + 2 log n)`` standard errors or more, where
    ``n`` is the number of ways to choose so many labels. Of labels that hold nothing but noise, few sets ever pass:
    ``exp(-2) / n`` bounds the chance of each.

    Args:
        gains: ``[C]``, by how many answers a model agrees better with held-out targets than the constant answer: the
            sum over samples of ``(answer - constant) (2 target - 1)``.
        squares: ``[C]``, the sum of the squares of the same terms, which estimates the variance of ``gains``.
    """
    errors = np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
    order = np.argsort(-gains / errors, kind="stable")
    order = order[(gains >= -errors)[order]]
    some = np.arange(1, len(order) + 1)
    ways = gammaln(len(gains) + 1) - gammaln(some + 1) - gammaln(len(gains) - some + 1)
    needed = np.sqrt((_SIGNIFICANT**2 + 2 * ways) * np.cumsum(squares[order]))
    enough = np.flatnonzero(np.cumsum(gains[order]) >= needed)
    kept = np.zeros(len(gains), dtype=np.bool_)
    kept[order[: enough[-1] + 1 if enough.size else 0]] = True
    return kept


def discoveries(p_values: FloatArray) -> BoolArray:
    """Return which hypotheses ``[C]`` to reject, a tenth of them wrongly (Benjamini & Hochberg (1995), Theorem 1)."""
    ascending = np.sort(p_values)
    levels = _FALSE * np.arange(1, len(ascending) + 1) / max(1, len(ascending))
    below = np.flatnonzero(ascending <= levels)
    return np.asarray(p_values <= ascending[below[-1]]) if below.size else np.zeros(len(p_values), dtype=np.bool_)


class _Fit(NamedTuple):
    """Models of labels with the same mask, and how much better than a constant they are."""

    constants: FloatArray
    """``[C]``, the logits of the constant answers."""
    live: IntArray
    """``[L]``, the labels that have a model."""
    models: FloatArray
    """``[F + 1, L]``, their weights."""
    gains: FloatArray
    """``[L]``, as for `departures`."""
    squares: FloatArray
    """``[L]``, as for `departures`."""


def _fit(x: FloatArray, y: FloatArray, noise_std: float) -> _Fit:
    """Fit models to samples whose targets are all known."""
    space, num = _directions(_Keyed(x)), len(y)
    raw = y.mean(axis=0)
    found, kept, noise = _posterior(space, y - raw, noise_std)
    means = _shrunk_means(raw, noise / num)
    live = np.flatnonzero(kept.any(axis=0))
    fitted = space.left @ found[:, live]
    if num >= _SAMPLES * len(space.spread):
        intercepts, slopes = _linked(space, means[live] + fitted)
    else:
        # too few to trust a logistic model: the posterior mean itself, as the line of slope 4 that a logit has at 1/2
        intercepts, slopes = 4 * (means[live] - 0.5), 4 * found[:, live]
    # leaving a sample out moves its own posterior mean by a known share of its residual
    leverage = 1 / num + space.left**2 @ kept[:, live]
    moved = leverage / np.maximum(1 - leverage, 1e-3) * (y[:, live] - raw[live] - fitted)
    answers = means[live] + fitted - moved > 0.5
    terms = (answers.astype(np.float64) - (means[live] > 0.5)) * (2 * y[:, live] - 1)
    inner = space.right @ (slopes / space.spread[:, None])
    return _Fit(
        constants=logit(means.clip(0.5 / num, 1 - 0.5 / num)),
        live=live,
        models=np.concatenate((inner, [intercepts - space.centre @ inner])),
        gains=terms.sum(axis=0),
        squares=(terms**2).sum(axis=0),
    )


def _posterior(space: Directions, centred: FloatArray, noise_std: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return posterior means ``[P, C]``, by what they were shrunk ``[P, C]``, and the variance of the noise ``[C]``.

    Targets are Gaussian around a linear function whose weight along direction ``j`` has variance ``r spread_j^2`` times
    that of the noise. The noise has its most likely size given ``r``, but no less than is known.
    """
    seen = space.left.T @ centred
    squares, free = (centred**2).sum(axis=0), max(1, len(centred) - 1)
    outside = np.maximum(squares - (seen**2).sum(axis=0), 0)

    def fit(ratio: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        signal = ratio * (space.spread / space.spread[:1]) ** 2
        left = outside + (seen**2 / (1 + signal)[:, None]).sum(axis=0)
        noise = np.maximum(left / free, max(noise_std**2, np.finfo(np.float64).tiny))
        return (free * np.log(noise) + left / noise + np.log1p(signal).sum()) / 2, signal / (1 + signal), noise

    kept = np.zeros(seen.shape)
    alone, _, noise = fit(0.0)
    least, level = alone.copy(), noise.copy()
    for ratio in _RATIOS.tolist():
        loss, share, spread = fit(ratio)
        better = loss < least
        least[better], level[better], kept[:, better] = loss[better], spread[better], share[:, None]
    # twice the gain in log-likelihood of noise alone is 0 or, half of the time, chi-square
    real = discoveries(erfc(np.sqrt(alone - least)) / 2)
    noise[real] = level[real]
    kept[:, ~real] = 0
    return seen * kept, kept, noise


def _shrunk_means(means: FloatArray, variances: FloatArray) -> FloatArray:
    """Return means ``[C]`` shrunk towards their mean (Efron & Morris (1973)), of which at least four are needed."""
    if len(means) < 4:
        return means
    centre = means.mean()
    around = float(((means - centre) ** 2).sum())
    share = 1 - (len(means) - 3) * float(variances.mean()) / max(around, np.finfo(np.float64).tiny)
    shrunk: FloatArray = centre + max(share, 0.0) * (means - centre)
    return shrunk


def _linked(space: Directions, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return intercepts ``[C]`` and slopes ``[P, C]`` of logistic models with the moments of ``shares`` ``[N, C]``.

    Nesterov's method; the curvature along each direction is at most a quarter.
    """
    moments, means = space.left.T @ shares, shares.mean(axis=0)
    penalty = _RIDGE * (space.spread[:1] / space.spread)[:, None] ** 2
    slopes, intercepts = (
        np.zeros(moments.shape),
        np.asarray(logit(means.clip(0.5 / len(shares), 1 - 0.5 / len(shares)))),
    )
    before, level, pace = slopes, intercepts, 1.0
    for _ in range(_STEPS):
        following = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        reach = (pace - 1) / following
        ahead, above = slopes + reach * (slopes - before), intercepts + reach * (intercepts - level)
        given = expit(above + space.left @ ahead)
        before, level, pace = slopes, intercepts, following
        slopes = ahead - (space.left.T @ given - moments + penalty * ahead) / (0.25 + penalty)
        intercepts = above - 4 * (given.mean(axis=0) - means)
    return intercepts, slopes


class _Keyed:
    """Features that are equal where their digests are, so that what is computed of them can be kept."""

    def __init__(self, features: FloatArray) -> None:
        self.features = features
        whole = np.ascontiguousarray(features)
        self._key = (whole.shape, hashlib.blake2b(whole.data, digest_size=16).digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=2)
def _directions(keyed: _Keyed) -> Directions:
    """Return the directions of features, which many fits to the same samples share."""
    return Directions.of(keyed.features)


def _flat(features: ArrayLike) -> FloatArray:
    flat = np.asarray(features, dtype=np.float64)
    return flat.reshape(len(flat), math.prod(flat.shape[1:]))
