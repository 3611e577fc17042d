"""The interface of a data source, and sources that read one table.

A source has records in three roles. A table holds all of them, a row for each, with a split that
says the role, or a hash of the id that decides it. `Arrays` is one, in an ``.npz``.
"""

from __future__ import annotations

import json
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Self
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pate._core.accounting.ledger import ledger_beside
from pate._core.files.reading import digest, read_arrays
from pate._core.settings import RecordsInitArgs
from pate._core.validation import (
    Faults,
    Float32Array,
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    as_float32,
    given,
    require,
    require_distinct,
    require_flag,
    require_given,
    require_in_open_unit_interval,
    require_label_names,
)
from pate._labeling.data.records import (
    ArrayFeatures,
    FeatureMap,
    Features,
    MappedFeatures,
    Records,
    Role,
    UnknownLabels,
    are_row_numbers,
    as_features,
    as_text,
    blocks_of,
    check_labels,
    copied_rows,
    select_labels,
    values_of,
)


class DataSource(RecordsInitArgs, ABC):
    """One source of records in the three roles of `Role`.

    Write a subclass with the paths and options of the source as arguments, and name it by class
    path in ``data.yaml``. Only the stages `teachers` read the private records.
    `pate.testing.SourceContract` tests a subclass.

    Args:
        features: a public map of the raw features, applied for teachers and student alike. None for
            the raw features.
        permanent_ids: whether ids such as 0, 1, 2 in the order of the records are permanent, as in
            a register. Otherwise they are row numbers, which change when a record goes: teachers
            refuse them.
        unknown_labels: whether labels may be unknown (`UNKNOWN`), a public fact. Otherwise records
            with such labels are refused.
        copies: whether public samples may be private records, too, under other ids. Otherwise they
            are refused: public samples are published, and nothing protects them.

    Attributes:
        feature_map: the public map of the features, or None if teachers and student see the raw
            ones.
        is_audit: whether its records are made for an audit, whose releases protect no person.
        grouping: the public name of the groups of its records, such as the name of their column.
            Releases of a ledger by groups of one name add up, so that a record must have one group
            under one name.
        shifted: whether public samples may differ from private records in place and scale, a public
            fact. Records that vote then spend 0.09 of a release on their moments, to which public
            samples are moved.
    """

    is_audit: ClassVar[bool] = False
    grouping: str = "group"
    shifted: bool = False
    permanent_ids: bool
    unknown_labels: bool
    copies: bool

    def __init__(
        self,
        *,
        features: FeatureMap | None = None,
        permanent_ids: bool = False,
        unknown_labels: bool = False,
        copies: bool = False,
    ) -> None:
        require_flag(permanent_ids=permanent_ids, unknown_labels=unknown_labels, copies=copies)
        self.feature_map = features
        # a property of a subclass goes before its setting
        vars(self).update(permanent_ids=permanent_ids, unknown_labels=unknown_labels, copies=copies)
        self._records: dict[Role, Records] = {}
        self._compared: tuple[str | None, ...] = ()  # identities of files among which are no copies

    @property
    @abstractmethod
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels, in the order of their columns."""

    @abstractmethod
    def load(self, role: Role) -> Records:
        """Read the raw records of a role.

        The content, ids and order of public and test records must not depend on other records.
        There may be no test records: the student is then not measured.

        Raises:
            ValueError: in one line, if the source cannot be used.
        """

    @property
    def ledger_path(self) -> Path | None:
        """The file of the ledger, next to the private data, so that all runs on them share it.

        None if the source names no place. The ledger then counts the releases of only one run.
        """
        return None

    def records(self, role: Role) -> Records:
        """Return the records of a role with mapped features. They are read only once.

        Raises ``ValueError`` if there are none: a run needs no test records until they are used.
        """
        if role not in self._records:
            records = self._raw(role)
            require(
                len(records) > 0,
                f"at least one {role.value} record"
                + " (`test_fraction` takes a share of the public ones)" * (role is Role.TEST),
            )
            if self.feature_map is not None:
                public = records if role is Role.PUBLIC else self.load(Role.PUBLIC)
                fitted = self.feature_map.fit(public.features.once())
                if role is Role.PRIVATE and fitted.by_rows:
                    features: Features = MappedFeatures(fitted, records.features)
                else:
                    features = as_features(fitted.transform(records.features.once()))
                records = replace(records, features=features)
            self._records[role] = records
        return self._records[role]

    def require_distinct(self) -> None:
        """Read the labels and ids of all roles.

        Raises:
            ValueError: if a label name occurs twice, or an id in two roles: a record could be
                private and published; if private records have row numbers for ids, unless these
                are said to be permanent; or if more public samples equal a private record than
                private records equal another one, unless `copies` are meant.
        """
        require_label_names("label names", self.label_names)
        ids = {role: (self._records.get(role) or self._raw(role)).ids for role in Role}
        for one, other in combinations(Role, 2):
            shared = np.intersect1d(ids[one], ids[other])
            require(
                shared.size == 0,
                f"{other} samples that are no {one} records",
                shared_ids=shared[:3].tolist(),
            )
        numbered = any(
            are_row_numbers([ids[role] for role in (Role.PRIVATE, *others)])
            for others in ((), (Role.PUBLIC,), (Role.TEST,), (Role.PUBLIC, Role.TEST))
        )
        require(
            self.permanent_ids or not numbered,
            "ids that stay when another record is removed, as row numbers do not;"
            " permanent_ids=True says that these do",
        )
        if not self.copies:
            private, public = (self.load(role).features for role in (Role.PRIVATE, Role.PUBLIC))
            files = private.identity(), public.identity()
            if None not in files and files == self._compared:
                return
            copied = ids[Role.PUBLIC][copied_rows(private, public)]
            require(
                copied.size == 0,
                "public samples that are no private records: they are published (copies=True says"
                " that this is meant)",
                copies=copied[:3].tolist(),
                number=copied.size,
            )
            self._compared = files

    def fingerprint(self, role: Role) -> str:
        """Return a hash of the raw records of a role, read in blocks.

        Pictures are hashed by their names, sizes and times. The hash changes when a record of the
        role does. The hash of private records is PRIVATE.
        """
        raw = self._raw(role)
        names = json.dumps(
            [
                self.label_names,
                raw.ids.tolist(),
                None if raw.groups is None else raw.groups.tolist(),
            ]
        )
        identity = raw.features.identity()
        content = values_of(raw.features, range(len(raw))) if identity is None else identity
        return digest(names, raw.labels.tobytes(), content)

    def unmapped(self) -> Self:
        """Return the source of the same records with raw features, which has read none."""
        other = copy(self)
        vars(other).update(feature_map=None, _records={})
        return other

    def _raw(self, role: Role) -> Records:
        """Return the raw records of a role."""
        raw = self.load(role)
        require(
            self.unknown_labels or not (raw.labels > 1).any(),
            "labels 0 or 1, or a source with unknown_labels=True",
        )
        return raw

    @property
    def num_labels(self) -> int:
        """The number of labels."""
        return len(self.label_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one record's features, as networks see them."""
        return tuple(self.records(Role.PUBLIC).features.shape[1:])


