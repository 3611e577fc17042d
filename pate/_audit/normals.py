"""Tests of numbers that are independent and standard normal if the noise has its stated law.

Gaussian noise in units of its deviation is such a number. An outcome of a discrete law becomes one
by the normal quantile of a uniform number in its interval (Rosenblatt (1952)), so that one set of
tests serves all mechanisms.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import chi2, kstest, t as student

from pate._validation import FloatArray, IntArray

FACTORS = (0.7, 0.5)
"""Faults that the power of a test is stated for: so much of the noise is drawn."""
_LARGEST = 40.0  # a normal number that is impossible
_UNITS = 1500  # whose pairs are compared: all of a smaller axis, a part of a longer one
_LEAST = 8  # numbers in a unit, for its correlation with others


@dataclass(frozen=True)
class Gaussians:
    """Gaussian noise in units of the stated deviation.

    Attributes:
        values: the numbers, of any shape.
    """

    values: FloatArray

    def normals(self, generator: np.random.Generator) -> FloatArray:
        """Return the numbers themselves."""
        return self.values

    def simulated(self, factor: float, generator: np.random.Generator) -> FloatArray:
        """Return such numbers with ``factor`` times the noise."""
        return factor * generator.standard_normal(self.values.shape)


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of discrete laws.

    Attributes:
        chances: the chances ``[n, m]`` of m outcomes, by the factor of the noise: 1 and `FACTORS`.
        chosen: the outcome ``[n]``; -1 for one that has no chance.
    """

    chances: Mapping[float, FloatArray]
    chosen: IntArray

    def normals(self, generator: np.random.Generator) -> FloatArray:
        """Return a normal number ``[n]`` for each outcome.

        Outcomes are sorted by how much likelier they are with less noise, so that the mean shows
        it.
        """
        return self._normals(self.chosen, generator)

    def simulated(self, factor: float, generator: np.random.Generator) -> FloatArray:
        """Return the normal numbers of outcomes that are drawn with ``factor`` times the noise."""
        levels = np.cumsum(self.chances[factor], axis=1)
        drawn = generator.random((len(levels), 1)) * levels[:, -1:]
        return self._normals((levels < drawn).sum(axis=1), generator)

    def _normals(self, chosen: IntArray, generator: np.random.Generator) -> FloatArray:
        stated, faulty = self.chances[1.0], self.chances[FACTORS[0]]
        order = np.argsort(-(faulty + 1e-12) / (stated + 1e-12), axis=1, kind="stable")
        levels = np.cumsum(np.take_along_axis(stated, order, axis=1), axis=1)
        rank = (order == chosen[:, None]).argmax(axis=1)
        rows = np.arange(len(chosen))
        high = levels[rows, rank]
        width = stated[rows, chosen]
        uniform = (high - width * generator.random(len(chosen))) / levels[:, -1]
        impossible = (chosen < 0) | (width <= 0)
        normals = ndtri(np.clip(uniform, 1e-300, 1 - 1e-16))
        return np.where(impossible, _LARGEST, normals)


def p_values(normals: FloatArray, axes: tuple[str, ...]) -> dict[str, float]:
    """Return a p-value of each test of numbers ``[...]`` with these names of their axes.

    The size, the mean and the law of all numbers are tested, and along each axis the sums and the
    pairs of its units. All laws are exact but for Kolmogorov and Smirnov's, which is close.
    """
    flat = normals.ravel()
    found = {
        "size": _two_sided(float((flat**2).sum()), flat.size),
        "mean": 2 * float(ndtr(-abs(flat.sum()) / np.sqrt(flat.size))),
        "law": float(kstest(flat, "norm").pvalue),
    }
    for place, name in enumerate(axes):
        units = np.moveaxis(normals, place, 0).reshape(normals.shape[place], -1)
        if len(units) < 2:
            continue
        sums = (units.sum(axis=0) ** 2).sum() / len(units)
        found[f"sums over {name}"] = _two_sided(float(sums), units.shape[1])
        if units.shape[1] >= _LEAST:
            found[f"pairs of {name}"] = _pairs(units[:_UNITS])
    return found


def _two_sided(squares: float, freedom: int) -> float:
    return min(1.0, 2 * float(min(chi2.cdf(squares, freedom), chi2.sf(squares, freedom))))


def _pairs(units: FloatArray) -> float:
    """Return the p-value of the largest correlation of two among ``units`` ``[k, n]``, times k."""
    # units of zeros, which another test finds, have no correlation
    lengths = np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1e-150)
    cosines = (units / lengths) @ (units / lengths).T
    largest = float(np.abs(cosines[np.triu_indices(len(units), 1)]).max())
    freedom = units.shape[1] - 1
    if largest >= 1 - 1e-12:
        return 0.0
    statistic = largest * np.sqrt(freedom / (1 - largest**2))
    return min(1.0, len(units) * (len(units) - 1) * float(student.sf(statistic, freedom)))
