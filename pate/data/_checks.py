"""Checks of the labels, their names, ids and features that a source reads."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._validation import (
    UNKNOWN,
    BoolArray,
    IntArray,
    StrArray,
    UInt8Array,
    require,
    require_distinct,
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
    names = [[name.removesuffix(".0") for name in part.tolist()] for part in ids]
    every = [name for part in names for name in part]
    if len(every) < 3 or not all(
        name.isascii() and name.isdigit() and len(name) < 19 for name in every
    ):
        return False
    numbers = [np.array(part, dtype=np.int64) for part in names if part]
    first, last = min(part.min() for part in numbers), max(part.max() for part in numbers)
    steps = np.concatenate([np.diff(part) for part in numbers])
    in_order = (steps > 0).all() or (steps < 0).all()
    return bool(
        in_order
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
        unknown: the sign of those that are unknown; None if all must be known.
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
    lost = np.zeros(labels.shape, dtype=np.bool_)
    if unknown is not None and labels.dtype.kind == "f":
        lost = np.isnan(labels)
    if unknown == -1:
        lost |= labels == -1
    values = np.unique(labels[~lost])
    signed = bool((values == -1).any())
    allowed = (-1, 1) if signed else (0, 1)
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