def expand_path(path: Path | str) -> Path:
    """Return a path with its environment variables expanded.

    Raises ``ValueError`` if one is not set.
    """
    filled = os.path.expandvars(path)
    require("$" not in filled, "the environment variables of a path to be set", path=str(path))
    return Path(filled).expanduser()


SPLIT_OF_ROLE = {Role.PRIVATE: 0, Role.PUBLIC: 1, Role.TEST: 2}


@dataclass(frozen=True, kw_only=True)
class Table:
    """All records of a source.

    Attributes:
        features: ``[N, ...]``.
        names: names of the labels, ``[C]``.
        labels: ``[N, C]`` in {0, 1}, or `UNKNOWN`.
        ids: ``[N]``.
        split: the role of each, ``[N]``, as in `SPLIT_OF_ROLE`.
        groups: the group of each, ``[N]``. None if the table has none.
    """

    features: Features
    names: Sequence[str]
    labels: UInt8Array
    ids: StrArray
    split: IntArray
    groups: StrArray | None = None


class TableSource(DataSource):
    """A source for subclasses that read a `Table`.

    Args:
        path: the file of the table, or the folder that holds it.
        labels: names of the labels to learn. None for all.
        features: a public map of the features.
        permanent_ids: whether ids that number the rows are permanent.
        unknown_labels: the sign of a label that is unknown. None if all must be known.
        copies: whether public samples may be private records, too.
        shifted: whether public samples may differ from private records in place and scale.
    """

    def __init__(
        self,
        path: Path,
        labels: Sequence[str] | None,
        features: FeatureMap | None,
        *,
        permanent_ids: bool = False,
        unknown_labels: UnknownLabels | None = None,
        copies: bool = False,
        shifted: bool = False,
    ) -> None:
        super().__init__(
            features=features,
            permanent_ids=permanent_ids,
            unknown_labels=unknown_labels is not None,
            copies=copies,
        )
        self._unknown, self._wanted = unknown_labels, labels
        self.path, self.shifted = expand_path(path), shifted

    @cached_property
    def _table(self) -> Table:
        return self._read_table()

    @abstractmethod
    def _read_table(self) -> Table: ...

    @property
    def ledger_path(self) -> Path:
        """The ledger next to the file, which has its name."""
        # a link leads to the same records, and so to the same ledger
        return ledger_beside(self.path.resolve())

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(self._table.names)

    def load(self, role: Role) -> Records:
        table = self._table
        rows = np.flatnonzero(table.split == SPLIT_OF_ROLE[role])
        require(
            rows.size > 0 or role is Role.TEST, f"at least one {role.value} record in {self.path}"
        )
        return Records(
            features=table.features.select(rows),
            labels=table.labels[rows],
            ids=table.ids[rows],
            groups=None if table.groups is None else table.groups[rows],
        )


