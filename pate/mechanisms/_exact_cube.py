"""Noise of density ``exp(-max_i abs(z_i) / scale)``, of the exact law.

It is rounded as if it had all its digits.

A radius of the gamma law of shape d + 1, which is the sum of d + 1 exponential numbers, times a
uniform point of the cube (Hardt & Talwar (2010)). All are functions of uniform numbers, of which
floats hold 53 binary digits; where these and the logarithm leave a rounding open, further digits
are drawn.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from pate._validation import FloatArray
from pate.mechanisms._exact_normal import LazyReal, split
from pate.mechanisms._exact_rejection import sum_of_exponentials
from pate.mechanisms._intervals import decimal_precision
from pate.mechanisms._ranking import Rows, with_noise


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
