"""The interface of a data source, and sources that read one table.

A source has records in three roles. A table holds all of them, a row for each, with a split that
says the role, or a hash of the id that decides it. A source may also be a class in a file of
Python, wherever that file is.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Self
from zlib import crc32

import numpy as np

from pate._core.accounting.ledger import ledger_beside
from pate._core.files.reading import digest
from pate._core.settings import RecordsInitArgs
from pate._core.validation import (
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    expecting,
    given,
    naming_own_faults,
    require,
    require_given,
    require_in_open_unit_interval,
    require_label_names,
)
from pate._labeling.data.records import (
    FeatureMap,
    Features,
    MappedFeatures,
    Records,
    Role,
    UnknownLabels,
    are_row_numbers,
    as_features,
    copied_rows,
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

    def __init__(
        self,
        *,
        features: FeatureMap | None = None,
        permanent_ids: bool = False,
        unknown_labels: bool = False,
        copies: bool = False,
    ) -> None:
        self.feature_map = features
        self.permanent_ids = permanent_ids
        self.unknown_labels = unknown_labels
        self.copies = copies
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
            by = " (`test_fraction` takes a share of the public ones)" if role is Role.TEST else ""
            require(len(records) > 0, f"at least one {role.value} record{by}")
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
        role does, and that of public records with the version of their feature map. The hash of
        private records is PRIVATE.
        """
        raw = self._raw(role)
        names = json.dumps(
            [
                self.label_names,
                raw.ids.tolist(),
                None if raw.groups is None else raw.groups.tolist(),
            ]
        )
        if role is Role.PUBLIC and self.feature_map is not None and self.feature_map.version:
            names += json.dumps(self.feature_map.version)
        identity = raw.features.identity()
        content = values_of(raw.features, range(len(raw))) if identity is None else identity
        return digest(names, raw.labels.tobytes(), content)

    def unmapped(self) -> Self:
        """Return the source of the same records with raw features, which has read none."""
        other = copy(self)
        vars(other).update(feature_map=None, _records={})
        vars(other).pop("input_shape", None)
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

    @cached_property
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


class PythonFile(DataSource):
    """A `DataSource` written in a Python file of your own, such as `pate init --kind python` makes.

    Args:
        path: the file.
        name: the class in it, or a function that returns a source, such as
            `pate.data.TorchDatasets`.
        settings: the arguments of either.
        features: a public map of the features. None for the source's own.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        settings: dict[str, Any] | None = None,
        *,
        features: FeatureMap | None = None,
    ) -> None:
        self.path = expand_path(path)
        self.name = name
        self.source = source = self._made(settings or {})
        super().__init__(
            features=features or source.feature_map,
            permanent_ids=source.permanent_ids,
            unknown_labels=source.unknown_labels,
            copies=source.copies,
        )
        self.grouping, self.shifted = source.grouping, source.shifted

    def _made(self, settings: dict[str, Any]) -> DataSource:
        """Return the source that is made of the settings."""
        require(self.path.is_file(), "a file of Python", path=str(self.path))
        with self._naming_faults():
            make: Any = getattr(_module(self.path), self.name, None)
        require(
            callable(make),
            f"a subclass of pate.data.DataSource in {self.path}, or a function",
            name=self.name,
        )
        with expecting(f"settings of {self.name} in {self.path}", TypeError):
            signature(make).bind(**settings)
        with self._naming_faults():
            source = make(**settings)
        require(
            isinstance(source, DataSource),
            f"a pate.data.DataSource from {self.name} in {self.path}",
            type=type(source).__name__,
        )
        return source

    def _naming_faults(self) -> AbstractContextManager[None]:
        return naming_own_faults(f"records from {self.name}", self.path)

    @property
    def label_names(self) -> tuple[str, ...]:
        with self._naming_faults():
            return self.source.label_names

    @property
    def ledger_path(self) -> Path | None:
        return self.source.ledger_path

    def load(self, role: Role) -> Records:
        with self._naming_faults():
            return self.source.load(role)


def _module(path: Path) -> Any:
    spec = spec_from_file_location(f"pate_records_{path.stem}", path)
    assert spec is not None and spec.loader is not None, "a file of Python has a loader"
    module = module_from_spec(spec)
    # dataclasses look up their module while they are made; afterwards it is removed, so that
    # objects are pickled by value: workers could not import it
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module
