"""Records of one role, from their checks to their teachers.

A source reads labels, names and ids, which are checked. `Records` hold them, with `Features` that
are read when they are needed and may pass a public `FeatureMap`. A keyed hash of the ids assigns
records to teachers, so that no record affects another.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._core.files.reading import Stream
from pate._core.settings import RecordsInitArgs
from pate._core.validation import (
    UNKNOWN,
    BoolArray,
    Float32Array,
    IntArray,
    StrArray,
    UInt8Array,
    as_float32,
    given,
    require,
    require_count,
    require_distinct,
    require_given,
)


def as_text(values: ArrayLike, *, name: str = "ids") -> StrArray:
    """Return ids, groups or names ``[N]`` as strings, as wide as the longest of them.

    Raises ``ValueError`` unless all are texts or all are integers: 7 and 7.0 would be two ids of
    one record.
    """
    array = np.asarray(values)
    require(array.ndim == 1, f"{name} of shape [N]", shape=array.shape)
    items = array.tolist()
    types = sorted({type(item).__name__ for item in items})
    require(types in ([], ["int"], ["str"]), f"{name} that are texts or integers", types=types)
    return np.array(items, dtype=np.str_)


def are_row_numbers(ids: Sequence[StrArray]) -> bool:
    """Return whether ids number the rows of one table from 0, 1 or 2 on, up or down; 0.0 is a 0.

    Fewer than three ids show no order, and are taken for names. Two is the first row of a
    spreadsheet with a header.

    Args:
        ids: the ids of each role, in the order of its records.
    """
    every = (name.removesuffix(".0") for part in ids for name in part.tolist())
    if sum(map(len, ids)) < 3 or not all(
        name.isascii() and name.isdigit() and len(name) < 19 for name in every
    ):
        return False
    numbers = [
        np.array([name.removesuffix(".0") for name in part.tolist()], dtype=np.int64)
        for part in ids
        if len(part)
    ]
    first, last = min(part.min() for part in numbers), max(part.max() for part in numbers)
    steps = np.concatenate([np.diff(part) for part in numbers])
    return bool(
        ((steps > 0).all() or (steps < 0).all())
        and first in (0, 1, 2)
        and last - first + 1 == len(np.unique(np.concatenate(numbers)))
    )


UnknownLabels = Literal["nan", -1]
"""The sign of a label that is unknown: NaN or an empty cell; or these and -1."""
BY_FIELD = "; `unknown_labels` is the sign of unknown ones"
"""For errors of sources that have this field."""


def check_labels(
    labels: NDArray[Any], *, source: str, unknown: UnknownLabels | None = None, hint: str = BY_FIELD
) -> UInt8Array:
    """Return labels ``[N, C]`` as uint8 in {0, 1}, from 0/1 or -1/1, or `UNKNOWN`.

    Args:
        labels: ``[N, C]``, numbers.
        source: where they come from.
        unknown: the sign of those that are unknown. None if all must be known.
        hint: the end of the error on another value.

    Raises:
        ValueError: on any other value.
    """
    require(
        unknown in (None, *get_args(UnknownLabels)),
        "`unknown_labels` among nan, -1, or none",
        unknown_labels=unknown,
    )
    labels = np.asarray(labels)
    require(
        labels.ndim == 2 and labels.shape[1] > 0,
        f"labels of shape [N, C] in {source}",
        shape=labels.shape,
    )
    gaps = unknown is not None and labels.dtype.kind == "f"
    lost = np.isnan(labels) if gaps else np.zeros(labels.shape, dtype=np.bool_)
    if unknown == -1:
        lost |= labels == -1
    values = np.unique(labels[~lost])
    allowed = (-1, 1) if (values == -1).any() else (0, 1)
    wrong = [value.item() for value in values if value not in allowed]
    require(not wrong, f"labels among {allowed} in {source}{hint}", values=wrong[:5])
    return np.where(lost, UNKNOWN, labels == 1).astype(np.uint8)


def known_truth(truth: ArrayLike) -> tuple[BoolArray, BoolArray]:
    """Return which labels ``[N, C]`` are there, and which are known.

    Unknown ones are NaN or `UNKNOWN`.

    >>> known_truth([[0, 1, np.nan, UNKNOWN]])
    (array([[False,  True, False, False]]), array([[ True,  True, False, False]]))
    """
    values = np.asarray(truth)
    return values == 1, values <= 1


def select_labels(names: Sequence[str], wanted: Sequence[str] | None, *, source: str) -> IntArray:
    """Return the columns of the ``wanted`` names, or all if None.

    Raises ``ValueError`` on an unknown or second one.
    """
    require_distinct(f"label names of {source}", names)
    if wanted is None:
        return np.arange(len(names))
    require(wanted, "at least one label", labels=list(wanted))
    unknown = sorted(set(wanted) - set(names))
    require(not unknown, f"names of labels among {', '.join(names)} ({source})", unknown=unknown)
    require_distinct("label names", wanted)
    return np.array([list(names).index(name) for name in wanted])


Unit = Literal["record", "group"]
"""The unit of privacy: each unit belongs to one teacher."""

_BLOCK_BYTES = 1 << 24


class Role(StrEnum):
    """The purpose of records.

    >>> Role("public") is Role.PUBLIC
    True
    """

    PRIVATE = "private"
    """Records that teachers are trained on. Everything computed from them is PRIVATE."""
    PUBLIC = "public"
    """Samples that teachers vote on.

    Their features are public. Their labels, if known, are not used.
    """
    TEST = "test"
    """Held-out records with true labels, for evaluating a student."""


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

    def contents(self, other: Features) -> Sequence[Hashable]:
        """Return a value for each record, equal where the features are, here and in ``other``."""
        values = self.once()
        blocks = (values[rows] + np.float32(0) for rows in blocks_of(self, range(self.shape[0])))
        return [hash(row.tobytes()) for block in blocks for row in block]  # -0.0 is 0.0

    def identity(self) -> str | None:
        """Return a text that identifies the features. None (the default) if only their values do.

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
    return (
        ArrayFeatures(features)
        if isinstance(features, np.ndarray)
        else _SelectedFeatures(features, np.arange(features.shape[0]))
    )


