"""The closed-form student: one linear model per label, from released labels or noisy shares.

There are no settings: the likelihood of the released targets determines the shrinkage of a label's
weights. All labels rank samples by their models. A model decides its label only if the release
shows that it is better than the constant answer.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, gammaln, logit

from pate._core.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    UInt8Array,
    given,
    require,
    require_positive,
)

# ratios of the signal to its noise along the widest direction
_RATIOS = np.concatenate(([0.0], np.geomspace(1e-3, 1e5, 33)))
_STEPS = 40  # steps of accelerated gradient descent
# ridge of the logistic link, relative to the widest direction: keeps separable labels finite
_RIDGE = 1e-4
_SAMPLES = 10  # samples per direction that a logistic model of exact labels needs
_NEWTON = 40  # steps of the two-number link, at most
_NEGLIGIBLE = 1e-12  # a last step
_STEEPEST = 6.0  # logits for each standard deviation of an answer over the samples
_SIGNIFICANT = 2.0  # standard errors
# standard errors above one half from which a constant answer gives a label: where noise hides all
# means, half of the labels would be given
_GIVEN = 0.5
SHARPNESS = 8.0
"""Sharpness of the bend of logits that are kept on one side of 0: it is 1/8 wide."""
LEAST = 1e-6
"""The smallest logit of an answer that is kept above one half; float32 can tell it from 0."""


LINEAR = "pate.models.Linear"
"""The path of the network that is solved in closed form."""


def is_linear(settings: Any) -> bool:
    """Return whether a network's settings name `LINEAR`, as a recipe has them or as the path."""
    if isinstance(settings, dict):
        known = settings.keys() <= {"class_path", "init_args"}
        settings = settings.get("class_path") if known and not settings.get("init_args") else None
    return settings in (LINEAR, LINEAR.removeprefix("pate."))


@dataclass(frozen=True, eq=False)
class LinearStudent:
    """One linear model per label: ``x @ weights`` is the logit of a label.

    >>> weights = np.array([[2.0], [0.0]])  # one feature, and the intercept
    >>> student = LinearStudent(weights, np.array([True]), np.zeros(1))
    >>> student.predict(np.array([[1.0], [-1.0]])).round(2).tolist()
    [[0.88], [0.12]]

    Attributes:
        weights: ``[F + 1, C]``, the intercepts last; minus infinity where nothing was released.
        departs: ``[C]``, whether the model may decide a label. Otherwise its logits are bent to the
            side of ``constants`` in the same order: they rank samples, and decide nothing.
        constants: ``[C]``, the logits of the constant answer.
    """

    weights: FloatArray
    departs: BoolArray
    constants: FloatArray

    def logits(self, features: ArrayLike) -> FloatArray:
        """Return logits ``[N, C]`` for features ``[N, ...]``."""
        free: FloatArray = flat(features) @ self.weights[:-1] + self.weights[-1]
        return np.where(self.departs, free, clamp_sign(free, self.constants > 0))

    def predict(self, features: ArrayLike) -> FloatArray:
        """Return probabilities ``[N, C]`` for features ``[N, ...]``."""
        return np.asarray(expit(self.logits(features)), dtype=np.float64)


def clamp_sign(logits: FloatArray, above: BoolArray) -> FloatArray:
    """Return logits ``[N, C]``, bent to stay above 0, or below 0, in the same order.

    Logits already on that side barely change. Minus infinity does not change.

    Args:
        logits: ``[N, C]``.
        above: ``[C]``, which labels stay above 0.
    """
    sharp = SHARPNESS * logits
    bent = np.where(
        above, np.logaddexp(0, sharp) / SHARPNESS + LEAST, -np.logaddexp(0, -sharp) / SHARPNESS
    )
    return np.where(np.isneginf(logits), logits, bent)


