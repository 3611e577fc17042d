"""Data in one ``.npz`` file of arrays."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate._core.files.reading import read_arrays
from pate._core.validation import (
    Faults,
    Float32Array,
    IntArray,
    StrArray,
    as_float32,
    require,
    require_distinct,
)
from pate._labeling.data.records import (
    ArrayFeatures,
    FeatureMap,
    Features,
    UnknownLabels,
    as_text,
    blocks_of,
    check_labels,
    select_labels,
)
from pate._labeling.data.source import (
    Table,
    TableSource,
    require_fractions,
    split_by_hash,
    with_tests,
)

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
    default = np.array([f"label_{j}" for j in range(num_labels)])
    names = as_text(arrays.get("label_names", default), name="label_names")
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
