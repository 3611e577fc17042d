"""Records of one role: lazily read features, labels, ids and groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from pate._files import Stream
from pate._settings import RecordsInitArgs
from pate._validation import (
    Float32Array,
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    as_float32,
    require,
    require_distinct,
    require_given,
)
from pate.data._checks import as_text

Unit = Literal["record", "group"]
"""The unit of privacy: each unit belongs to one teacher."""

_BLOCK_BYTES = 1 << 24


class Role(StrEnum):
    """The purpose of records."""

    PRIVATE = "private"
    """Records on which teachers are trained. Everything computed from them is PRIVATE."""
    PUBLIC = "public"
    """Samples on which teachers vote.

    Their features are public; their labels, if known, are not used.
    """
    TEST = "test"
    """Held-out records with true labels, on which a student is evaluated."""


class Features(ABC):
    """Features of ``N`` records, read when they are needed.

    A subclass implements `shape` and `__getitem__`. Features are read in blocks or batches, never
    as a whole, except by feature maps that say so.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """``(N, ...)``."""

    @abstractmethod
    def __getitem__(self, index: Any, /) -> Float32Array:
        """Return rows by integers ``[...]`` as a new float32 array ``[..., *shape[1:]]``."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return all of them in one array, so that numpy's functions take them."""
        return np.array(self[np.arange(self.shape[0])], dtype=dtype, copy=copy or None)

    def select(self, rows: IntArray) -> Features:
        """Return the features of ``rows`` ``[M]``, read lazily unless a subclass overrides it."""
        return _SelectedFeatures(self, rows)

    def once(self) -> Features:
        """Return the features for a reader that needs each only once: none is kept in memory."""
        return self

    def identity(self) -> str | None:
        """Return a text that identifies the features; None (the default) if only their values do.

        It allows to identify files without reading them, for example by names, sizes and
        modification times.
        """
        return None


class ArrayFeatures(Features):
    """Features in one array, in memory or memory-mapped.

    >>> features = ArrayFeatures(np.eye(3, dtype=np.float32))
    >>> features.shape, features.select(np.array([2, 0])).shape
    ((3, 3), (2, 3))

    Args:
        values: ``[N, ...]``, float32 or converted to it.
    """

    def __init__(self, values: Float32Array) -> None:
        self.values: Float32Array = as_float32(values)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __getitem__(self, index: Any, /) -> Float32Array:
        return self.values[index]

    def select(self, rows: IntArray) -> ArrayFeatures:
        return ArrayFeatures(self.values[rows])


class SparseFeatures(Features):
    """Features of which most are zero: zeros are not stored, and rows become dense when read.

    Args:
        values: ``[N, F]``, a sparse float32 matrix of scipy in rows.
    """

    def __init__(self, values: Any) -> None:
        self._values = values

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._values.shape)

    def __getitem__(self, index: Any, /) -> Float32Array:
        rows = np.asarray(index)
        dense: Float32Array = self._values[rows.ravel()].toarray()
        return dense.reshape(*rows.shape, -1)

    def select(self, rows: IntArray) -> Self:
        return type(self)(self._values[rows])


class _SelectedFeatures(Features):
    def __init__(self, features: Features, rows: IntArray) -> None:
        self._features, self._rows = features, rows

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._rows), *self._features.shape[1:])

    def __getitem__(self, index: Any, /) -> Float32Array:
        return self._features[self._rows[index]]


def as_features(features: Any) -> Features:
    """Return ``features``, wrapped if they are an array or another object with rows and a shape."""
    if isinstance(features, Features):
        return features
    if isinstance(features, np.ndarray):
        return ArrayFeatures(features)
    return _SelectedFeatures(features, np.arange(features.shape[0]))


def values_of(features: Features, rows: range) -> Stream:
    """Return the values of consecutive ``rows`` as bytes, read in blocks while they are hashed."""
    row_bytes = 4 * prod(features.shape[1:])
    blocks = (features[index] for index in blocks_of(features, rows))
    return Stream(
        len(rows) * row_bytes,
        (np.ascontiguousarray(block, dtype=np.float32).data for block in blocks),
    )