TEST_FRACTION = 0.1
"""The share of test records, unless another is given, where a hash decides."""


def require_fractions(public_fraction: float | None, test_fraction: float | None) -> None:
    """Raise ``ValueError`` unless these shares leave some records private."""
    require_in_open_unit_interval(
        **given(public_fraction=public_fraction, test_fraction=test_fraction)
    )
    total = (public_fraction or 0.0) + (TEST_FRACTION if test_fraction is None else test_fraction)
    require(total < 1, "public_fraction + test_fraction < 1", total=total)


def split_by_hash(
    groups: StrArray, public_fraction: float | None, test_fraction: float | None, *, source: str
) -> IntArray:
    """Split by a public hash of the group or id: no record affects another, no group is divided.

    Raises ``ValueError`` without a share of public records of ``source``.
    """
    public = require_given(
        public_fraction,
        f"split in {source}, or public_fraction, the share of records that a hash makes public",
    )
    places, tests = _places(groups), TEST_FRACTION if test_fraction is None else test_fraction
    return np.where(places < public, 1, np.where(places < public + tests, 2, 0))


def with_tests(split: IntArray, groups: StrArray, test_fraction: float | None) -> IntArray:
    """Return a split ``[N]`` with a share of the public records for tests, if it names none.

    The same hash decides. Without a share the split stays.
    """
    if test_fraction is None or (split == SPLIT_OF_ROLE[Role.TEST]).any():
        return split
    chosen = (split == SPLIT_OF_ROLE[Role.PUBLIC]) & (_places(groups) < test_fraction)
    return np.where(chosen, SPLIT_OF_ROLE[Role.TEST], split)


def _places(groups: StrArray) -> FloatArray:
    return np.array([crc32(str(group).encode()) / 2**32 for group in groups])


