"""A CSV file with a line for each record: its id, its role, its group and its labels."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from pate._validation import Float32Array, require
from pate.data._checks import select_labels
from pate.data._records import Features, Role
from pate.data._table import SPLIT_OF_ROLE, Table, split_by_hash

_GROUPS = ("group", "identity")
_SPLIT = {role.value: number for role, number in SPLIT_OF_ROLE.items()} | {
    str(n): n for n in SPLIT_OF_ROLE.values()
}
_ALIKE = 0.76  # similarity of a misspelt name to the one that was meant
_LABEL = {"0": 0, "1": 1, "-1": 0}


@dataclass(frozen=True)
class Columns:
    """Columns of a CSV file, as text.

    Attributes:
        values: the values of each column, by its name.
        lines: the number of the line of each record.
    """

    values: dict[str, list[str]]
    lines: list[int]

    @property
    def names(self) -> list[str]:
        """The headings, in their order."""
        return [*self.values]

    def numbers(self, names: Sequence[str], path: Path) -> Float32Array:
        """Return the numbers ``[N, len(names)]`` in columns of ``path``.

        Raises ``ValueError`` if one is not finite.
        """
        numbers = np.empty((len(self.lines), len(names)), dtype=np.float32)
        for place, name in enumerate(names):
            for row, text in enumerate(self.values[name]):
                number = _finite(text)
                what = f"a finite number in column `{name}` of {path}"
                require(number is not None, what, line=self.lines[row], value=text)
                numbers[row, place] = number
        return numbers


def _finite(text: str) -> float | None:
    """Return the number that a text is; None if it is none that float32 holds."""
    try:
        number = float(text)
    except ValueError:
        return None
    return (
        number if math.isfinite(number) and abs(number) <= float(np.finfo(np.float32).max) else None
    )


def read_label_table(
    path: Path,
    wanted: Sequence[str] | None,
    fractions: tuple[float | None, float],
    features: Callable[[Columns], Features],
    *,
    identity: str,
    content: Sequence[str],
    normal: Callable[[str], str] = str,
) -> Table:
    """Return the records of a CSV file. Columns without a meaning of their own are labels.

    Args:
        path: the file.
        wanted: names of the labels to learn; None for all.
        fractions: shares of public and of test records, where the file has no ``split``.
        features: makes the features of all records from the columns that are neither labels nor
            roles nor groups.
        identity: the column of the ids.
        content: columns that features are made of; the column of the ids may be one of them.
        normal: maps ids that name one record to the same text.

    Raises:
        ValueError: in one line, if the file is not such a table.
    """
    required = tuple(dict.fromkeys((identity, *content)))
    table = read_columns(path, required)
    head, lines, columns = table.names, table.lines, table.values
    columns[identity] = [name and normal(name) for name in columns[identity]]
    _require_unique(columns[identity], lines, identity, path)
    unnamed = {name: columns[name] for name in head if name not in (wanted or ())}
    _require_no_misspelling(unnamed, required, wanted is None, path)
    group = next((name for name in _GROUPS if name in head), None)
    others = [name for name in head if name not in (*required, "split", group)]
    require(others, f"a column of labels in {path}", columns=head)
    chosen = [others[place] for place in select_labels(others, wanted, source=path.name)]

    def numbers(name: str, codes: dict[str, int], what: str) -> list[int]:
        for line, value in zip(lines, columns[name], strict=True):
            require(value in codes, f"{what} in column `{name}` of {path}", line=line, value=value)
        return [codes[value] for value in columns[name]]

    labels = np.array([numbers(name, _LABEL, "0 or 1") for name in chosen], dtype=np.uint8)
    ids, groups = np.array(columns[identity]), None
    if group is not None:
        for line, value in zip(lines, columns[group], strict=True):
            require(value, f"a value in column `{group}` of {path}", line=line, value=value)
        groups = np.array(columns[group])
    if "split" in head:
        split = np.array(numbers("split", _SPLIT, "private, public or test"))
    else:
        split = split_by_hash(ids if groups is None else groups, *fractions, source=str(path))
    used = {"split", group, *chosen}
    return Table(
        features=features(
            Columns({name: columns[name] for name in head if name not in used}, lines)
        ),
        names=chosen,
        labels=np.ascontiguousarray(labels.T),
        ids=ids,
        split=split,
        groups=groups,
    )


def read_columns(path: Path, required: Sequence[str]) -> Columns:
    """Return the columns of a CSV file.

    Raises ``ValueError`` if one that is required is missing.
    """
    require(path.is_file(), "a CSV file of labels", missing=str(path))
    try:
        # some programs begin their files with a byte order mark
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            numbered = [
                (reader.line_num, [value.strip() for value in row]) for row in reader if row
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"Expected a CSV file in UTF-8, got {path} ({error})") from None
    head = numbered[0][1] if numbered else []
    for name in required:
        require(name in head, f"a column `{name}` in {path}, between commas", columns=head)
    require(
        len(set(head)) == len(head) and all(head),
        f"columns of {path} with names that are unique",
        columns=head,
    )
    require(len(numbered) > 1, f"lines below the headings of {path}")
    for line, row in numbered[1:]:
        require(
            len(row) == len(head),
            f"{len(head)} values in each line of {path}",
            line=line,
            values=len(row),
        )
    columns = {name: [row[place] for _, row in numbered[1:]] for place, name in enumerate(head)}
    return Columns(columns, [line for line, _ in numbered[1:]])


def _require_no_misspelling(
    columns: dict[str, list[str]], required: Sequence[str], labels: bool, path: Path
) -> None:
    """Raise ``ValueError`` if a column that was not requested looks like a misspelt special column.

    Args:
        columns: all columns except labels requested by name.
        required: the columns that must be there.
        labels: whether these columns are taken as labels.
        path: the file.
    """
    special = (*required, "split", *_GROUPS)
    for name in columns.keys() - set(special):
        meant = get_close_matches(name.lower(), special, n=1, cutoff=_ALIKE)
        roles = (
            "split" not in columns
            and not labels
            and set(columns[name]) <= {role.value for role in Role}
        )
        require(
            not meant and not roles,
            f"a column `{meant[0] if meant else 'split'}` of {path}",
            column=name,
        )
    require(
        not set(_GROUPS) <= columns.keys(),
        f"one column among {', '.join(_GROUPS)} in {path}",
        columns=_GROUPS,
    )


def _require_unique(ids: Sequence[str], lines: Sequence[int], identity: str, path: Path) -> None:
    first: dict[str, int] = {}
    for line, name in zip(lines, ids, strict=True):
        require(
            name,
            f"a value in column `{identity}` in each line of {path}",
            line=line,
            **{identity: name},
        )
        once = f"each `{identity}` once in {path}"
        require(name not in first, once, **{identity: name}, lines=(first.get(name), line))
        first[name] = line
