"""Sources that read one table of all records, a row for each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from zlib import crc32

import numpy as np

from pate._validation import (
    FloatArray,
    IntArray,
    StrArray,
    UInt8Array,
    require,
    require_count,
    require_given,
    require_in_open_unit_interval,
)
from pate.data._checks import UnknownLabels
from pate.data._images import ImageFiles, require_distinct_files
from pate.data._records import FeatureMap, Features, Records, Role
from pate.data._source import DataSource, expand_path

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
        groups: the group of each, ``[N]``; None if the table has none.
        budgets: the personal budget of each private record, ``[N]``; None if none are declared.
    """

    features: Features
    names: Sequence[str]
    labels: UInt8Array
    ids: StrArray
    split: IntArray
    groups: StrArray | None = None
    budgets: FloatArray | None = None


class TableSource(DataSource):
    """A source for subclasses that read a `Table`.

    Args:
        path: the file of the table, or the folder that holds it.
        labels: names of the labels to learn; None for all.
        features: a public map of the features.
        permanent_ids: whether ids that number the rows are permanent.
        unknown_labels: the sign of a label that is unknown; None if all must be known.
        budgets: the personal budgets that private records may have; None without.
    """

    def __init__(
        self,
        path: Path,
        labels: Sequence[str] | None,
        features: FeatureMap | None,
        *,
        permanent_ids: bool = False,
        unknown_labels: UnknownLabels | None = None,
        budgets: Sequence[float] | None = None,
    ) -> None:
        super().__init__(
            features=features,
            permanent_ids=permanent_ids,
            unknown_labels=unknown_labels is not None,
            budgets=budgets,
        )
        self._unknown = unknown_labels
        self.path = expand_path(path)
        self._wanted = labels

    @cached_property
    def _table(self) -> Table:
        return self._read_table()

    @abstractmethod
    def _read_table(self) -> Table: ...

    @property
    def ledger_path(self) -> Path:
        """The ledger next to the file: ``data.npz`` has ``data.ledger.sqlite``."""
        # a link leads to the same records, and so to the same ledger
        return self.path.resolve().with_suffix(".ledger.sqlite")

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(self._table.names)

    def load(self, role: Role) -> Records:
        table = self._table
        rows = np.flatnonzero(table.split == SPLIT_OF_ROLE[role])
        require(rows.size > 0, f"at least one {role.value} record in {self.path}")
        return Records(
            features=table.features.select(rows),
            labels=table.labels[rows],
            ids=table.ids[rows],
            groups=None if table.groups is None else table.groups[rows],
            budgets=table.budgets[rows]
            if table.budgets is not None and role is Role.PRIVATE
            else None,
        )


class PictureFolder(TableSource):
    """A folder of pictures with a table of their labels.

    Args:
        root: the folder.
        size: pictures are cut to their central square and resized to this many pixels.
        labels: names of the labels to learn; None for all.
        features: a public map of the pictures.
        unknown_labels: the sign of a label that is unknown; None if all must be known.
    """

    def __init__(
        self,
        root: Path,
        size: int,
        labels: Sequence[str] | None,
        features: FeatureMap | None,
        unknown_labels: UnknownLabels | None = None,
    ) -> None:
        super().__init__(root, labels, features, unknown_labels=unknown_labels)
        require_count(8, size=size)
        self.root, self.size = self.path, size

    @property
    def ledger_path(self) -> Path:
        """``ledger.sqlite`` in the folder."""
        return self.root.resolve() / "ledger.sqlite"

    def load(self, role: Role) -> Records:
        pictures = self._table.features
        assert isinstance(pictures, ImageFiles)
        require_distinct_files(pictures.paths)
        records = super().load(role)
        assert isinstance(records.features, ImageFiles)
        absent = [str(path) for path in records.features.paths if not path.is_file()]
        require(not absent, f"a picture for every row of {self.path}", missing=absent[:3])
        return records


def require_fractions(public_fraction: float | None, test_fraction: float) -> None:
    """Raise ``ValueError`` unless these shares leave some records private."""
    public = {} if public_fraction is None else {"public_fraction": public_fraction}
    require_in_open_unit_interval(**public, test_fraction=test_fraction)
    total = (public_fraction or 0.0) + test_fraction
    require(total < 1, "public_fraction + test_fraction < 1", total=total)


def split_by_hash(
    groups: StrArray, public_fraction: float | None, test_fraction: float, *, source: str
) -> IntArray:
    """Split by a public hash of the group or id: no record affects another, no group is divided.

    Raises ``ValueError`` without a share of public records of ``source``.
    """
    public = require_given(
        public_fraction,
        f"split in {source}, or public_fraction, the share of records that a hash makes public",
    )
    places = np.array([crc32(str(group).encode()) / 2**32 for group in groups])
    return np.where(places < public, 1, np.where(places < public + test_fraction, 2, 0))
