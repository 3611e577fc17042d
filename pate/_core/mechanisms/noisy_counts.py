"""Mechanisms that release all scores with noise.

`LaplaceCounts` gives each score noise of its own, and `GammaCounts` all of them noise of one law,
with the density ``exp(-max_i abs(z_i) / scale)``. `add_cube` draws it, rounded as if it had all its
digits: a radius of the gamma law of shape d + 1, which is the sum of d + 1 exponential numbers,
times a uniform point of the cube (Hardt & Talwar (2010)). All are functions of uniform numbers, of
which floats hold 53 binary digits; where these and the logarithm leave a rounding open, further
digits are drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import Event, PureDPEvent
from pate._core.mechanisms.base import Checks, ScoreMechanism
from pate._core.mechanisms.exact_choice import sum_of_exponentials
from pate._core.mechanisms.noise import LazyReal, decimal_precision, split
from pate._core.mechanisms.ranking import Rows, as_batch, with_noise
from pate._core.validation import FloatArray, require, require_count


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
