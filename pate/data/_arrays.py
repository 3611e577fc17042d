"""Data in one ``.npz`` file of arrays, and CelebA's attribute table as a task without pictures."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from pate._runs.files import read_arrays
from pate._typing import IntArray, StrArray
from pate._validation import expect, expect_distinct, expect_open_unit
from pate.data._checks import as_text, check_features, check_labels, select_labels
from pate.data._records import ArrayFeatures, Records, Role
from pate.data._source import DataSource, located
from pate.data.features import FeatureMap

OPTIONAL = ("ids", "split", "group", "label_names")
"""Arrays that a file may have besides ``X`` and ``Y``; ``ids`` are required of a source."""
SPLIT_OF_ROLE = {Role.PRIVATE: 0, Role.PUBLIC: 1, Role.TEST: 2}
_OFFICIAL = {0: 162_770, 1: 19_867, 2: 19_962}
"""CelebA's evaluation partition: the number of rows of each part, one part after the other."""
_GIVE_IDS = "given once when they are collected, such as ids=np.arange(len(X)).astype(str)"


class Arrays(DataSource):
    """An ``.npz`` file with ``X`` ``[N, ...]``, ``Y`` ``[N, C]`` (0/1 or -1/1) and ``ids`` ``[N]``.

    An id names a record for good: it is assigned once, when the records are collected, and stays when others come and
    go. Row numbers do not: removing a record would renumber all later ones and so affect all teachers.

    Optional arrays: ``split`` ``[N]`` (0 private, 1 public, 2 test), ``group`` ``[N]`` (the person to whom a record
    belongs), ``label_names`` ``[C]``.

    Args:
        path: the file.
        labels: names of the labels to learn; None for all.
        public_fraction: share of public records, if the file has no ``split`` and a hash of the id is to decide. There
            is no default, because anybody may see the features of public records.
        test_fraction: share of test records, likewise.
        features: a public map of the features.
    """

    def __init__(
        self,
        path: Path,
        *,
        labels: list[str] | None = None,
        public_fraction: float | None = None,
        test_fraction: float = 0.1,
        features: FeatureMap | None = None,
    ) -> None:
        super().__init__(features=features)
        expect_fractions(public_fraction, test_fraction)
        self.path = located(path)
        self._wanted = labels
        self._fractions = public_fraction, test_fraction

    @cached_property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = read_arrays(self.path, ("X", "Y"), OPTIONAL)
        source = self.path.name
        arrays["X"] = check_features(arrays["X"], source=source)
        arrays["Y"] = check_labels(arrays["Y"], source=source)
        num, num_labels = arrays["Y"].shape
        default_names = np.array([f"label_{j}" for j in range(num_labels)])
        names = arrays["label_names"] = as_text(arrays.get("label_names", default_names), name="label_names")
        expect(len(names) == num_labels, f"{num_labels} label_names in {source}", label_names=len(names))
        expect("ids" in arrays, f"the records' own ids in {source}, {_GIVE_IDS}", missing=["ids"])
        for name in {"ids", "group"} & set(arrays):
            arrays[name] = as_text(arrays[name], name=name)
        expect_distinct(f"ids of {source}", arrays["ids"].tolist())
        if "split" not in arrays:
            arrays["split"] = split_by_hash(arrays.get("group", arrays["ids"]), *self._fractions, source=source)
        split = arrays["split"]
        unknown = sorted(set(np.unique(split).tolist()) - {0, 1, 2})
        expect(not unknown, f"split in 0 (private), 1 (public), 2 (test) in {source}", split=unknown)
        sizes = {name: len(arrays[name]) for name in ("X", "ids", "group", "split") if name in arrays}
        expect(set(sizes.values()) == {num}, f"{num} rows in every array of {source}", **sizes)
        expect(split.ndim == 1, f"split of shape [N] in {source}", shape=split.shape)
        return arrays

    @property
    def ledger_path(self) -> Path:
        """Beside the file: ``data.npz`` has ``data.ledger.sqlite``."""
        return _beside(self.path)

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self._arrays["label_names"][self._columns])

    @property
    def _columns(self) -> IntArray:
        return select_labels(self._arrays["label_names"].tolist(), self._wanted, source=self.path.name)

    def load(self, role: Role) -> Records:
        arrays = self._arrays
        rows = np.flatnonzero(arrays["split"] == SPLIT_OF_ROLE[role])
        expect(rows.size > 0, f"at least one {role.value} record in {self.path.name}", records=0)
        return Records(
            features=ArrayFeatures(arrays["X"][rows]),
            labels=arrays["Y"][rows][:, self._columns],
            ids=arrays["ids"][rows],
            groups=arrays["group"][rows] if "group" in arrays else None,
        )


