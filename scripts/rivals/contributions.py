"""The contribution of a protected unit: features of public scale and norm at most 1, and labels.

PRIVATE.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pate._core.validation import BoolArray, Float32Array, FloatArray, IntArray, StrArray, require
from pate.data import Features, Records

_ROWS = 8192
_CONSTANT = 1 / 3


@dataclass(frozen=True)
class PublicScale:
    """A map of each record's features to norm at most 1, with all its figures from public records.

    Features are flattened, centered and completed by a constant, a third of their median norm:
    intercepts, which matter most for rare labels, are then heard through more noise than weights of
    single features. All are divided by the resulting median norm, and shortened to 1 if longer.

    Attributes:
        center: ``[F]``, means of the public features.
        constant: the constant.
        norm: the median norm of the completed public records.
    """

    center: FloatArray
    constant: float
    norm: float

    @classmethod
    def of(cls, public: Features) -> PublicScale:
        """Return the scale of public features ``[N, ...]``."""
        values = public[np.arange(public.shape[0])]
        values = values.reshape(len(values), -1).astype(np.float64)
        center = values.mean(axis=0)
        length = float(np.median(np.linalg.norm(values - center, axis=1)))
        require(length > 0, "public features that differ between records", median_norm=length)
        constant = _CONSTANT * length
        return cls(center, constant, math.hypot(length, constant))

    def __call__(self, features: Features) -> Float32Array:
        """Return mapped features ``[N, F + 1]``, rows of norm at most 1, the constant last."""
        num = features.shape[0]
        mapped = np.empty((num, len(self.center) + 1), dtype=np.float32)
        for start in range(0, num, _ROWS):
            index = np.arange(start, min(start + _ROWS, num))
            rows = features[index].reshape(len(index), -1).astype(np.float64) - self.center
            rows = np.insert(rows, rows.shape[1], self.constant, axis=1) / self.norm
            # float32 could round a norm to just above 1
            mapped[index] = (
                rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True)) * (1 - 1e-6)
            )
        return mapped


@dataclass(frozen=True, kw_only=True)
class Contributions:
    """The records that rivals learn from, in the order of their units. PRIVATE.

    Attributes:
        features: ``[N, F + 1]`` of a `PublicScale`, each row of norm at most 1.
        labels: ``[N, C]`` in {0, 1}.
        starts: ``[U]``, the first row of each unit: all rows up to the next start are of one
            person, or are one record.
    """

    features: Float32Array
    labels: Float32Array
    starts: IntArray

    @classmethod
    def of(cls, records: Records, scale: PublicScale, units: StrArray) -> Contributions:
        """Return the contributions of private records, by the unit ``[N]`` that each belongs to."""
        require(
            len(units) == len(records),
            "a unit for each record",
            units=len(units),
            records=len(records),
        )
        order = np.argsort(units, kind="stable")
        _, starts = np.unique(units[order], return_index=True)
        labels = records.labels[order].astype(np.float32)
        return cls(
            features=scale(records.features)[order], labels=labels, starts=starts.astype(np.int64)
        )

    @property
    def sizes(self) -> IntArray:
        """The number of records of each unit, ``[U]``."""
        return np.diff(self.starts, append=len(self.features))

    @property
    def shares(self) -> FloatArray:
        """The weight of each record, ``[N]``: 1 over the number of records of its unit."""
        return np.repeat(1 / self.sizes, self.sizes)

    def rows_of(self, units: IntArray) -> tuple[IntArray, BoolArray]:
        """Return the rows of some ``units`` ``[B]``, ``[B, R]``, and which are theirs."""
        sizes = self.sizes[units]
        places = np.arange(max(1, int(sizes.max(initial=0))))
        real = places < sizes[:, None]
        return np.where(real, self.starts[units, None] + places, 0), real