@dataclass(frozen=True, eq=False)
class Directions:
    """Features as coordinates: ``features - center = left * spread @ right.T``.

    The widest direction comes first.

    Attributes:
        center: ``[F]``, the mean.
        spread: ``[P]``, above 0.
        right: ``[F, P]`` with orthonormal columns.
        features: ``[N, F]``.
        known_left: `left` where the factorization yields it.
    """

    center: FloatArray
    spread: FloatArray
    right: FloatArray
    features: FloatArray
    known_left: FloatArray | None = None

    @cached_property
    def left(self) -> FloatArray:
        """``[N, P]`` with orthonormal columns, computed on first use unless it is known."""
        if self.known_left is not None:
            return self.known_left
        return np.asarray((self.features - self.center) @ self.right / self.spread)

    @classmethod
    def of(cls, features: FloatArray) -> Self:
        """Factorize features ``[N, F]``, in time proportional to ``N F min(N, F)``."""
        center = features.mean(axis=0)
        inner = features - center
        wide = inner.shape[0] < inner.shape[1]
        # eigenvectors of the smaller Gram matrix, much faster than a singular value decomposition
        values, vectors = np.linalg.eigh(inner @ inner.T if wide else inner.T @ inner)
        # constant features leave rounding errors of their mean, which are no direction
        rounding = (
            len(inner) ** 3 * (np.finfo(np.float64).eps * np.abs(center).max(initial=0.0)) ** 2
        )
        significant = values > max(1e-9 * float(values.max(initial=0.0)), rounding)
        spread, basis = np.sqrt(values[significant][::-1]), vectors[:, significant][:, ::-1]
        if wide:
            right = inner.T @ basis
            right /= spread  # in place: of wide features it is as large as they are
            return cls(center, spread, right, features, basis)
        return cls(center, spread, basis, features)


def fit_linear(
    features: ArrayLike, targets: ArrayLike, mask: ArrayLike, *, noise_std: float | None = None
) -> LinearStudent:
    """Fit a linear student to labels or noisy shares, in seconds for thousands of features.

    Label by label, in the coordinates of one factorization:

    1. Weights have a Gaussian prior of the most likely size, given the label and, as one more
       label, all labels together. The noise is at least ``noise_std``. Means of labels are shrunk
       towards each other by their known noise (Efron & Morris (1973)).
    2. A logistic model of two numbers, a level and a slope along the posterior mean, matches the
       mean of the answers and their spread. It ranks samples as the posterior mean does. Exact
       labels, ten or more for each direction (Peduzzi et al. (1996)), get a logistic model of all
       directions.
    3. Leave-one-out answers of the posterior mean, which are exact given the prior, are compared
       with the constant answer on the sample that was left out. The noise in its target has mean 0.
       `labels_better_than_constant` selects the labels that may decide by their models; for the
       others, models only rank samples.

    >>> features = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> labels = np.array([[0], [0], [1], [1]])
    >>> student = fit_linear(features, labels, np.ones_like(labels, dtype=bool))
    >>> student.predict(features).shape
    (4, 1)

    Args:
        features: ``[N, ...]``, flattened.
        targets: ``[N, C]``, labels in {0, 1} or noisy shares of any size.
        mask: ``[N, C]``, whether a target was released. A label without any target is denied.
        noise_std: standard deviation of the noise in the shares. None for labels.

    Returns:
        the student, with a weight for each feature and an intercept.

    Raises:
        ValueError: on shapes that do not match, or ``noise_std <= 0``.
    """
    x, y = flat(features), np.asarray(targets, dtype=np.float64)
    released = np.asarray(mask, dtype=np.bool_)
    require(y.ndim == 2 and len(y) == len(x), f"targets of shape [{len(x)}, C]", shape=y.shape)
    require(released.shape == y.shape, f"a mask of shape {list(y.shape)}", shape=released.shape)
    require_positive(**given(noise_std=noise_std))
    num_labels = y.shape[1]
    weights = np.zeros((x.shape[1] + 1, num_labels))
    weights[-1] = -np.inf  # a label without any target is denied
    constants, gains, squares = weights[-1].copy(), np.zeros(num_labels), np.zeros(num_labels)
    patterns, pattern_of = np.unique(released, axis=1, return_inverse=True)
    for pattern, rows in enumerate(patterns.T):
        labels = np.flatnonzero(pattern_of.ravel() == pattern)
        if rows.any():
            fitted = _fit(x[rows], y[np.ix_(rows, labels)], noise_std)
            weights[:, labels], constants[labels], terms = fitted
            gains[labels], squares[labels] = terms.sum(axis=0), (terms**2).sum(axis=0)
    # all labels together, whatever their masks: a single label may prove little; if no answer
    # differs from the constant one, there is nothing to decide
    return LinearStudent(
        weights, labels_better_than_constant(gains, squares) & (squares > 0), constants
    )