def blocks_of(
    features: Features, rows: range, *, block_bytes: int | None = None
) -> Iterator[IntArray]:
    """Yield consecutive ``rows`` in blocks with features of at most ``block_bytes``."""
    row_bytes = 4 * prod(features.shape[1:])
    step = max(1, (_BLOCK_BYTES if block_bytes is None else block_bytes) // max(row_bytes, 1))
    yield from (np.arange(start, min(start + step, rows.stop)) for start in rows[::step])


def map_by_rows(
    features: Features, width: int, change: Callable[[NDArray[Any]], NDArray[Any]]
) -> Float32Array:
    """Return features ``[N, ...]``, flattened and changed row by row, as ``[N, width]``.

    In a product of many rows, rounding depends on a row's position and on their number, so that a
    record that comes or goes would affect its neighbors. A row by itself always comes from the same
    place in memory, and may be overwritten.

    Args:
        features: the features.
        width: the number of entries of a changed row.
        change: returns the changed row.
    """
    mapped = np.empty((features.shape[0], width), dtype=np.float32)
    row = np.empty(prod(features.shape[1:]), dtype=np.float32)
    for index in blocks_of(features, range(len(mapped))):
        for place, values in zip(index, features[index].reshape(len(index), -1), strict=True):
            row[:] = values
            mapped[place] = change(row)
    return mapped


@dataclass(frozen=True, kw_only=True)
class Records:
    """Records of one role.

    >>> records = Records(
    ...     features=ArrayFeatures(np.eye(2, dtype=np.float32)),
    ...     labels=np.array([[1, 0], [0, 1]], dtype=np.uint8),
    ...     ids=np.array(["scan-1", "scan-2"]),
    ... )
    >>> len(records)
    2

    Attributes:
        features: ``[N, ...]`` float32, read by index; an array is wrapped.
        labels: ``[N, C]`` in {0, 1}, and `UNKNOWN` where a label is unknown, if the source allows
            it.
        ids: ``[N]`` texts or integers, kept as texts, unique over all roles. An id belongs to its
            record: it stays when other records come and go, and so is never a row number.
        groups: ``[N]`` likewise, the person that each record belongs to, for assignment by person;
            None if unknown.
        budgets: ``[N]`` float64, the personal budget of each, an epsilon among those that the
            source declares; None without. It belongs to the id, as the group does.
    """

    features: Features
    labels: UInt8Array
    ids: StrArray
    groups: StrArray | None = None
    budgets: FloatArray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", as_features(self.features))
        object.__setattr__(self, "ids", as_text(self.ids))
        if self.groups is not None:
            object.__setattr__(self, "groups", as_text(self.groups, name="groups"))
        sizes = {"features": self.features.shape[0], "ids": len(self.ids)}
        if self.groups is not None:
            sizes["groups"] = len(self.groups)
        if self.budgets is not None:
            budgets = np.asarray(self.budgets, dtype=np.float64)
            require(budgets.ndim == 1, "budgets of shape [N]", shape=budgets.shape)
            object.__setattr__(self, "budgets", budgets)
            sizes["budgets"] = len(budgets)
        require(
            self.labels.ndim == 2 and self.labels.shape[1] > 0,
            "labels of shape [N, C]",
            shape=self.labels.shape,
        )
        require(
            set(sizes.values()) == {len(self.labels)},
            "as many features, ids, groups and budgets as labels",
            **sizes,
        )
        require_distinct("record ids", self.ids.tolist())

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: IntArray) -> Records:
        """Return the records of ``rows`` ``[M]``."""
        return Records(
            features=self.features.select(rows),
            labels=self.labels[rows],
            ids=self.ids[rows],
            groups=None if self.groups is None else self.groups[rows],
            budgets=None if self.budgets is None else self.budgets[rows],
        )

    def units(self, unit: Unit) -> StrArray:
        """Return the unit ``[N]`` by which each record is assigned: its id, or its group.

        Raises ``ValueError`` if groups are protected and the records have none.
        """
        if unit == "record":
            return self.ids
        where = (
            "groups of the private records (`group` in an .npz or a CSV file,"
            " identity_CelebA.txt in a folder)"
        )
        return require_given(self.groups, where, unit=unit)


class FeatureMap(RecordsInitArgs, ABC):
    """A map of features fitted only on public samples: it reveals nothing about private records."""

    by_rows: ClassVar[bool] = False
    """Whether a record is mapped to the same bits whichever others are mapped with it.

    Private records are then mapped teacher by teacher, and not all at once by each of several
    workers.
    """

    @property
    def version(self) -> int:
        """Raised where the same settings map otherwise: runs begun before are refused."""
        return 0

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of columns of parts, once fitted; empty if there is one part."""
        return ()

    @abstractmethod
    def fit(self, public: Features) -> FeatureMap:
        """Fit on public features ``[N, ...]`` and return the map; later calls change nothing."""

    @abstractmethod
    def transform(self, features: Features) -> Features | Float32Array:
        """Map features ``[N, ...]``, each record by itself."""


class MappedFeatures(Features):
    """Features of a map that maps rows by themselves, when they are needed.

    Args:
        feature_map: the map, fitted.
        raw: the features that it maps.
    """

    def __init__(self, feature_map: FeatureMap, raw: Features) -> None:
        self._map, self._raw = feature_map, raw

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return (self._raw.shape[0], *self._mapped(np.zeros(1, dtype=np.int64)).shape[1:])

    def __getitem__(self, index: Any, /) -> Float32Array:
        rows = np.arange(self._raw.shape[0])[index]
        return self._mapped(rows.ravel())[:].reshape(*rows.shape, *self.shape[1:])

    def select(self, rows: IntArray) -> Features:
        return self._mapped(rows)

    def _mapped(self, rows: IntArray) -> Features:
        return as_features(self._map.transform(self._raw.select(rows).once()))
