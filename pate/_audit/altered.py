"""Neighboring records: those of another source with one private record altered or removed."""

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from pate._validation import Float32Array, IntArray, require, require_count
from pate.data import ArrayFeatures, DataSource, Features, Records, Role

Change = Literal["altered", "removed"]
# an altered record is so many times as far out as the farthest public sample
_FAR = 4.0


class Altered(DataSource):
    """The records of another source with one private record altered or removed.

    The record changes before features are mapped. Its new features are those of a public sample,
    farther out, and its labels are the opposite ones.

    Args:
        source: the source.
        change: the change; None for the records as they are.
        row: the row of the record among the private ones.
    """

    def __init__(self, source: DataSource, *, change: Change | None = None, row: int = 0) -> None:
        super().__init__(
            features=source.feature_map,
            permanent_ids=source.permanent_ids,
            unknown_labels=source.unknown_labels,
            budgets=source.budgets,
        )
        require(change in (None, *get_args(Change)), "a change of a record", change=change)
        require_count(0, row=row)
        self._source, self._change, self._row = source, change, row

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels of the source."""
        return self._source.label_names

    def load(self, role: Role) -> Records:
        """Return the raw records of the source, changed if they are private."""
        records = self._source.load(role)
        if role is not Role.PRIVATE or self._change is None:
            return records
        require(self._row < len(records), "the row of a private record", row=self._row)
        if self._change == "removed":
            return records.select(np.delete(np.arange(len(records)), self._row))
        labels = np.array(records.labels)
        labels[self._row] = 1 - (labels[self._row] > 0)
        far = _FAR * self._source.load(Role.PUBLIC).features[:1][0]
        changed = _OneChanged(records.features, self._row, far)
        return replace(records, features=changed, labels=labels)


class MadeUp(DataSource):
    """Private records made up of the public samples of another source: nothing private is read.

    Args:
        source: the source. Its public samples become private records too, with random labels.
        seed: the seed of the labels.
        grouped: whether each record is a group of its own.
    """

    def __init__(self, source: DataSource, *, seed: int = 0, grouped: bool = False) -> None:
        super().__init__(
            features=source.feature_map,
            permanent_ids=True,
            unknown_labels=source.unknown_labels,
            budgets=source.budgets,
        )
        require_count(0, seed=seed)
        self._source, self._seed, self._grouped = source, seed, grouped

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels of the source."""
        return self._source.label_names

    def load(self, role: Role) -> Records:
        """Return the raw public or test records of the source, or made-up private ones."""
        if role is not Role.PRIVATE:
            return self._source.load(role)
        public = self._source.load(Role.PUBLIC)
        labels = np.random.default_rng(self._seed).integers(0, 2, public.labels.shape)
        ids = np.array([f"made-up-{name}" for name in public.ids.tolist()])
        return Records(
            features=public.features,
            labels=labels.astype(np.uint8),
            ids=ids,
            groups=ids if self._grouped else None,
            budgets=np.resize(self.budgets, len(ids)) if self.budgets else None,
        )


class _OneChanged(Features):
    def __init__(self, features: Features, row: int, values: Float32Array) -> None:
        self._features, self._row, self._values = features, row, values

    @property
    def shape(self) -> tuple[int, ...]:
        return self._features.shape

    def __getitem__(self, index: Any, /) -> Float32Array:
        rows = np.array(self._features[index])
        rows[np.arange(self.shape[0])[index] == self._row] = self._values
        return rows

    def select(self, rows: IntArray) -> Features:
        # maps read files faster than rows, so that only the altered record is in memory
        if self._row in rows:
            return super().select(rows)
        return self._features.select(rows)

    def once(self) -> Features:
        return ArrayFeatures(self[np.arange(self.shape[0])])
