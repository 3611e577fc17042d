"""Least squares on noised moments: one release, whatever the number of features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pate._core.validation import FloatArray, require_positive
from pate._labeling.aggregators.clipped_votes import MEDIAN_SPARE, noisy_median
from pate.accounting import Event, GaussianEvent, NeighboringRelation
from scripts.rivals.contributions import Contributions

_MEDIAN_SHARE = 0.05  # of the budget, for the clip


@dataclass(frozen=True)
class Moments:
    """Sums over units: ``products`` ``[F, F]``, ``crosses`` ``[F, C]`` with labels, ``count``.

    A unit contributes the mean over its records of ``x x^T`` and ``x y^T``, and 1 to the count.
    Labels ``y`` are in {0, 1}, less a ``shift`` and scaled down to a norm of at most ``clip``.
    """

    products: FloatArray
    crosses: FloatArray
    count: float
    clip: float
    shift: float = 0.0

    @classmethod
    def of(cls, private: Contributions, clip: float, shift: float = 0.0) -> Moments:
        """Return the exact moments. PRIVATE."""
        x, y = private.features.astype(np.float64), private.labels.astype(np.float64) - shift
        y *= np.minimum(1, clip / np.maximum(1e-12, np.linalg.norm(y, axis=1)))[:, None]
        weighted = (x * private.shares[:, None]).T
        return cls(weighted @ x, weighted @ y, float(len(private.starts)), clip, shift)


class Coding(NamedTuple):
    """How labels are coded, and the noise multiplier that is left for their moments."""

    clip: float
    shift: float
    noise_multiplier: float


def noisy_coding(
    private: Contributions, noise_multiplier: float, *, generator: np.random.Generator
) -> Coding:
    """Return the coding of labels with the least clip.

    The coding and the moments cost one ``noise_multiplier`` together.

    Labels in {0, 1} are clipped at 1.2 times a private median of their norms; a
    unit's norm is the mean over its records. Less one half, all have a norm of ``sqrt(C) / 2``,
    which is less where labels are dense. Noise in a comparison is drawn for one unit that moves it
    by one, and the nominal number of units has three digits.
    """
    num_labels, sizes = private.labels.shape[1], private.sizes
    norms = np.add.reduceat(np.linalg.norm(private.labels, axis=1) * private.shares, private.starts)
    steps = math.ceil(math.log2(num_labels)) if num_labels > 1 else 0
    sigma = noise_multiplier * math.sqrt(steps / _MEDIAN_SHARE)
    candidates = np.sqrt(np.arange(1.0, num_labels + 1))
    nominal = float(f"{len(sizes):.3g}")
    clip = MEDIAN_SPARE * noisy_median(
        norms, candidates, num_voters=nominal, sigma=sigma, generator=generator
    )
    half, left = (
        math.sqrt(num_labels) / 2,
        noise_multiplier / math.sqrt(1 - (_MEDIAN_SHARE if steps else 0)),
    )
    return Coding(clip, 0.0, left) if clip < half else Coding(half, 0.5, left)


def moments_event(noise_multiplier: float) -> Event:
    """Return the cost of `noised_moments` or `noised_crosses` at ``noise_multiplier``."""
    return GaussianEvent(
        noise_multiplier=noise_multiplier, neighboring_relation=NeighboringRelation.REPLACE_RECORD
    )


def noised_moments(
    exact: Moments, noise_multiplier: float, *, generator: np.random.Generator
) -> Moments:
    """Return products and crosses with Gaussian noise; the count is not looked at.

    With ``m`` the noise multiplier and ``c`` the clip, crosses get a standard deviation of ``2 c
    m``, products ``2 sqrt(2) m`` on the diagonal and ``2 m`` off it, one draw for both places of a
    pair. Measured in units of that noise, altering a unit moves the release by at most ``1 / m``:

    A record is ``(x, y)`` with ``|x| <= 1`` and ``|y| <= c``. The products of two records ``x, x'``
    differ by ``d^2 = |x|^4 + |x'|^4 - 2 (x.x')^2`` in the Frobenius norm, which counts places off
    the diagonal twice, as do the diagonal's ``8 m^2`` over the others' ``4 m^2``. The crosses
    differ by ``e^2 = |x|^2 |y|^2 + |x'|^2 |y'|^2 - 2 (x.x') (y.y') <= c^2 (|x|^2 + |x'|^2 + 2
    |x.x'|)``. With ``s = |x.x'|``, the sum ``d^2 / 8 + e^2 / (4 c^2)`` is at most ``1 / 4 + 1 / 2 +
    (2 s - s^2) / 4 <= 1``. It is 1 for two opposite ``x`` of norm 1 with the same labels of norm
    ``c``, for which only the crosses would need as much noise: the products come for free. A record
    that is added or removed moves the release by no more than ``3 / 8`` of ``1 / m^2``. A group
    contributes a mean of such points, and the distance of two means is at most the largest distance
    of two points.
    """
    require_positive(noise_multiplier=noise_multiplier)
    size = exact.products.shape
    upper = np.triu(generator.normal(scale=2 * noise_multiplier, size=size), 1)
    diagonal = np.diag(generator.normal(scale=2 * math.sqrt(2) * noise_multiplier, size=size[0]))
    crosses = _noised(exact, noise_multiplier, generator)
    return Moments(
        exact.products + upper + upper.T + diagonal, crosses, math.nan, exact.clip, exact.shift
    )


def noised_crosses(
    exact: Moments,
    public_products: FloatArray,
    noise_multiplier: float,
    *,
    generator: np.random.Generator,
) -> Moments:
    """Return noisy crosses and count, and products from public features ``[F, F]`` in their mean.

    Crosses get a standard deviation of ``2 c m``, ``c`` being the clip, the count ``2 / sqrt(3)
    m``. Altering a unit moves the crosses by at most ``2 c`` and the count not at all; adding or
    removing one moves them by ``c`` and 1, which is ``1 / 4 + 3 / 4`` of ``1 / m^2``: the count
    comes for free.
    """
    require_positive(noise_multiplier=noise_multiplier)
    crosses = _noised(exact, noise_multiplier, generator)
    count = max(1.0, exact.count + generator.normal(scale=2 / math.sqrt(3) * noise_multiplier))
    return Moments(public_products * count, crosses, count, exact.clip, exact.shift)


def solve_ridge(noised: Moments, noise_multiplier: float) -> FloatArray:
    """Return weights ``[F, C]``, with a ridge of the expected spectral norm of the noise.

    A symmetric matrix with independent normal entries of standard deviation ``2 m`` has a spectral
    norm near ``4 m sqrt(F)`` (Anderson, Guionnet & Zeitouni (2010), Theorem 2.1.22): the ridge
    keeps all directions positive.
    """
    values, vectors = np.linalg.eigh(noised.products)
    ridge = 4 * noise_multiplier * math.sqrt(len(values))
    # the rest below it is noise, too
    inverse = 1 / np.maximum(values + ridge, ridge / 2)
    weights: FloatArray = (vectors * inverse) @ (vectors.T @ noised.crosses)
    return weights


def solve_known(noised: Moments, noise_multiplier: float) -> FloatArray:
    """Return weights ``[F, C]`` of least expected error for known products and noisy crosses.

    The prior is normal with equal variance in all directions, so large that predictions have the
    mean square of labels of the size of the clip: its square, over the number of labels and the
    trace of the mean product.
    """
    values, vectors = np.linalg.eigh(noised.products)
    values = np.maximum(values, 0)
    # the noise's variance over the prior's, from both of which the clip cancels
    ridge = (
        4
        * noised.crosses.shape[1]
        * noise_multiplier**2
        * max(float(values.sum()), 1e-300)
        / noised.count
    )
    weights: FloatArray = (vectors * (values / (values**2 + ridge))) @ (vectors.T @ noised.crosses)
    return weights


def _noised(exact: Moments, noise_multiplier: float, generator: np.random.Generator) -> FloatArray:
    scale = 2 * exact.clip * noise_multiplier
    return exact.crosses + generator.normal(scale=scale, size=exact.crosses.shape)