def values_of(features: Features, rows: range) -> Stream:
    """Return the values of consecutive ``rows`` as bytes, read in blocks while they are hashed."""
    return Stream(
        len(rows) * 4 * prod(features.shape[1:]),
        (
            np.ascontiguousarray(features[index], dtype=np.float32).data
            for index in blocks_of(features, rows)
        ),
    )


def blocks_of(features: Features, rows: range) -> Iterator[IntArray]:
    """Yield consecutive ``rows`` in blocks with features of at most 16 MB."""
    step = max(1, _BLOCK_BYTES // max(4 * prod(features.shape[1:]), 1))
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
            with np.errstate(all="ignore"):  # a warning would tell of a private record
                mapped[place] = change(row)
    return mapped


_BY_CHANCE = 0.1  # of public samples, that equal records without being copies


def copied_rows(private: Features, public: Features) -> IntArray:
    """Return the rows of public samples ``[P, ...]`` that are copies of records ``[N, ...]``.

    In a table of few values rows are alike by chance: as many records then equal another one, and
    none is called a copy.
    """
    own, shown = private.contents(public), public.contents(private)
    times = Counter(own)
    equal = np.array([times[content] > 0 for content in shown])
    # one more than there are: few records do not show how often rows are alike
    alike = (1 + sum(times[content] > 1 for content in own)) / (1 + len(own))
    margin = max(_BY_CHANCE, 3 * float(np.sqrt(alike * (1 - alike) / len(shown))))
    return np.flatnonzero(equal) if equal.mean() > alike + margin else np.zeros(0, dtype=np.int64)


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
        features: ``[N, ...]`` float32, read by index, with a number at least for each record. An
            array is wrapped.
        labels: ``[N, C]`` in {0, 1}, and `UNKNOWN` where a label is unknown, if the source allows
            it.
        ids: ``[N]`` texts or integers, kept as texts, unique over all roles. An id belongs to its
            record: it stays when other records come and go, and so is never a row number.
        groups: ``[N]`` likewise, the person that each record belongs to, for assignment by person.
            None if unknown.

    Raises:
        ValueError: on arrays of different lengths, other labels, and on ids that occur twice.
    """

    features: Features
    labels: UInt8Array
    ids: StrArray
    groups: StrArray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", as_features(self.features))
        object.__setattr__(self, "ids", as_text(self.ids, name="ids"))
        if self.groups is not None:
            object.__setattr__(self, "groups", as_text(self.groups, name="groups"))
        columns = given(ids=self.ids, groups=self.groups)
        sizes = {name: len(values) for name, values in columns.items()}
        labels = np.asarray(self.labels)
        require(
            labels.ndim == 2 and labels.shape[1] > 0, "labels of shape [N, C]", shape=labels.shape
        )
        others = np.unique(labels[(labels != 0) & (labels != 1) & (labels != UNKNOWN)])
        require(not others.size, f"labels 0, 1 or UNKNOWN={UNKNOWN}", values=others[:5].tolist())
        require(
            min(self.features.shape[1:], default=0) > 0,
            "features of shape [N, ...], with a column at least",
            shape=list(self.features.shape),
        )
        require(
            {self.features.shape[0], *sizes.values()} == {len(self.labels)},
            "as many features, ids and groups as labels",
            features=self.features.shape[0],
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
        )

    def units(self, unit: Unit) -> StrArray:
        """Return the unit ``[N]`` that assigns each record: its id, or its group.

        Raises ``ValueError`` if groups are protected and the records have none.
        """
        if unit == "record":
            return self.ids
        return require_given(
            self.groups,
            "groups of the private records (`group` in an .npz or a CSV file,"
            " identity_CelebA.txt in a folder)",
            unit=unit,
        )


class FeatureMap(RecordsInitArgs, ABC):
    """A map of features fitted only on public samples: it reveals nothing about private records.

    >>> public = np.array([[0.0, 2.0], [2.0, 0.0]], dtype=np.float32)
    >>> fitted = PublicPCA(num_components=1).fit(ArrayFeatures(public))
    >>> fitted.transform(ArrayFeatures(public)).shape
    (2, 1)
    """

    by_rows: ClassVar[bool] = False
    """Whether a record is mapped to the same bits whichever others are mapped with it.

    Private records are then mapped teacher by teacher, and not all at once by each of several
    workers.
    """

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


def parts_of_groups(ids: StrArray, groups: StrArray, num_parts: int, *, key: bytes) -> StrArray:
    """Return the part of its group ``[N]`` that each record belongs to, by a keyed hash of its id.

    Dropping all but some records of a group would bound it, too, but then the removal of one record
    brings in another.

    Args:
        ids: ids of the records, ``[N]``.
        groups: the group of each record, ``[N]``.
        num_parts: the number of parts of a group.
        key: the secret of the partition.
    """
    names = [
        f"{group}/{_hashed(f'part of a group {name}', key) % num_parts}"
        for name, group in zip(ids.tolist(), groups.tolist(), strict=True)
    ]
    return np.array(names, dtype=np.str_)


def _hashed(text: str, key: bytes) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "big")


def assign_teachers(units: Iterable[str], *, num_teachers: int, key: bytes) -> IntArray:
    """Return the teacher of each record, ``[N]`` integers in ``[0, num_teachers)``.

    The teacher is a keyed 64-bit BLAKE2b hash modulo ``num_teachers``: uniform to one part in 2^64
    / num_teachers.

    Args:
        units: the units of assignment: the records' ids, or their groups if a person has several
            records.
        num_teachers: the number of teachers, at least 2.
        key: a secret of 16 to 64 bytes. Without it no one can tell which teacher saw a record.

    Raises:
        ValueError: if ``num_teachers`` or the length of the key is out of range.
    """
    require_count(2, num_teachers=num_teachers)
    require(16 <= len(key) <= 64, "a key of 16 to 64 bytes", length=len(key))
    return np.fromiter((_hashed(unit, key) % num_teachers for unit in units), dtype=np.int64)


def partition_records(
    ids: StrArray, units: StrArray, *, num_teachers: int, key: bytes
) -> list[IntArray]:
    """Return the rows of each teacher's records, sorted by id and not by the source's order.

    Args:
        ids: ids of the records, ``[N]``.
        units: units of assignment, ``[N]``; see `assign_teachers`.
        num_teachers: the number of teachers.
        key: the secret of the partition.
    """
    teachers = assign_teachers((str(unit) for unit in units), num_teachers=num_teachers, key=key)
    order = np.lexsort((ids, teachers))
    return np.split(order, np.searchsorted(teachers[order], np.arange(1, num_teachers)))