OPTIONAL = ("ids", "split", "group", "label_names")
"""Arrays that a file may have besides ``X`` and ``Y``; ``ids`` are required of a source."""
_ROWS_OF = ("X", "Y", "ids", "split", "group")
"""Arrays with a row for each record."""
_ROWS = 64
"""Rows read from a file at once. The system maps much around each, which counts as memory."""
GIVE_IDS = "given once, when they are collected, such as uuid.uuid4().hex"


class Arrays(TableSource):
    """An ``.npz`` file with ``X`` ``[N, ...]``, ``Y`` ``[N, C]`` (0/1 or -1/1) and ``ids`` ``[N]``.

    An id names a record for good: it is assigned once, when the records are collected, and stays
    when others come and go. Row numbers do not: removing a record would renumber all later ones and
    so affect all teachers.

    Optional arrays: ``split`` ``[N]`` (0 private, 1 public, 2 test), ``group`` ``[N]`` (the person
    to whom a record belongs), ``label_names`` ``[C]``.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.npz"
    >>> ids, split = np.array(["ann", "ben", "cem"]), np.array([0, 1, 2])
    >>> np.savez(path, X=np.eye(3), Y=[[1], [0], [1]], ids=ids, split=split)
    >>> Arrays(path).load(Role.PRIVATE).ids
    array(['ann'], dtype='<U3')

    Args:
        path: the file.
        labels: names of the labels to learn. None for all.
        public_fraction: share of public records, if the file has no ``split`` and a hash of the id
            decides. There is no default, because the features of public records are published.
        test_fraction: share of test records, likewise, a tenth if None; with a ``split`` that names
            none, the share of the public ones that become test records by the same hash.
        features: a public map of the features.
        permanent_ids: whether numbers from 0 or 1 on, in the order of the rows, are permanent ids,
            as in a register: a row number changes when an earlier record is removed.
        unknown_labels: ``nan`` if labels may be unknown, which are NaN; -1 if -1 is unknown, too.
            None if all must be known.
        copies: whether public records may be private ones, too, which nothing protects then.
        shifted: whether public ones may differ from private ones in place and scale.

    Raises:
        ValueError: on a setting out of range. Reading raises it on a missing or damaged file,
            arrays of other names or shapes, labels outside {0, 1}, and ids that count the rows.
    """

    def __init__(
        self,
        path: Path,
        *,
        labels: list[str] | None = None,
        public_fraction: float | None = None,
        test_fraction: float | None = None,
        features: FeatureMap | None = None,
        permanent_ids: bool = False,
        unknown_labels: UnknownLabels | None = None,
        copies: bool = False,
        shifted: bool = False,
    ) -> None:
        super().__init__(
            path,
            labels,
            features,
            permanent_ids=permanent_ids,
            unknown_labels=unknown_labels,
            copies=copies,
            shifted=shifted,
        )
        require_fractions(public_fraction, test_fraction)
        self._fractions = public_fraction, test_fraction

    def _read_table(self) -> Table:
        arrays: dict[str, Any] = read_arrays(self.path, ("X", "Y"), OPTIONAL, mapped=("X",))
        source, faults = self.path.name, Faults()
        with faults.gather():
            features = _finite_features(arrays["X"], source=source)
        with faults.gather():
            labels = check_labels(arrays["Y"], source=source, unknown=self._unknown)
        with faults.gather():
            names = _label_names(arrays, source=source)
        with faults.gather():
            require(
                "ids" in arrays, f"the records' own ids in {source}, {GIVE_IDS}", missing=["ids"]
            )
            ids = as_text(arrays["ids"])
            require_distinct(f"ids of {source}", ids.tolist())
        with faults.gather():
            groups = as_text(arrays["group"], name="group") if "group" in arrays else None
        with faults.gather():
            split = roles_of(arrays, self._fractions, source=source)
        with faults.gather():
            rows = {name: arrays[name].shape[:1] for name in _ROWS_OF if name in arrays}
            sizes = {name: shape[0] if shape else 0 for name, shape in rows.items()}
            num = sizes.pop("Y")
            require(set(sizes.values()) <= {num}, f"{num} rows in every array of {source}", **sizes)
        faults.refuse()
        columns = select_labels(names.tolist(), self._wanted, source=source)
        return Table(
            features=features,
            names=names[columns].tolist(),
            labels=labels[:, columns],
            ids=ids,
            split=split,
            groups=groups,
        )