def linear_student_of(
    features: ArrayLike, answers: ArrayLike, decisions: ArrayLike
) -> LinearStudent:
    """Return the linear student with released answers to public samples, and its decisions.

    Answers are a linear function of the features; `match_logistic_moments` turns it into a logistic
    model. If the decision on a label is the same for all samples, its constant answer decides it.
    Otherwise the model does.

    Args:
        features: ``[N, ...]``, flattened.
        answers: ``[N, C]``, shares without noise, possibly below 0 or above 1.
        decisions: ``[N, C]`` in {0, 1}.
    """
    x, y, yes = flat(features), np.asarray(answers, dtype=np.float64), np.asarray(decisions) > 0
    require(y.ndim == 2 and 0 < len(y) == len(x), f"answers of shape [{len(x)}, C]", shape=y.shape)
    require(yes.shape == y.shape, f"decisions of shape {list(y.shape)}", shape=yes.shape)
    space, means = _directions(_Keyed(x)), y.mean(axis=0)
    fitted = y - means
    level, steepness = match_logistic_moments(means, fitted)
    # the left side itself would take most of the time
    along = space.right.T @ ((x - space.center).T @ (fitted * steepness))
    inner = space.right @ (along / space.spread[:, None] ** 2)
    constants = _safe_logit(means, len(x))
    departs = np.asarray((yes != yes[0]).any(axis=0))
    sides = np.where(yes[0], np.maximum(constants, LEAST), np.minimum(constants, -LEAST))
    return LinearStudent(
        np.concatenate((inner, [level - space.center @ inner])),
        departs,
        np.where(departs, constants, sides),
    )


class Answers(Protocol):
    """The parts of a release on ``Q`` queries that a linear student learns from."""

    @property
    def labels(self) -> UInt8Array:
        """``[Q, C]`` in {0, 1}."""

    @property
    def mask(self) -> BoolArray:
        """``[Q, C]``, whether a label was released."""

    @property
    def noisy_counts(self) -> FloatArray | None:
        """``[Q, C]``, noisy counts of teachers. None if there are none."""

    @property
    def noise_std(self) -> float | None:
        """Standard deviation of the noise in the counts, in votes. None if they have none."""

    @property
    def linear(self) -> bool:
        """Whether the counts are ``num_teachers`` times the answers of a linear model."""

    @property
    def columns(self) -> BoolArray | None:
        """``[F]``, the features that this model reads. None for all of them."""


def student_of(released: Answers, features: ArrayLike, num_teachers: int) -> LinearStudent:
    """Return the linear student of a release: from noisy shares if it has counts, else from labels.

    Counts that are answers of a linear model, without noise, give that model itself.

    Args:
        released: the answers to ``Q`` queries.
        features: ``[Q, ...]``, the public features of the queries.
        num_teachers: the nominal number of teachers.
    """
    counts, share = released.noisy_counts, 1 / num_teachers
    if released.linear and counts is not None and len(released.labels):
        x, used = flat(features), slice(None) if released.columns is None else released.columns
        student = linear_student_of(x[:, used], counts * share, released.labels)
        weights = np.zeros((x.shape[1] + 1, counts.shape[1]))
        weights[:-1][used], weights[-1] = student.weights[:-1], student.weights[-1]
        return replace(student, weights=weights)
    if counts is None or released.noise_std is None:
        return fit_linear(features, released.labels, released.mask)
    return fit_linear(features, counts * share, released.mask, noise_std=released.noise_std * share)


def constant_logits(
    targets: ArrayLike, mask: ArrayLike, *, noise_std: float | None = None
) -> FloatArray:
    """Return the logits ``[C]`` of the constant answer: means, shrunk as in `fit_linear`.

    They are below 0 unless a mean is half a standard error of the noise above one half.

    Args:
        targets: ``[N, C]``, labels in {0, 1} or noisy shares of any size.
        mask: ``[N, C]``, whether a target was released. A label without any target is denied.
        noise_std: standard deviation of the noise in the shares; None for labels.
    """
    y, released = np.asarray(targets, dtype=np.float64), np.asarray(mask, dtype=np.bool_)
    answered = np.asarray(released.any(axis=0))
    y, released = y[:, answered], released[:, answered]
    num = released.sum(axis=0)
    raw = (y * released).sum(axis=0) / num
    noise = np.maximum(
        (released * (y - raw) ** 2).sum(axis=0) / np.maximum(1, num - 1), (noise_std or 0.0) ** 2
    )
    logits = np.full(len(answered), -np.inf)
    logits[answered] = _constants(shrunk_means(raw, noise / num), num, noise_std)
    return logits


def _safe_logit(means: FloatArray, num: IntArray | int) -> FloatArray:
    """Return the logits of means over ``num`` samples, at least half a sample from 0 and 1."""
    return np.asarray(logit(means.clip(0.5 / num, 1 - 0.5 / num)))


def _constants(means: FloatArray, num: IntArray | int, noise_std: float | None) -> FloatArray:
    """Return logits ``[C]``, below 0 where noise may be all that is above one half."""
    logits = _safe_logit(means, num)
    least = 0.5 + _GIVEN * (noise_std or 0.0) / np.sqrt(num)
    return np.where((means > 0.5) & (means <= least), -LEAST, logits)


