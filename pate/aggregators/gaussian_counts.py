"""Gaussian noise on a matrix of counts or sums, rounded to a public grid."""

import math

import numpy as np
from numpy.typing import ArrayLike

from pate.typing import FloatArray

_ROWS = 1024  # rows worked on at once, so that the intermediate arrays stay in cache


def add_gaussian(values: ArrayLike, *, sigma: float, generator: np.random.Generator) -> FloatArray:
    """Return ``values`` ``[Q, C]`` with Gaussian noise of ``sigma``, on a grid of spacing at least ``sigma / 2^20``."""
    exact = np.asarray(values)
    grid = 2.0 ** math.ceil(math.log2(sigma) - 20)
    noisy = np.empty(exact.shape)
    for start in range(0, len(exact), _ROWS):
        part = noisy[start : start + _ROWS]
        generator.standard_normal(out=part)
        part *= sigma / grid
        part += exact[start : start + _ROWS] / grid
        np.rint(part, out=part)
        part *= grid
    return noisy