def roles_of(
    arrays: Mapping[str, NDArray[Any]],
    fractions: tuple[float | None, float | None],
    *,
    source: str,
) -> IntArray:
    """Return the role of each record, by the array ``split`` or by hashes."""
    keys = as_text(arrays.get("group", arrays.get("ids", np.empty(0, dtype=np.str_))))
    if "split" not in arrays:
        return split_by_hash(keys, *fractions, source=source)
    require(
        fractions[0] is None,
        f"`public_fraction` or an array split in {source}, not both",
        public_fraction=fractions[0],
    )
    split = arrays["split"]
    require(split.ndim == 1, f"split of shape [N] in {source}", shape=split.shape)
    unknown = sorted(set(np.unique(split).tolist()) - {0, 1, 2})
    require(not unknown, f"split in 0 (private), 1 (public), 2 (test) in {source}", others=unknown)
    # other sizes are a fault of their own
    return with_tests(split, keys, fractions[1]) if len(keys) == len(split) else split


def _label_names(arrays: Mapping[str, NDArray[Any]], *, source: str) -> StrArray:
    num_labels = arrays["Y"].shape[-1] if arrays["Y"].ndim else 0
    names = as_text(
        arrays.get("label_names", np.array([f"label_{j}" for j in range(num_labels)])),
        name="label_names",
    )
    require(
        len(names) == num_labels, f"{num_labels} label_names in {source}", label_names=len(names)
    )
    return names


class _StoredFeatures(Features):
    """Rows of an array that stays in its file.

    The rows of a role are read when they are needed, and a selection of them, such as a chunk's, at
    once. Features that are sent to another process take their values along.
    """

    def __init__(self, values: np.memmap[Any, Any], rows: IntArray | None = None) -> None:
        self._values, self._whole = values, rows is None
        self._rows = np.arange(len(values)) if rows is None else rows

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._rows), *self._values.shape[1:])

    def __getitem__(self, index: Any, /) -> Float32Array:
        rows, file = np.asarray(self._rows[index]), self._values.base
        assert isinstance(file, mmap.mmap)
        values = np.empty((rows.size, *self.shape[1:]), dtype=np.float32)
        for start in range(0, rows.size, _ROWS):
            values[start : start + _ROWS] = as_float32(
                self._values[rows.ravel()[start : start + _ROWS]]
            )
            file.madvise(mmap.MADV_DONTNEED)
        return values.reshape(*rows.shape, *self.shape[1:])

    def select(self, rows: IntArray) -> Features:
        return _StoredFeatures(self._values, rows) if self._whole else ArrayFeatures(self[rows])

    def __reduce__(self) -> tuple[type[ArrayFeatures], tuple[Float32Array]]:
        return ArrayFeatures, (self._sent,)

    @cached_property
    def _sent(self) -> Float32Array:
        return self[:]  # one array, which joblib writes to a file that all its workers map


def _finite_features(values: NDArray[Any], *, source: str) -> Features:
    """Return features as float32. Raises ``ValueError`` on NaN or infinite values."""
    features = (
        _StoredFeatures(values)
        if isinstance(values, np.memmap)
        else ArrayFeatures(np.ascontiguousarray(as_float32(values)))
    )
    blocks = (features[rows] for rows in blocks_of(features, range(features.shape[0])))
    bad = sum(
        int((~np.isfinite(block).reshape(len(block), -1).all(axis=1)).sum()) for block in blocks
    )
    require(bad == 0, f"finite features in {source}", records_with_nan_or_infinity=bad)
    return features
