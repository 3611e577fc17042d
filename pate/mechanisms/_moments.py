"""Noisy first and second moments of rows, and samples that have them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pate._validation import FloatArray, require_positive
from pate.accounting import Event, GaussianEvent, NeighboringRelation
from pate.mechanisms._exact_normal import add_gaussian

# of the square that extends a row of norm 1: products have less noise than with 1, and means more
_EXTRA = 1 / 3
_BITS = 14  # of an entry of a row: sums of products over 2^24 rows are exact in float64
_SLACK = 1 - 2.0**-30  # rounding of norms and roots is far less than that
_ROUNDS = 6  # in which the lengths of drawn rows are corrected
_STEP = 0.7
_LEAST = 1e-3  # of a mean square of 1, which drawn samples keep whatever the noise said


@dataclass(frozen=True, eq=False, kw_only=True)
class Moments:
    """Noisy mean moments of rows.

    Attributes:
        mean: ``[F]``, the mean row.
        products: ``[F, F]``, the mean of the rows' outer products.
        error: the standard deviation of the noise in a product off the diagonal. The mean has
            ``sqrt(3)`` times as much.
    """

    mean: FloatArray
    products: FloatArray
    error: float

    def draw(self, num_samples: int, *, generator: np.random.Generator) -> FloatArray:
        """Draw samples ``[P, F]`` of norm 1 at most with about these moments.

        The mean is shrunk to the mean of its entries, and the covariance to one variance for all
        directions, but for directions that stick out of the noise: of a symmetric matrix of noise
        with standard deviation ``s``, eigenvalues reach ``e = 2 s sqrt(F)``, give or take a share
        of ``F^(-2/3)``, and one of ``l`` beyond it is best replaced by ``sqrt(l^2 - e^2)`` (Gavish
        & Donoho (2017), for square matrices in the Frobenius norm). Before rows are cut to norm 1
        they have this mean and covariance exactly, if there are more of them than columns: chance
        would add spread to directions of equal variance.
        """
        size = len(self.mean)
        center = self.mean.mean()
        noise = self.error**2 / _EXTRA
        spread = max(float(((self.mean - center) ** 2).mean()) - noise, 0.0)
        mean = center + (self.mean - center) * (spread / (spread + noise))
        covariance = self.products - np.outer(mean, mean)
        common = min(max(float(np.trace(covariance)) / size, _LEAST / size), 1 / size)
        values, directions = np.linalg.eigh(covariance - common * np.eye(size))
        edge = 2 * self.error * math.sqrt(size) * (1 + size ** (-2 / 3))
        wider = np.where(values > edge, np.sqrt(np.maximum(values**2 - edge**2, 0)), 0)
        # what follows from the release needs no noise of its own
        random = np.random.default_rng(int(generator.integers(1 << 62)))
        normal = random.standard_normal((num_samples, size))
        if num_samples > size:
            normal = np.linalg.qr(normal - normal.mean(axis=0))[0] * math.sqrt(num_samples)
        deviations = wanted = np.sqrt(common + wider)
        for _ in range(_ROUNDS):
            samples = mean + (normal * deviations) @ directions.T
            samples /= np.maximum(1, np.linalg.norm(samples, axis=1, keepdims=True))
            # rows that were too long and are cut leave less of the widest directions
            kept = ((samples - mean) @ directions).std(axis=0)
            deviations = deviations * (wanted / np.maximum(kept, wanted / 2)) ** _STEP
        return np.asarray(samples)


@dataclass(frozen=True, kw_only=True)
class NoisyMoments:
    """Release the sum of outer products of rows, with Gaussian noise.

    A row of norm 1 at most is extended by a constant ``sqrt(1/3)`` and divided by ``sqrt(4/3)``, so
    that one matrix holds the number of rows, their sum and the sum of their products. Rows are
    rounded toward zero to multiples of ``2^-14``, so that sums are exact.

    Privacy: a Gaussian mechanism of ``noise_multiplier`` under both relations. With outer products
    ``A`` and ``B`` of norm 1 at most, replacing a row moves the matrix by ``|A - B| <= sqrt(2)`` in
    Frobenius norm, because their inner product is not negative; adding one moves it by 1. An entry
    off the diagonal counts twice in this norm and is released once, with noise of ``1 / sqrt(2)``
    of the diagonal's. A unit of several rows counts as the mean of their products, for which the
    same holds.

    >>> blocks = [(np.full((1000, 2), 0.5), np.ones(1000))]
    >>> mechanism = NoisyMoments(noise_multiplier=1.0)
    >>> mechanism(blocks, generator=seeded_generator(0)).mean.round(1)
    array([0.5, 0.5])

    Args:
        noise_multiplier: the noise multiplier.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        require_positive(noise_multiplier=self.noise_multiplier)

    def event(self, relation: NeighboringRelation) -> Event:
        """Describe the cost of the release."""
        return GaussianEvent(neighboring_relation=relation, noise_multiplier=self.noise_multiplier)

    def __call__(
        self, blocks: Iterable[tuple[FloatArray, FloatArray]], *, generator: np.random.Generator
    ) -> Moments:
        """Return noisy moments.

        Args:
            blocks: rows ``[n, F]``, longer ones of which get norm 1, and the share ``[n]`` of each
                in its unit: 1 if units have one row.
            generator: source of the noise.
        """
        exact = sum_of_products(blocks)
        grid = float(1 << 2 * _BITS)
        sigma = math.sqrt(2) * self.noise_multiplier * grid
        upper = np.triu_indices(len(exact), 1)
        noisy = np.diag(add_gaussian(np.diag(exact), sigma=sigma, generator=generator))
        off = add_gaussian(exact[upper], sigma=sigma / math.sqrt(2), generator=generator)
        noisy[upper] = off
        noisy.T[upper] = off
        noisy *= (1 + _EXTRA) / grid
        error = (1 + _EXTRA) * self.noise_multiplier
        # where noise may be all that was counted, a smaller number would magnify it
        count = max(float(noisy[-1, -1]), 2 * math.sqrt(2) * error) / _EXTRA
        return Moments(
            mean=noisy[:-1, -1] / (count * math.sqrt(_EXTRA)),
            products=noisy[:-1, :-1] / count,
            error=error / count,
        )


def sum_of_products(blocks: Iterable[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Return the exact sum ``[F + 1, F + 1]`` of blocks as `NoisyMoments` takes them, by 2^-28."""
    total: FloatArray | float = 0.0
    for rows, shares in blocks:
        lengths = np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
        extended = np.column_stack((rows / lengths, np.full(len(rows), math.sqrt(_EXTRA))))
        scale = np.sqrt(shares / (1 + _EXTRA)) * ((1 << _BITS) * _SLACK)
        whole = np.trunc(extended * scale[:, None])
        total = total + whole.T @ whole
    return np.asarray(total)