def labels_better_than_constant(gains: FloatArray, squares: FloatArray) -> BoolArray:
    """Return ``[C]``, whether a label may depart from its constant answer.

    A label that is worse by more than a standard error stays constant. The others depart in the
    order of their significance, as many as keep the sum of their gains significant: at least
    ``sqrt(4 + 2 log n)`` standard errors, where ``n`` is the number of ways to choose so many
    labels. Sets of labels that are pure noise rarely pass: ``exp(-2) / n`` bounds the probability
    for each.

    Args:
        gains: ``[C]``, the number of held-out targets that the model answers better than the
            constant answer: the sum over samples of ``(answer - constant) (2 target - 1)``.
        squares: ``[C]``, the sum of the squares of these terms, which estimates the variance of
            ``gains``.
    """
    errors = np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
    order = np.argsort(-gains / errors, kind="stable")
    order = order[(gains >= -errors)[order]]
    sizes = np.arange(1, len(order) + 1)
    ways = gammaln(len(gains) + 1) - gammaln(sizes + 1) - gammaln(len(gains) - sizes + 1)
    needed = np.sqrt((_SIGNIFICANT**2 + 2 * ways) * np.cumsum(squares[order]))
    significant = np.flatnonzero(np.cumsum(gains[order]) >= needed)
    departs = np.zeros(len(gains), dtype=np.bool_)
    departs[order[: significant[-1] + 1 if significant.size else 0]] = True
    return departs


