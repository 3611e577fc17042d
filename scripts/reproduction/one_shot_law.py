"""How likely noise that is added once gives a top-k, great or good set: integrals in place of trials.

Let h of the best items have to be in the set, let t be the last rank allowed, and let V be the
largest noisy score that is left out. The set passes if the h items lie above V, just ``k - h`` of
the ranks h + 1..t do, and none beyond t does. Given V these are independent, so the probability is
one integral over V, of products over the items and of the law of a sum of independent coins.
"""

from __future__ import annotations

import numpy as np
from scipy.signal import fftconvolve

from pate._core.mechanisms.noise import Noise, log_survival, require_noise
from pate._core.validation import FloatArray, require, require_count, require_positive

# scales from the k-th score beyond which nothing has a probability that float64 adds to 1
_REACH = 45.0
_STEP = 0.1  # scales between the points of the integral
_LOST = -23.0  # log of a probability that is taken for 0
# smaller values are rounding error of the convolutions, which differs between machines
_ROUNDED = 1e-13
_SURE = 1e-12  # chance of a coin that is taken for 0, or for 1 on the other side


def probability_within(
    scores: FloatArray, *, k: int, scale: float, noise: Noise, head: int, tail: int
) -> float:
    """Return how likely the set of `pate.mechanisms.NoisyTopK` has the ``head`` best items and none beyond ``tail``.

    With Gumbel noise it is as likely for `pate.mechanisms.GumbelPeeling`: its set has the same
    law. Probabilities below 1e-13 are taken for 0.

    Args:
        scores: ``[d]``, in descending order.
        k: size of the set, 1..d-1.
        scale: scale of the noise, in votes.
        noise: name of the noise.
        head: number of items that have to be in the set, 0..k.
        tail: last rank that the set may have, k..d.

    Raises:
        ValueError: on ascending scores, ``scale <= 0``, an unknown noise, or numbers outside of
            their range.
    """
    require_count(1, k=k)
    require(k < scores.size, f"k < {scores.size}", k=k)
    require_positive(scale=scale)
    require_noise(noise)
    require(
        0 <= head <= k <= tail <= scores.size,
        f"0 <= head <= {k} <= tail <= {scores.size}",
        head=head,
        tail=tail,
    )
    require((np.diff(scores) <= 0).all(), "scores in descending order", scores="others")
    return _within((scores - scores[k - 1]) / scale, k, head, tail, noise)


def log_distribution(values: FloatArray, noise: Noise) -> FloatArray:
    """Return the logarithm of the probability that noise of scale 1 is at most ``values``, of any shape."""
    if noise == "gumbel":
        below: FloatArray = -np.exp(-np.maximum(values, -700.0))
        return below
    if noise in ("laplace", "logistic"):  # symmetric
        return log_survival(-values, noise)
    return _log_of_rest(log_survival(values, noise))


def _log_of_rest(log_probability: FloatArray) -> FloatArray:
    """Return the logarithm of 1 minus a probability."""
    with np.errstate(divide="ignore"):
        rest: FloatArray = np.log(-np.expm1(log_probability))
    return rest


def _within(distances: FloatArray, k: int, head: int, tail: int, noise: Noise) -> float:
    """Integrate over the largest noisy score that is left out, in scales above the k-th score."""
    at = np.arange(-_REACH, _REACH + _STEP, _STEP)
    log_heads = log_survival(at[:, None] - distances[:head], noise).sum(axis=1)
    at, log_heads = at[log_heads > _LOST], log_heads[log_heads > _LOST]
    values, counts = np.unique(distances[tail:], return_counts=True)
    log_rest = np.zeros(at.size)
    if values.size:
        # first by the best of them, then by all of them
        log_rest = counts[-1] * log_distribution(at - values[-1], noise)
        near = log_rest > _LOST
        log_rest[~near] = -np.inf
        log_rest[near] = log_distribution(at[near, None] - values, noise) @ counts
    held = np.flatnonzero(log_rest > _LOST)
    if not held.size:
        return 0.0
    kept = slice(max(int(held[0]) - 1, 0), None)  # from the last point of next to no mass
    heads, rest = np.exp(log_heads[kept]), np.exp(log_rest[kept])
    between = distances[head:tail]
    # a chance is least at the last point and largest at the first
    sure = np.exp(log_survival(at[-1] - between, noise)) >= 1 - _SURE
    possible = np.exp(log_survival(at[kept][0] - between, noise)) > _SURE
    sizes = _sizes(np.exp(log_survival(at[kept, None] - between[~sure & possible], noise)))
    missing = k - head - int(sure.sum())
    just = sizes[:, missing] if 0 <= missing < sizes.shape[1] else np.zeros(len(sizes))
    more = sizes[:, max(missing + 1, 0) :].sum(axis=1)

    def integral(stride: int) -> float:
        heads_, rest_, just_, more_ = (values[::stride] for values in (heads, rest, just, more))
        return float(
            (
                _middle(heads_ * rest_) * -np.diff(more_) + _middle(heads_ * just_) * np.diff(rest_)
            ).sum()
        )

    # the error falls with the square of the step: two steps give the error of both
    probability = (4 * integral(1) - integral(2)) / 3 + float(heads[0] * rest[0] * just[0])
    return min(probability, 1.0) if probability > _ROUNDED else 0.0


def _middle(values: FloatArray) -> FloatArray:
    between: FloatArray = (values[1:] + values[:-1]) / 2
    return between


def _sizes(chances: FloatArray) -> FloatArray:
    """Return the law ``[n, m + 1]`` of the number of heads of m independent coins ``[n, m]``, by products in pairs."""
    laws = np.stack((1 - chances, chances), axis=2)
    if not laws.shape[1]:
        return np.ones((len(chances), 1))
    size = chances.shape[1] + 1
    while laws.shape[1] > 1:
        if laws.shape[1] % 2:
            surely_none = np.zeros((len(laws), 1, laws.shape[2]))
            surely_none[:, :, 0] = 1
            laws = np.concatenate((laws, surely_none), axis=1)
        laws = np.maximum(fftconvolve(laws[:, ::2], laws[:, 1::2], axes=2), 0.0)
    return laws[:, 0, :size]
