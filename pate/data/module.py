"""The contract of a data module: one source of records in three roles."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pate.data.features import FeatureMap
from pate.validation import expect

UInt8Array = NDArray[np.uint8]
FloatArray = NDArray[np.float32]
StrArray = NDArray[np.str_]


class Role(StrEnum):
    """What records are for."""

    PRIVATE = "private"
    """Records that teachers train on. What is computed from them is PRIVATE."""
    PUBLIC = "public"
    """Samples that teachers vote on. Their features are public; their labels, where known, are not used."""
    TEST = "test"
    """Held-out records with their truth, on which a student is judged."""


class Features(Protocol):
    """Features of ``N`` records, by index: a float32 array, or anything that reads rows when asked."""

    @property
    def shape(self) -> tuple[int, ...]:
        """``(N, ...)``."""

    def __getitem__(self, index: Any, /) -> FloatArray:
        """Return the rows ``index`` (integers ``[B]``) as float32 ``[B, ...]``."""


@dataclass(frozen=True, kw_only=True)
class Records:
    """Records of one role.

    Attributes:
        features: ``[N, ...]`` float32, by index.
        labels: ``[N, C]`` in {0, 1}.
        ids: ``[N]`` strings, unique over all roles. An id is the record's own: it stays when other records come and
            go, and so is never a row number.
        groups: ``[N]`` strings, whose record it is, for teachers that are assigned by person; None where the source
            does not say.
    """

    features: Features
    labels: UInt8Array
    ids: StrArray
    groups: StrArray | None = None

    def __post_init__(self) -> None:
        sizes = {"features": self.features.shape[0], "ids": len(self.ids)}
        if self.groups is not None:
            sizes["groups"] = len(self.groups)
        expect(self.labels.ndim == 2 and self.labels.shape[1] > 0, "labels of shape [N, C]", shape=self.labels.shape)
        expect(set(sizes.values()) == {len(self.labels)}, "as many features, ids and groups as labels", **sizes)
        unique = len(np.unique(self.ids))
        expect(unique == len(self.ids), "record ids that are unique", records=len(self.ids), distinct=unique)

    def __len__(self) -> int:
        return len(self.ids)


class DataModule(ABC):
    """One source of records in the three roles of `Role`.

    Subclass it with the paths and choices of a source as arguments, and name it by class path in ``data.yaml``. The
    private records are read by the stages `teachers` alone.

    Args:
        features: a public map of the raw features that teachers and student alike see, or None for the raw ones.
    """

    def __init__(self, *, features: FeatureMap | None = None) -> None:
        self._feature_map = features
        self._records: dict[Role, Records] = {}

    @property
    @abstractmethod
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels, in the order of their columns."""

    @abstractmethod
    def load(self, role: Role) -> Records:
        """Read the raw records of a role. Raises ``ValueError`` in one line on what cannot be used.

        What is read of public and test records, their ids and order included, is a function of those records alone.
        """

    @property
    def feature_map(self) -> FeatureMap | None:
        """The public map of the features, None where teachers and student see the raw ones."""
        return self._feature_map

    @property
    def ledger_path(self) -> Path | None:
        """Where the ledger of these private data lies, beside them, so that all runs on them share it.

        None where the source names no place; the ledger then counts what a run releases and nothing else.
        """
        return None

    def records(self, role: Role) -> Records:
        """Return the records of a role, their features mapped; read once."""
        if role not in self._records:
            records = self.load(role)
            if self._feature_map is not None:
                public = records if role is Role.PUBLIC else self.load(Role.PUBLIC)
                records = replace(records, features=self._feature_map.fit(public.features).transform(records.features))
            self._records[role] = records
        return self._records[role]

    @property
    def num_labels(self) -> int:
        """How many labels a record has."""
        return len(self.label_names)

    @cached_property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one record's features, as networks see them."""
        return tuple(self.records(Role.PUBLIC).features.shape[1:])


def located(path: Path | str) -> Path:
    """Return a path with its environment variables filled in. Raises ``ValueError`` where one is not set."""
    filled = os.path.expandvars(path)
    expect("$" not in filled, "the environment variables of a path to be set", path=str(path))
    return Path(filled).expanduser()


def as_text(values: NDArray[Any]) -> StrArray:
    """Return ids or groups ``[N]`` as strings, as wide as the longest of them and not as those of other roles."""
    return np.array([str(value) for value in values.tolist()], dtype=np.str_)


def check_labels(labels: NDArray[Any], *, source: str) -> UInt8Array:
    """Return labels ``[N, C]`` as uint8 in {0, 1}, from 0/1 or -1/1. Raises ``ValueError`` on any other value."""
    labels = np.asarray(labels)
    expect(labels.ndim == 2 and labels.shape[1] > 0, f"labels of shape [N, C] in {source}", shape=labels.shape)
    values = np.unique(labels)
    signed = bool((values == -1).any())
    allowed = (-1, 1) if signed else (0, 1)
    wrong = [value.item() for value in values if value not in allowed]
    expect(not wrong, f"labels among {allowed} in {source}", values=wrong[:5])
    positive: UInt8Array = (labels == 1).astype(np.uint8)
    return positive


def select_labels(names: Sequence[str], wanted: Sequence[str] | None, *, source: str) -> NDArray[np.int64]:
    """Return the columns of ``wanted`` names, or all of them. Raises ``ValueError`` on a name that is not there."""
    if wanted is None:
        return np.arange(len(names))
    expect(wanted, "at least one label", labels=list(wanted))
    unknown = sorted(set(wanted) - set(names))
    expect(not unknown, f"attribute names among {', '.join(names)} ({source})", unknown=unknown)
    expect(len(set(wanted)) == len(wanted), "label names that are unique", labels=list(wanted))
    return np.array([list(names).index(name) for name in wanted])


def check_features(features: FloatArray, *, source: str) -> FloatArray:
    """Return features as contiguous float32. Raises ``ValueError`` on NaN or infinite values."""
    features = np.ascontiguousarray(features, dtype=np.float32)
    bad = np.count_nonzero(~np.isfinite(features).reshape(len(features), -1).all(axis=1))
    expect(bad == 0, f"finite features in {source}", records_with_nan_or_infinity=bad)
    return features