def _fit(
    x: FloatArray, y: FloatArray, noise_std: float | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Fit models to samples with complete targets.

    Returns:
        the weights ``[F + 1, C]``, the logits ``[C]`` of the constant answers, and the terms ``[N,
        C]`` of the gains of `labels_better_than_constant`.
    """
    space, num = _directions(_Keyed(x)), len(y)
    raw = y.mean(axis=0)
    weights, shrinkage, noise = ridge_posterior(space, y - raw, noise_std or 0.0)
    means = shrunk_means(raw, noise / num)
    fitted = space.left @ weights
    if noise_std is None and 0 < _SAMPLES * len(space.spread) <= num:
        intercepts, slopes = _logistic(space, means + fitted)
    else:
        intercepts, steepness = match_logistic_moments(means, fitted)
        slopes = steepness * weights
    # leaving out a sample moves its posterior mean by a known share of its residual
    leverage = 1 / num + space.left**2 @ shrinkage
    moved = leverage / np.maximum(1 - leverage, np.finfo(np.float64).eps) * (y - raw - fitted)
    answers = means + fitted - moved > 0.5
    constants = _constants(means, num, noise_std)
    terms = (answers.astype(np.float64) - (constants > 0)) * (2 * y - 1)
    inner = space.right @ (slopes / space.spread[:, None])
    return np.concatenate((inner, [intercepts - space.center @ inner])), constants, terms


def ridge_posterior(
    space: Directions, centered: FloatArray, noise_std: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return posterior means ``[P, C]``, shrinkage factors ``[P, C]`` and noise variances ``[C]``.

    Targets are Gaussian around a linear function. Its weight along direction ``j`` has a variance
    of ``r spread_j^2`` in units of the noise variance. The noise has its most likely size given
    ``r``, but at least the known size. The ratio ``r`` of a label maximizes its log-likelihood plus
    the mean log-likelihood over all labels, which stabilizes the estimate.

    Args:
        space: the directions of the samples.
        centered: ``[N, C]``, targets less their means.
        noise_std: standard deviation of the known noise; 0 for none.
    """
    moments = space.left.T @ centered
    squares, free = (centered**2).sum(axis=0), max(1, len(centered) - 1)
    outside = np.maximum(squares - (moments**2).sum(axis=0), 0)
    shapes = (space.spread / space.spread[:1]) ** 2
    losses, levels = np.empty((2, len(_RATIOS), centered.shape[1]))
    for i, ratio in enumerate(_RATIOS.tolist()):
        signal = ratio * shapes
        residual = outside + (moments**2 / (1 + signal)[:, None]).sum(axis=0)
        levels[i] = np.maximum(residual / free, max(noise_std**2, np.finfo(np.float64).tiny))
        losses[i] = free * np.log(levels[i]) + residual / levels[i] + np.log1p(signal).sum()
    chosen = np.argmin(losses + losses.mean(axis=1, keepdims=True), axis=0)
    signal = _RATIOS[chosen] * shapes[:, None]
    shrinkage = signal / (1 + signal)
    return moments * shrinkage, shrinkage, levels[chosen, np.arange(len(chosen))]


def match_logistic_moments(means: FloatArray, fitted: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return level ``[C]`` and steepness ``[C]`` of logistic models ``level + steepness * fitted``.

    Their probabilities have the same mean over the samples as the linear answers ``means +
    fitted``, and the same moment along ``fitted``. A model of two numbers cannot follow noise, and
    keeps the order of the samples.

    Args:
        means: ``[C]``, the means of the labels.
        fitted: ``[N, C]``, the answers minus these means, with mean 0.
    """
    means = means.clip(0.5 / len(fitted), 1 - 0.5 / len(fitted))
    spread = fitted.std(axis=0)
    # constant answers have no slope
    scale = np.where(spread > np.finfo(np.float64).eps, spread, np.inf)
    unit = fitted / scale
    level, slope = np.asarray(logit(means)), np.zeros(len(means))
    # Newton's method on both moments; steps are clipped, because separable labels have no finite
    # solution
    for _ in range(_NEWTON):
        predicted = expit(level + slope * unit)
        curvature = predicted * (1 - predicted)
        missing, short = predicted.mean(axis=0) - means, (predicted * unit).mean(axis=0) - spread
        # derivatives of the moments by level and slope, slightly increased so that none vanishes
        by_level = curvature.mean(axis=0) + 1e-6
        both = (curvature * unit).mean(axis=0)
        by_slope = (curvature * unit**2).mean(axis=0) + 1e-6
        before, step = slope, (by_level * short - both * missing) / (by_level * by_slope - both**2)
        slope = (slope - step.clip(-0.5, 0.5)).clip(0, _STEEPEST)
        # match the mean for any slope
        change = ((missing + both * (slope - before)) / by_level).clip(-4, 4)
        level = level - change
        if np.abs([change, slope - before]).max(initial=0) < _NEGLIGIBLE:
            break
    return level, slope / scale


def shrunk_means(means: FloatArray, variances: FloatArray) -> FloatArray:
    """Return means ``[C]`` shrunk towards their mean (Efron & Morris (1973)), if C >= 4."""
    if len(means) < 4:
        return means
    center = means.mean()
    around = float(((means - center) ** 2).sum())
    share = 1 - (len(means) - 3) * float(variances.mean()) / max(around, np.finfo(np.float64).tiny)
    return center + max(share, 0.0) * (means - center)


def _logistic(space: Directions, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return intercepts ``[C]`` and slopes ``[P, C]`` of logistic models by Nesterov's method.

    The models match the moments of ``shares`` ``[N, C]``. The curvature along each direction is at
    most a quarter.
    """
    moments, means = space.left.T @ shares, shares.mean(axis=0)
    penalty = _RIDGE * (space.spread[:1] / space.spread)[:, None] ** 2
    slopes, intercepts = np.zeros(moments.shape), _safe_logit(means, len(shares))
    x_prev, b_prev, t = slopes, intercepts, 1.0
    for _ in range(_STEPS):
        t_next = (1 + np.sqrt(1 + 4 * t**2)) / 2
        momentum = (t - 1) / t_next
        x_look = slopes + momentum * (slopes - x_prev)
        b_look = intercepts + momentum * (intercepts - b_prev)
        predicted = expit(b_look + space.left @ x_look)
        x_prev, b_prev, t = slopes, intercepts, t_next
        slopes = x_look - (space.left.T @ predicted - moments + penalty * x_look) / (0.25 + penalty)
        intercepts = b_look - 4 * (predicted.mean(axis=0) - means)
    return intercepts, slopes


class _Keyed:
    """Features that are compared by digest, as keys of a cache."""

    def __init__(self, features: FloatArray) -> None:
        self.features = features
        contiguous = np.ascontiguousarray(features)
        self._key = (contiguous.shape, hashlib.blake2b(contiguous.data, digest_size=16).digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=2)
def _directions(keyed: _Keyed) -> Directions:
    """Return the directions of features, cached for many fits to the same samples."""
    return Directions.of(keyed.features)


def flat(features: ArrayLike) -> FloatArray:
    """Return features ``[N, ...]`` as ``[N, F]`` float64."""
    values = np.asarray(features, dtype=np.float64)
    return values.reshape(len(values), math.prod(values.shape[1:]))


def product_bits(num_terms: int) -> int:
    """Return the bits of whole numbers so small that sums of their products stay below 2^53.

    Such sums are exact in float64, in whatever order they are taken.
    """
    return (51 - math.ceil(math.log2(num_terms))) // 2


def power_above(value: float) -> float:
    """Return the least power of two that is not below ``value``."""
    return 2.0 ** math.ceil(math.log2(value))
