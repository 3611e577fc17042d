"""A table, comma-separated, of numbers and labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pate._validation import Float32Array, IntArray, require
from pate.data._label_table import Columns, read_label_table
from pate.data._records import ArrayFeatures, FeatureMap
from pate.data._table import Table, TableSource, require_fractions


class NumberTable(TableSource):
    """A CSV file of numbers and labels.

    The file has a line of headings and a line for each record. The column ``id`` holds the record's
    id, given once and kept for good. ``split`` gives its role (``private``, ``public``, ``test``,
    or 0, 1, 2), ``group`` or ``identity`` the person or group of the record; both may be missing.
    The columns that ``labels`` names are 0 or 1, or -1 and 1; all others are features. Features are
    finite numbers: code a category as a column of 0 and 1 for each possible value.

    Args:
        path: the file.
        labels: names of the columns to learn.
        columns: names of the features; None for all columns that are left.
        public_fraction: share of public records, if there is no ``split`` and a hash of the group,
            or else of the id, is to decide. There is no default: public records are seen by
            anybody.
        test_fraction: share of test records, likewise.
        features: a public map of the features.
        permanent_ids: whether numbers from 0 or 1 on, in the order of the rows, are permanent ids,
            as in a register: a row number changes when an earlier record is removed.
    """

    def __init__(
        self,
        path: Path,
        *,
        labels: list[str],
        columns: list[str] | None = None,
        public_fraction: float | None = None,
        test_fraction: float = 0.1,
        features: FeatureMap | None = None,
        permanent_ids: bool = False,
    ) -> None:
        super().__init__(path, labels, features, permanent_ids=permanent_ids)
        require_fractions(public_fraction, test_fraction)
        both = sorted(set(labels) & set(columns or ()))
        require(not both, "columns that are labels or features", both=both)
        self._columns = columns
        self._fractions = public_fraction, test_fraction

    def _read_table(self) -> Table:
        return read_label_table(
            self.path,
            self._wanted,
            self._fractions,
            self._features,
            identity="id",
            content=self._columns or (),
        )

    def _features(self, columns: Columns) -> NumberColumns:
        names = (
            [name for name in columns.names if name != "id"]
            if self._columns is None
            else self._columns
        )
        require(names, f"a column of numbers in {self.path}")
        return NumberColumns(columns.numbers(names, self.path), names)


class NumberColumns(ArrayFeatures):
    """Features with names.

    Args:
        values: ``[N, F]`` float32.
        names: of the columns, ``[F]``.
    """

    def __init__(self, values: Float32Array, names: Sequence[str]) -> None:
        super().__init__(values)
        self.names = tuple(names)

    def select(self, rows: IntArray) -> NumberColumns:
        return NumberColumns(self.values[rows], self.names)