class CelebAAttributes(DataSource):
    """CelebA's attribute table without the pictures: some attributes predicted from the others.

    It is a tabular task, not image classification. The official split gives the roles; groups are identities; ids are
    the official names of the images, such as ``000001.jpg``.

    Args:
        path: an ``.npz`` with ``attr`` ``[N, 40]``, ``partition`` ``[N]`` (0 train, 1 validation, 2 test),
            ``identity`` ``[N]`` and ``attr_names`` ``[40]``; and ``ids`` ``[N]`` unless it is the official table, all
            202,599 rows in their official order.
        labels: the attributes to learn; all others are the features.
        features: a public map of the features.
    """

    def __init__(self, path: Path, *, labels: list[str], features: FeatureMap | None = None) -> None:
        super().__init__(features=features)
        self.path = located(path)
        self._wanted = labels

    @cached_property
    def _table(self) -> dict[str, NDArray[Any]]:
        table = read_arrays(self.path, ("attr", "partition", "identity", "attr_names"), ("ids",))
        if "ids" not in table:
            _expect_official(table["partition"], source=self.path.name)
            table["ids"] = np.char.mod("%06d.jpg", np.arange(1, len(table["partition"]) + 1))
        sizes = {name: len(table[name]) for name in ("attr", "partition", "identity", "ids")}
        expect(len(set(sizes.values())) == 1, f"as many rows in every array of {self.path.name}", **sizes)
        expect_distinct(f"ids of {self.path.name}", as_text(table["ids"]).tolist())
        return table

    @property
    def ledger_path(self) -> Path:
        return _beside(self.path)

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(self._wanted)

    def load(self, role: Role) -> Records:
        names = as_text(self._table["attr_names"], name="attr_names").tolist()
        columns = select_labels(names, self._wanted, source=self.path.name)
        others = np.setdiff1d(np.arange(len(names)), columns)
        expect(others.size > 0, "attributes left as features", labels=len(columns), attributes=len(names))
        rows = np.flatnonzero(self._table["partition"] == SPLIT_OF_ROLE[role])
        attributes = check_labels(self._table["attr"][rows], source=self.path.name)
        return Records(
            features=ArrayFeatures(attributes[:, others].astype(np.float32) * 2 - 1),
            labels=attributes[:, columns],
            ids=self._table["ids"][rows],
            groups=self._table["identity"][rows],
        )


def _beside(path: Path) -> Path:
    # a link leads to the same records, and so to the same ledger
    return path.resolve().with_suffix(".ledger.sqlite")


def _expect_official(partition: NDArray[Any], *, source: str) -> None:
    """Raise ``ValueError`` unless a table's rows are CelebA's official ones, in their order."""
    official = np.repeat(list(_OFFICIAL), list(_OFFICIAL.values()))
    expect(
        np.array_equal(partition, official),
        f"the official {len(official)} rows in {source}, whose numbers are those of the images, or ids of its own,"
        f" {_GIVE_IDS}",
        rows=len(partition),
    )


def expect_fractions(public_fraction: float | None, test_fraction: float) -> None:
    """Raise ``ValueError`` unless these shares leave some records private."""
    public = {} if public_fraction is None else {"public_fraction": public_fraction}
    expect_open_unit(**public, test_fraction=test_fraction)
    total = (public_fraction or 0.0) + test_fraction
    expect(total < 1, "public_fraction + test_fraction < 1", total=total)


def split_by_hash(groups: StrArray, public_fraction: float | None, test_fraction: float, *, source: str) -> IntArray:
    """Split by a public hash of the group or id, so that no record affects another's role and no group is divided.

    Raises ``ValueError`` unless somebody said which share of ``source`` is public.
    """
    needed = f"split in {source}, or public_fraction, the share of records that a hash makes public"
    expect(public_fraction is not None, needed, public_fraction=None)
    assert public_fraction is not None
    places = np.array([crc32(str(group).encode()) / 2**32 for group in groups])
    return np.where(places < public_fraction, 1, np.where(places < public_fraction + test_fraction, 2, 0))
