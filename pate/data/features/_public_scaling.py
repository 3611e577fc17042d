"""Columns in units of their own, and rows of about unit length, by public samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pate._validation import Float32Array, FloatArray, require
from pate.data._records import FeatureMap, Features, blocks_of

# of public samples while the map is fitted: of more, as many at equal distances
_HELD_BYTES = 1 << 28
# a table is of one unit if most columns' units differ from the middle one by less
_ALIKE, _MOST = 10.0, 0.9
_FARTHEST = 10.0  # units
_ROWS = 4096
_COLUMNS = 64  # sorted at once


class PublicScaling(FeatureMap):
    """Columns in comparable units and rows of about unit length: one learning rate suits any table.

    A column is centered at its public median, clipped at 10 units on either side and divided by its
    unit: the median distance of the public values that differ from the median. So the scale of a
    word in few texts, or of a pixel that is mostly black, is the size of its values and not their
    frequency, and outliers do not move it. If nine tenths of the columns have units within a factor
    of 10 of the median unit, as words, pixels and components do, these are divided by the median
    unit: wider columns among them carry more information. A column that is constant on public
    samples becomes 0.

    A row ``x`` then becomes ``sqrt(2) x / sqrt(m^2 + |x|^2)``, where ``m`` is the public median
    length: the median row has length 1 and none exceeds ``sqrt(2)``, so that long rows, and extreme
    private ones, count for little more.
    """

    by_rows = True

    def __init__(self) -> None:
        self._centre: Float32Array | None = None
        self._bounds: FloatArray = np.empty(0)
        self._units: FloatArray = np.empty(0)
        self._length = 1.0

    def fit(self, public: Features) -> PublicScaling:
        """Fit on public features ``[N, ...]``, flattened.

        Raises ``ValueError`` if all samples are alike.
        """
        if self._centre is None:
            num, width = public.shape[0], prod(public.shape[1:])
            rows = np.arange(0, num, max(1, -(-4 * num * width // _HELD_BYTES)))
            values = public[rows].reshape(len(rows), width)
            centre, units = _centre_and_units(values)
            varies = units > 0
            require(varies.any(), "public features that differ")
            middle = float(np.median(units[varies]))
            alike = (units > middle / _ALIKE) & (units < middle * _ALIKE)
            shared = alike if alike[varies].mean() >= _MOST else np.zeros_like(alike)
            self._bounds = _FARTHEST * units
            self._units = np.where(shared, middle, np.where(varies, units, 1))
            self._centre = centre
            parts = np.array_split(values, -(-len(rows) // _ROWS))
            lengths = np.concatenate([_lengths(self._departures(part)) for part in parts])
            self._length = float(np.median(lengths[lengths > 0]))
        return self

    def transform(self, features: Features) -> Float32Array:
        """Map features ``[N, ...]`` to as many, held in memory, each row by itself."""
        mapped = np.empty(features.shape, dtype=np.float32)
        for index in blocks_of(features, range(len(mapped))):
            departures = self._departures(features[index].reshape(len(index), -1))
            scaled = (
                departures * np.sqrt(2 / (self._length**2 + _lengths(departures) ** 2))[:, None]
            )
            mapped[index] = scaled.reshape(len(index), *features.shape[1:])
        return mapped

    @property
    def module_arguments(self) -> dict[str, int]:
        """The arguments of the torch module that maps as this map does."""
        return {}

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what was fitted on records of ``shape``, by the names in a student's file."""
        assert self._centre is not None, "fit comes before state"
        columns: dict[str, NDArray[Any]] = {
            "centre": self._centre,
            "bounds": self._bounds,
            "units": self._units,
        }
        return {name: values.reshape(shape) for name, values in columns.items()} | {
            "length": np.array(self._length)
        }

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the fitted map that `state` described."""
        made = cls()
        made._centre, made._bounds, made._units = (
            state[name].ravel() for name in ("centre", "bounds", "units")
        )
        made._length = float(state["length"])
        return made

    def _departures(self, values: Float32Array) -> FloatArray:
        assert self._centre is not None, "fit comes before transform"
        distances = (values.astype(np.float64) - self._centre).clip(-self._bounds, self._bounds)
        return np.asarray(distances / self._units)


def _lengths(rows: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt((rows**2).sum(axis=1)))


def _centre_and_units(values: Float32Array) -> tuple[Float32Array, FloatArray]:
    """Return the medians ``[F]`` of columns ``[N, F]``, and the median distances of other values.

    The upper of two middle values is taken. A column of one value has a unit of 0.
    """
    num, width = values.shape
    centre, units = np.empty(width, dtype=np.float32), np.empty(width)
    for start in range(0, width, _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        part = np.sort(values[:, columns].astype(np.float64), axis=0)
        centre[columns] = part[num // 2]
        distances = np.sort(np.abs(part - part[num // 2]), axis=0)
        middle = np.minimum(((distances == 0).sum(axis=0) + num) // 2, num - 1)
        units[columns] = distances[middle, np.arange(distances.shape[1])]
    return centre, units
