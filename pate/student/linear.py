"""A linear student fitted without gradient descent; its regularisation is chosen from released labels alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from pate.typing import FloatArray
from pate.validation import expect, expect_count, expect_positive

RIDGES: tuple[float, ...] = tuple(float(ridge) for ridge in np.geomspace(0.3, 3e4, 9))
_FOLDS = 3
_STEPS = 30  # of Newton's method at most
_MOST_FEATURES = 2048  # the time grows with their third power


@dataclass(frozen=True)
class LinearStudent:
    """One linear model per label.

    Attributes:
        weights: ``[F + 1, C]``, the intercepts last.
        logistic: whether ``x @ weights`` is the logit of a label rather than its probability.
    """

    weights: FloatArray
    logistic: bool = True

    def predict(self, features: ArrayLike) -> FloatArray:
        """Return probabilities ``[N, C]`` for features ``[N, ...]``."""
        found = _with_intercept(features) @ self.weights
        return expit(found) if self.logistic else found.clip(0, 1)


def fit_released(
    features: ArrayLike, targets: ArrayLike, mask: ArrayLike, *, noise_std: float | None = None
) -> LinearStudent:
    """Fit a linear student to a release, by `fit_logistic` or, if that predicts shares better, by `fit_shares`.

    The two are compared by three-fold cross-validation: the expected squared error against a noisy share exceeds that
    against the share itself by the variance of the noise, which is the same for both.

    Args:
        features: ``[N, ...]``.
        targets: ``[N, C]``, labels or noisy shares of the teachers.
        mask: ``[N, C]``, which targets were released.
        noise_std: standard deviation of the noise in the shares; None for labels.

    Raises:
        ValueError: as `fit_logistic` does.
    """
    x, y = np.asarray(features), np.asarray(targets, dtype=np.float64)
    whole = np.asarray(mask, dtype=np.bool_).all(axis=1)
    if noise_std is None or whole.sum() < 2 * _FOLDS:
        return fit_logistic(x, y, mask)
    errors = np.zeros(2)
    folds = np.arange(len(x)) % _FOLDS
    for fold in range(_FOLDS):
        kept, left = whole & (folds != fold), whole & (folds == fold)
        for i, student in enumerate(
            (fit_logistic(x[kept], y[kept], np.ones(y[kept].shape)), fit_shares(x[kept], y[kept], noise_std=noise_std))
        ):
            errors[i] += ((student.predict(x[left]) - y[left]) ** 2).sum()
    return fit_logistic(x, y, mask) if errors[0] <= errors[1] else fit_shares(x[whole], y[whole], noise_std=noise_std)


def fit_shares(features: ArrayLike, shares: ArrayLike, *, noise_std: float) -> LinearStudent:
    """Fit shares of teachers by least squares, shrunk across labels according to their known noise.

    For whitened features, the least-squares weights ``B`` ``[F, C]`` carry independent noise of standard deviation
    ``noise_std``, so that ``B^T B / F`` is the second moment of the noiseless weights plus ``noise_std^2``. Directions
    in label space that hold no more than noise are dropped, the others shrunk (Efron & Morris (1972)).

    Args:
        features: ``[N, ...]``.
        shares: ``[N, C]``, noisy shares of any size.
        noise_std: standard deviation of their noise, above 0.

    Raises:
        ValueError: on shapes that do not match, more than 2048 features, or no noise.
    """
    x, y = _with_intercept(features), np.asarray(shares, dtype=np.float64)
    _expect_matching(x, y, np.ones(y.shape))
    expect_positive(noise_std=noise_std)
    centre, level = x[:, :-1].mean(axis=0), y.mean(axis=0)
    inner = x[:, :-1] - centre
    values, vectors = np.linalg.eigh(inner.T @ inner)
    spread = values > 1e-9 * max(float(values[-1]), 1.0)
    whiten = vectors[:, spread] / np.sqrt(values[spread])
    white = whiten.T @ (inner.T @ (y - level))
    moments, labels = np.linalg.eigh(white.T @ white / max(1, len(white)) / noise_std**2)
    kept = np.maximum(1 - 1 / np.maximum(moments, 1e-300), 0)
    weights = whiten @ (white @ (labels * kept) @ labels.T)
    return LinearStudent(np.concatenate((weights, [level - centre @ weights])), logistic=False)


def fit_logistic(
    features: ArrayLike, targets: ArrayLike, mask: ArrayLike, *, ridges: tuple[float, ...] = RIDGES
) -> LinearStudent:
    """Fit one logistic regression per label to labels or noisy shares of votes, without entries outside ``mask``.

    The loss ``log(1 + exp(z)) - y z`` is linear in the target, so that noise of mean 0 in it has no effect on average.
    The penalty ``ridge / 2 * |w|^2``, without the intercept, limits its effect on a single fit. The ridge of each label
    is the one of the lowest leave-one-out loss, approximated to first order without fitting again; it depends on
    released targets alone, not on private labels.

    Args:
        features: ``[N, ...]``, flattened; they should be of order 1.
        targets: ``[N, C]``, labels in {0, 1} or noisy shares of any size.
        mask: ``[N, C]``, which targets were released.
        ridges: strengths of the ridge to choose from.

    Raises:
        ValueError: on shapes that do not match, more than 2048 features, or nothing released.
    """
    x, y, seen = _with_intercept(features), np.asarray(targets, dtype=np.float64), np.asarray(mask, dtype=np.float64)
    _expect_matching(x, y, seen)
    expect(ridges and min(ridges) > 0, "ridges > 0", ridges=ridges)
    chosen, best = np.zeros((x.shape[1], y.shape[1])), np.full(y.shape[1], np.inf)
    weights = np.zeros_like(chosen)
    # from the strongest ridge to the weakest: each fit starts at the one before
    for ridge in sorted(ridges, reverse=True):
        weights, left_out = _fit(x, y, seen, ridge, weights)
        better = left_out < best
        chosen[:, better], best[better] = weights[:, better], left_out[better]
    return LinearStudent(chosen)


def _fit(
    x: FloatArray, y: FloatArray, seen: FloatArray, ridge: float, start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the weights ``[F + 1, C]`` at one ridge, and the leave-one-out loss of each label ``[C]``."""
    penalty = np.full(x.shape[1], ridge)
    penalty[-1] = 1e-3  # keeps the intercept finite for a label that no sample has
    weights = start.copy()
    loss = _loss(x, y, seen, penalty, weights)
    for _ in range(_STEPS):
        p = expit(x @ weights)
        slope = x.T @ (seen * (p - y)) + penalty[:, None] * weights
        step = np.linalg.solve(_curvature(x, seen * p * (1 - p), penalty), slope.T[..., None])[..., 0].T
        share = np.ones(y.shape[1])
        for _ in range(20):
            moved = _loss(x, y, seen, penalty, weights - share * step)
            worse = moved > loss + 1e-12 * np.abs(loss)
            if not worse.any():
                break
            share[worse] /= 2
        share[worse] = 0
        weights = weights - share * step
        gained, loss = loss - np.where(worse, loss, moved), np.where(worse, loss, moved)
        if (gained <= 1e-9 * (1 + np.abs(loss))).all():
            break
    z = x @ weights
    p = expit(z)
    inverse = np.linalg.inv(_curvature(x, seen * p * (1 - p), penalty))
    leverage = np.stack([np.einsum("nf,nf->n", x @ part, x) for part in inverse], axis=1)
    without = z + leverage * (p - y) / np.maximum(1 - leverage * p * (1 - p), 1e-3)
    return weights, (seen * (np.logaddexp(0, without) - y * without)).sum(axis=0)


