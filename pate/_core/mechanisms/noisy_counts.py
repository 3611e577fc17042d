"""Mechanisms that release all scores with noise, or the moments of rows.

`LaplaceCounts` gives each score noise of its own, and `GammaCounts` all of them noise of one law,
with the density ``exp(-max_i abs(z_i) / scale)``. `add_cube` draws it, rounded as if it had all its
digits: a radius of the gamma law of shape d + 1, which is the sum of d + 1 exponential numbers,
times a uniform point of the cube (Hardt & Talwar (2010)). All are functions of uniform numbers, of
which floats hold 53 binary digits; where these and the logarithm leave a rounding open, further
digits are drawn.

`NoisyMoments` releases first and second moments, and `Moments` draws samples that have them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import Event, GaussianEvent, PureDPEvent
from pate._core.mechanisms.base import Checks, ScoreMechanism
from pate._core.mechanisms.exact_choice import sum_of_exponentials
from pate._core.mechanisms.noise import LazyReal, add_gaussian, decimal_precision, split
from pate._core.mechanisms.ranking import Rows, as_batch, with_noise
from pate._core.validation import FloatArray, require, require_count, require_positive


def add_cube(rows: Rows, *, scale: float, generator: np.random.Generator) -> FloatArray:
    """Return scores ``[B, d]`` with noise by row, on a grid of at least ``scale / 2^20``.

    The law is exact: real scores with noise are rounded to the nearest multiple of a power of two
    that follows from ``scale``, and then to float64.
    """
    on_grid, beyond, grid = split(rows, scale)
    steps = scale / grid
    tails, places = generator.random((len(rows), rows.shape[1] + 1)), generator.random(rows.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        radius = -np.log(tails).sum(axis=1, keepdims=True)
        moved = steps * radius * (2 * places - 1) + beyond
        nearest = np.rint(moved)
        # logarithms, as for choices by noisy scores, and the digits that are not drawn; sum and
        # product err by far less
        error = radius * 2.0**-38 + (2.0**-51 / tails).sum(axis=1, keepdims=True)
        doubtful = ~(np.abs(moved - nearest) < 0.5 - steps * error)
    for row in np.flatnonzero(doubtful.any(axis=1)).tolist():
        waits = [LazyReal.of(tail) for tail in tails[row]]
        for item in np.flatnonzero(doubtful[row]).tolist():
            place = LazyReal.of(places[row, item])
            nearest[row, item] = _rounded(
                Fraction(beyond[row, item]), Fraction(steps), waits, place, generator
            )
    return with_noise(on_grid, grid * nearest)


def _rounded(
    offset: Fraction,
    steps: Fraction,
    waits: list[LazyReal],
    place: LazyReal,
    generator: np.random.Generator,
) -> int:
    """Return the integer nearest to ``offset`` plus steps times the sum of waits times place."""
    while True:
        if all(wait.digits for wait in waits):
            with decimal_precision(place.length):
                radii = [Fraction(bound) for bound in sum_of_exponentials(waits)]
            ends = [radius * (2 * end - 1) for radius in radii for end in place.ends]
            low, high = (
                math.floor(offset + steps * end + Fraction(1, 2)) for end in (min(ends), max(ends))
            )
            if low == high:
                return low
        for digits in (*waits, place):
            digits.draw_more_bits(generator)


@dataclass(frozen=True, kw_only=True)
class LaplaceCounts(ScoreMechanism[FloatArray]):
    """Release every score with Laplace noise (Dwork et al. (2006)).

    The law is exact: real numbers, rounded to a public grid of at least ``scale / 2^20``.

    Privacy: pure DP of ``num_items / scale`` under both relations, because no count moves by more
    than one vote.

    >>> mechanism = LaplaceCounts(num_items=4, scale=2.0)
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0)).shape
    (4,)

    Args:
        num_items: the number of scores d, at least 1.
        scale: scale of the Laplace noise, in votes.

    Raises:
        ValueError: on ``num_items < 1`` or ``scale <= 0``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)
    checks: ClassVar[Checks] = {"num_items": partial(require_count, 1)}

    num_items: int
    scale: float

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> FloatArray:
        """Return noisy ``scores``, float64 of their shape, ``[num_items]`` or ``[B, num_items]``.

        Raises:
            ValueError: on scores that are not finite numbers, or not ``num_items`` of them.
        """
        rows, single = as_batch(scores)
        require(
            rows.shape[1] == self.num_items, f"{self.num_items} scores", num_items=rows.shape[1]
        )
        # in one dimension the law of the cube is Laplace's
        noisy = add_cube(rows.reshape(-1, 1), scale=self.scale, generator=generator).reshape(
            rows.shape
        )
        return noisy[0] if single else noisy

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(
            neighboring_relation=relation, epsilon=self.num_items * self.sensitivity / self.scale
        )


@dataclass(frozen=True, kw_only=True)
class GammaCounts(ScoreMechanism[FloatArray]):
    """Release every score with noise of density proportional to ``exp(-max_i abs(z_i) / scale)``.

    The mechanism of Hardt & Talwar (2010) for the largest norm (Steinke & Ullman (2015), Theorem
    4.1): a radius from a gamma law of shape d + 1, and a uniform point of the cube. The law is that
    of real numbers, rounded to a public grid of at least ``scale / 2^20``.

    Privacy: pure DP of ``1 / scale`` under both relations for any d, because no count moves by more
    than one vote.

    Args:
        scale: scale of the noise, in votes.

    Raises:
        ValueError: on ``scale <= 0``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> FloatArray:
        """Return noisy ``scores``, float64 of their shape, ``[d]`` or ``[B, d]``.

        Raises:
            ValueError: on scores that are not finite numbers.
        """
        rows, single = as_batch(scores)
        noisy = add_cube(rows, scale=self.scale, generator=generator)
        return noisy[0] if single else noisy

    def event(self, relation: NeighboringRelation) -> Event:
        return PureDPEvent(neighboring_relation=relation, epsilon=self.sensitivity / self.scale)


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
            blocks: rows ``[n, F]``; longer ones get norm 1, and the share ``[n]`` of each
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
