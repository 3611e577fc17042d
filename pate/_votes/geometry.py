"""Public features as coordinates along their principal directions, on a grid of integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag

from pate._linear import Directions, flat
from pate._validation import FloatArray, IntArray, require

Int32Array = NDArray[np.int32]

_DIRECTIONS = 1 << 12  # of the features, the widest ones
# bits of a coordinate, and of a slope: sums of products over all directions are below 2^53
COORDINATE_BITS = 20
_SPARE = 4  # a coordinate may be so many times as large as the largest public one
_ENTRIES = 1 << 22  # numbers worked on at once


@dataclass(frozen=True, eq=False)
class Geometry:
    """Public features as coordinates along their principal directions, on a grid of integers.

    Attributes:
        centre: ``[F]`` float64, the mean of the public features as whole numbers of ``step``.
        axes: ``[F, R]`` float64, the directions, the widest first, as whole numbers of a power of
            two.
        step: the grid of the features, which are clipped to `_SPARE` times the largest public one.
        unit: the grid of the coordinates, in units of the features.
        variances: ``[R]``, the mean squares of the public coordinates, above 0.
        samples: ``[P, R]`` int32, the coordinates of the public samples, in units of ``unit``.
        parts: ``[R]``, the part of the features that each direction lies in, from 0.
    """

    centre: FloatArray
    axes: FloatArray
    step: float
    unit: float
    variances: FloatArray
    samples: Int32Array
    parts: IntArray

    @classmethod
    def of(cls, features: ArrayLike, widths: Sequence[int] = ()) -> Geometry:
        """Return the geometry of public features ``[P, ...]``, flattened.

        Args:
            features: the features.
            widths: the numbers of columns of parts, each with directions of its own; empty for one
                part.

        Raises:
            ValueError: with fewer than two samples, with features that are not finite, or all
                alike.
        """
        public = flat(features)
        require(len(public) >= 2, "features of two public samples or more", samples=len(public))
        require(np.isfinite(public).all(), "finite features", features="others")
        spaces = [Directions.of(part) for part in np.split(public, np.cumsum(widths)[:-1], axis=1)]
        most = _DIRECTIONS // len(spaces)
        right = [space.right[:, :most] for space in spaces]
        parts = np.repeat(np.arange(len(right)), [axes.shape[1] for axes in right])
        require(parts.size, "public features that differ", directions=0)
        bits = _feature_bits(public.shape[1])
        step = power_above(_SPARE * float(np.abs(public).max())) / (1 << bits)
        centre = np.rint(np.concatenate([space.centre for space in spaces]) / step)
        # of wide features each copy takes as much memory as all else
        axes = right[0] if len(right) == 1 else block_diag(*right)
        del spaces, right
        axes *= 1 << bits
        np.rint(axes, out=axes)
        exact = np.concatenate(
            [
                _projected(public[rows], centre, axes, step)
                for rows in blocks(len(public), sum(axes.shape))
            ]
        )
        unit = power_above(_SPARE * float(np.abs(exact).max())) / (1 << COORDINATE_BITS)
        samples = _quantize(exact, unit)
        variances = (samples.astype(np.float64) ** 2).mean(axis=0) * unit**2
        held = variances > 0
        axes = axes if held.all() else axes[:, held]
        return cls(centre, axes, step, unit, variances[held], samples[:, held], parts[held])

    @property
    def num_directions(self) -> int:
        """The number of directions."""
        return len(self.variances)

    @property
    def first_part(self) -> Geometry:
        """The directions of the first part, of the same features; itself, if there is one part."""
        number = int((self.parts == self.parts[0]).sum())
        if number == self.num_directions:
            return self
        names = ("axes", "variances", "samples", "parts")
        return replace(self, **{name: getattr(self, name)[..., :number] for name in names})

    def coordinates(self, features: ArrayLike) -> Int32Array:
        """Return coordinates ``[N, R]`` of features ``[N, ...]``, row by row, by ``unit``."""
        inner = flat(features)
        require(
            inner.shape[1] == len(self.centre),
            f"features of {len(self.centre)} numbers",
            features=inner.shape[1],
        )
        coordinates = np.empty((len(inner), self.num_directions), dtype=np.int32)
        for rows in blocks(len(inner), sum(self.axes.shape)):
            coordinates[rows] = _quantize(
                _projected(inner[rows], self.centre, self.axes, self.step), self.unit
            )
        return coordinates

    def linear(self, features: ArrayLike) -> FloatArray:
        """Return coordinates ``[N, R]`` of features ``[N, ...]``, in their units, on no grid."""
        inner = flat(features) - self.centre * self.step
        return np.asarray(inner @ self.axes / (1 << _feature_bits(len(self.centre))))


def blocks(num_rows: int, entries: int) -> list[slice]:
    """Return rows in blocks of a few million numbers, at ``entries`` numbers a row."""
    step = max(1, _ENTRIES // max(1, entries))
    return [slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]


def _feature_bits(num_features: int) -> int:
    """Return the bits of a feature and of an axis: sums of their products stay below 2^53."""
    return (51 - math.ceil(math.log2(num_features))) // 2


def _projected(
    features: FloatArray, centre: FloatArray, axes: FloatArray, step: float
) -> FloatArray:
    """Return coordinates without rounding errors beyond those in the features and the axes."""
    most = float(1 << _feature_bits(len(centre)))
    # a feature map may return NaN or infinity for one record, which must not be an error
    steps = (
        np.rint(np.nan_to_num(features / step, posinf=most, neginf=-most)).clip(-most, most)
        - centre
    )
    return np.asarray((steps @ axes) * (step / most))


def power_above(value: float) -> float:
    return 2.0 ** math.ceil(math.log2(value))


def _quantize(values: FloatArray, unit: float) -> Int32Array:
    most = float(1 << COORDINATE_BITS)
    return np.asarray(np.rint(values / unit).clip(-most, most), dtype=np.int32)