def _loss(x: FloatArray, y: FloatArray, seen: FloatArray, penalty: FloatArray, weights: FloatArray) -> FloatArray:
    z = x @ weights
    total: FloatArray = (seen * (np.logaddexp(0, z) - y * z)).sum(axis=0) + penalty @ weights**2 / 2
    return total


def _curvature(x: FloatArray, importance: FloatArray, penalty: FloatArray) -> FloatArray:
    """Return the second derivatives ``[C, F + 1, F + 1]`` for weights of the samples ``[N, C]``."""
    return np.stack([(x * column[:, None]).T @ x for column in importance.T]) + np.diag(penalty)


def _expect_matching(x: FloatArray, y: FloatArray, seen: FloatArray) -> None:
    expect(y.ndim == 2 and len(y) == len(x), f"targets of shape [{len(x)}, C]", shape=y.shape)
    expect(seen.shape == y.shape, f"a mask of shape {list(y.shape)}", shape=seen.shape)
    expect_count(1, released=int(seen.sum()))
    expect(x.shape[1] - 1 <= _MOST_FEATURES, f"at most {_MOST_FEATURES} features", features=x.shape[1] - 1)


def _with_intercept(features: ArrayLike) -> FloatArray:
    flat = np.asarray(features, dtype=np.float64)
    flat = flat.reshape(len(flat), -1)
    return np.concatenate((flat, np.ones((len(flat), 1))), axis=1)
