"""A CSV or parquet file with a line for each record: its id, its role, its group and its labels."""

import codecs
import csv
import gzip
import math
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pate._core.files.reading import opened, read_lines, read_parquet
from pate._core.validation import (
    BoolArray,
    Faults,
    IntArray,
    StrArray,
    expecting,
    given,
    require,
    require_distinct,
    require_known,
)
from pate._labeling.data.records import (
    BY_FIELD,
    Features,
    Role,
    UnknownLabels,
    check_labels,
    select_labels,
)
from pate._labeling.data.source import (
    SPLIT_OF_ROLE,
    Table,
    require_fractions,
    split_by_hash,
    with_tests,
)

_SPLIT = {role.value: number for role, number in SPLIT_OF_ROLE.items()} | {
    str(n): n for n in SPLIT_OF_ROLE.values()
}
_THOUSANDS = r"(?<=\d),(?=\d{3}\b)"
_ROWS, _GROWS = 10, 0.98  # that show an order, and how many of their steps
_YAML = {False: ("no", "false", "off"), True: ("yes", "true", "on")}


def _spellings(*words: str) -> list[str]:
    return [spelled for word in words for spelled in (word, word.title(), word.upper())]


LABELS = {"0": 0.0, "1": 1.0, "-1": -1.0} | {
    text: float(value) for value, word in enumerate(("false", "true")) for text in _spellings(word)
}
"""Labels that need no coding."""
GAPS = frozenset(("", "na", "n/a", "<na>", "nan", "null", "none", "?"))
"""Texts, in lower case, in place of a value that is missing."""
LONGEST = 1 << 30
"""Characters of a value, so that no record is too long."""
_SEPARATORS = ";|,"
"""Separators of label names in one value."""
_BRACKETS = {"[": "]", "(": ")", "{": "}"}
_LIST_SEPARATOR = "\x1f"
"""The separator of label names that were a list, which no name holds."""

UTF_8 = "utf-8"
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\3\4"  # of workbooks, too
UNNAMED = "(unnamed)"
"""The first column where it has no heading, as programs write the names or numbers of rows."""

LabelColumns: TypeAlias = list[str] | dict[str, list[str] | dict[Any, int | None]]
"""Columns of 0 and 1; or for each column its coding, or the names that its lists hold."""


@dataclass(frozen=True, kw_only=True)
class TableReading:
    """A source's settings for reading its table.

    Attributes:
        labels: the labels to learn. None for all columns that are left.
        fractions: shares of public and of test records, where the file has no ``split``.
        names: the file's own names of special columns, such as ``{"id": "patient"}``. None says
            that there is no such column, whatever the file calls its columns.
        unknown_labels: the sign of a label that is unknown. None if all must be known.
        group_pattern: a regular expression for the part of an id that names its group. None if a
            column does, or nothing.
        encoding: the encoding of a CSV file.
    """

    labels: LabelColumns | None
    fractions: tuple[float | None, float | None]
    names: Mapping[str, str | None]
    unknown_labels: UnknownLabels | None
    group_pattern: str | None = None
    encoding: str = UTF_8

    def __post_init__(self) -> None:
        require_fractions(*self.fractions)

    def column(self, special: str) -> str | None:
        """Return the file's own name of a special column. None if there is none."""
        return self.names.get(special, special)

    @property
    def grouping(self) -> str:
        """The public name of the groups: their column's, or the pattern of the ids."""
        return self.group_pattern or self.column("group") or "group"

    @property
    def unknown(self) -> UnknownLabels | None:
        """The sign of a label that is unknown, where a coding has no other."""
        codings = self.labels.values() if isinstance(self.labels, dict) else ()
        coded = any(isinstance(coding, dict) and None in coding.values() for coding in codings)
        return self.unknown_labels or ("nan" if coded else None)


@dataclass(frozen=True)
class Columns:
    """Columns of a table, as text.

    Attributes:
        path: the file, or another name of the table.
        values: the values of each column, by its name, in the order of the headings.
        lines: the number of the line of each record.
    """

    path: Path | str
    values: dict[str, list[str]]
    lines: list[int]

    def require(self, name: str, fits: Sequence[object], what: str, hint: str = "") -> None:
        """Raise ``ValueError`` at the first value of a column that does not fit.

        Args:
            name: the column.
            fits: whether the value of each record fits.
            what: the values that fit.
            hint: the end of the error.
        """
        wrong = [place for place, fit in enumerate(fits) if not fit]
        if wrong:
            require(
                False,
                f"{what} in column `{name}` of {self.path}{hint}",
                line=self.lines[wrong[0]],
                value=self.values[name][wrong[0]],
                **given(further_lines=len(wrong) - 1 or None),
            )


def read_label_table(
    path: Path,
    reading: TableReading,
    features: Callable[[Columns, BoolArray], Features],
    *,
    special: Sequence[str],
    content: Sequence[str] = (),
    normal: Callable[[str], str] = str,
) -> Table:
    """Return the records of a CSV file. Only exact names and settings give a column a meaning.

    Args:
        path: the file.
        reading: the settings of the source.
        features: makes the features of all records from the columns that are neither labels nor
            roles nor groups, and ``[N]``, which records are public.
        special: the columns that must be there, first the one of the ids, by our names.
        content: further columns that must be there, by the file's names.
        normal: maps ids that name one record to the same text.

    Raises:
        ValueError: if the file is not such a table, with a line for each fault.
    """
    require_known("`names` of columns", reading.names, (*special, "split", "group"))
    declared = (*special, *(name for name, column in reading.names.items() if column is not None))
    required = dict.fromkeys(reading.column(name) or name for name in declared)
    table = read_columns(path, [*required, *content], encoding=reading.encoding)
    columns, faults = table.values, Faults()
    identity = reading.column(special[0]) or special[0]
    with faults.gather():
        columns[identity] = [name and normal(name) for name in columns[identity]]
        table.require(identity, columns[identity], "a value")
        times = Counter(columns[identity])
        once = [times[name] == 1 for name in columns[identity]]
        table.require(identity, once, f"each `{identity}` once")
    role, group = (
        column if (column := reading.column(name)) in columns else None
        for name in ("split", "group")
    )
    faults.require(
        reading.group_pattern is None or group is None,
        f"`group_pattern` or a column of groups in {path}, not both",
        group=group,
    )
    used = {*required, *given(role=role, group=group).values()}
    others = [name for name in columns if name not in {*used, *content}]
    labels: dict[str, list[float]] = {}
    with faults.gather():
        require(others, f"a column of labels in {path}", columns=[*columns])
        wanted = None if reading.labels is None else [*reading.labels]
        places = select_labels(others, wanted, source=path.name)
        labels = _labels_of(table, [others[place] for place in places], reading, faults)
    ids, groups = np.array(columns[identity]), None
    with faults.gather():
        groups = groups_of(table, group, identity, reading.group_pattern)
    split = np.full(len(ids), SPLIT_OF_ROLE[Role.PUBLIC], dtype=np.int64)
    with faults.gather():
        split = split_of(table, role, ids if groups is None else groups, reading.fractions)
    left = used - {*(reading.column(name) for name in special)} | {*(reading.labels or labels)}
    rest = {name: values for name, values in columns.items() if name not in left}
    with faults.gather():
        made = features(Columns(path, rest, table.lines), split == SPLIT_OF_ROLE[Role.PUBLIC])
    faults.refuse()
    coded = np.array([*labels.values()], dtype=np.float32).T
    return Table(
        features=made,
        names=[*labels],
        labels=check_labels(coded, source=str(path), unknown=reading.unknown),
        ids=ids,
        split=split,
        groups=groups,
    )


def _labels_of(
    table: Columns, chosen: Sequence[str], reading: TableReading, faults: Faults
) -> dict[str, list[float]]:
    codings = reading.labels if isinstance(reading.labels, dict) else dict.fromkeys(chosen)
    named = [codings[column] for column in chosen]
    times = Counter(name for coding in named if isinstance(coding, list) for name in coding)
    times.update(column for column in chosen if not isinstance(codings[column], list))
    labels: dict[str, list[float]] = {}
    for column in chosen:
        coding = codings[column]
        with faults.gather():
            if isinstance(coding, list):
                listed = _listed(table, column, coding)
                labels |= {
                    f"{column}={name}" if times[name] > 1 else name: values
                    for name, values in listed.items()
                }
                continue
            codes = LABELS if coding is None else _codes_of(column, coding)
            known = reading.unknown is None
            gaps = () if known else filter(is_gap, {*table.values[column]} - codes.keys())
            codes = codes | dict.fromkeys(gaps, math.nan)
            what = "0 or 1" if coding is None else f"one of {', '.join(codes)}"
            hint = f"{BY_FIELD}, and `labels` codes others: {{{column}: {{yes: 1, no: 0}}}}"
            labels[column] = _coded(table, column, codes, what, hint)
    return labels


def _codes_of(column: str, coding: Mapping[Any, int | None]) -> dict[str, float]:
    """Return the numbers that the values of a column stand for, by what is declared.

    YAML reads words such as ``yes`` as true: they stand for all words that it reads so.
    """
    wrong = {key: value for key, value in coding.items() if value not in (0, 1, None)}
    require(
        not wrong and {0, 1} <= {*coding.values()},
        f"a coding of label `{column}` by 1, 0, and null for unknown ones",
        coding=dict(coding),
    )
    return {
        as_level(word): math.nan if value is None else float(value)
        for key, value in coding.items()
        for word in (_spellings(*_YAML[key]) if isinstance(key, bool) else [str(key)])
    }


def groups_of(
    table: Columns, column: str | None, identity: str, pattern: str | None
) -> StrArray | None:
    """Return the group ``[N]`` of each record, by a column or a part of its id. None of neither."""
    if column is not None:
        table.require(column, table.values[column], "a value")
        return np.array(table.values[column])
    if pattern is None:
        return None
    with expecting("a regular expression in `group_pattern`", re.error, got=pattern):
        found = [re.search(pattern, name) for name in table.values[identity]]
    parts = ["" if match is None else match[0] for match in found]
    table.require(identity, parts, f"a part {pattern!r}, the `group_pattern`,")
    return np.array(parts)


def split_of(
    table: Columns, column: str | None, keys: StrArray, fractions: tuple[float | None, float | None]
) -> IntArray:
    """Return the role ``[N]`` of each record, by a column or by hashes of ``keys``."""
    if column is None:
        return split_by_hash(keys, *fractions, source=str(table.path))
    require(
        fractions[0] is None,
        f"`public_fraction` or column `{column}` of {table.path}, which gives the roles; not both",
        public_fraction=fractions[0],
    )
    codes = _coded(table, column, _SPLIT, "private, public or test")
    return with_tests(np.array(codes, dtype=np.int64), keys, fractions[1])


def is_gap(text: str, gaps: Collection[str] = ()) -> bool:
    """Return whether a text stands for a missing value, by itself or as one of ``gaps``."""
    return text.lower() in GAPS or (bool(gaps) and (text in gaps or as_level(text) in gaps))


def as_number(text: str) -> float | None:
    """Return the finite number that a text is, the largest one for those beyond. None if none."""
    try:
        number = float(text)
    except ValueError:
        return None
    if math.isinf(number) and "n" not in text.lower():  # `1e999`, and not `inf`
        return math.copysign(sys.float_info.max, number)
    return number if math.isfinite(number) else None


def as_level(text: str) -> str:
    """Return a value in one spelling: programs write 1 and 2 with gaps as 1.0 and 2.0."""
    number = as_number(text)
    return str(int(number)) if number is not None and number.is_integer() else text


def counts_rows(values: Sequence[str]) -> bool:
    """Return whether whole numbers grow, or fall, from row to row, in ten rows or more.

    Gaps do not count, nor does one row in fifty: tables may be joined.

    >>> counts_rows([*map(str, range(5, 50, 3))]), counts_rows(["1", "2", "2", *"3456789"])
    (True, False)
    """
    full = [re.sub(_THOUSANDS, "", text) for text in values if not is_gap(text)]
    numbers = [as_number(text) for text in full]
    whole = [number for number in numbers if number is not None and number.is_integer()]
    steps = np.sign(np.diff(whole))
    return len(whole) == len(numbers) >= _ROWS and bool(
        max(np.mean(steps > 0), np.mean(steps < 0)) >= _GROWS
    )


def _coded(
    table: Columns, name: str, codes: Mapping[str, float], what: str, hint: str = ""
) -> list[float]:
    """Return the numbers that the values of a column stand for."""
    values = [*map(as_level, table.values[name])]
    table.require(name, [value in codes for value in values], what, hint)
    return [codes[value] for value in values]


def _listed(table: Columns, column: str, names: Sequence[str]) -> dict[str, list[float]]:
    """Return 0 and 1 for each label that the values of a column may list, by name or by place."""
    require(names, f"names of labels that column `{column}` of {table.path} lists")
    require_distinct("label names", names)
    never = [name for name in names if name != name.strip() or _LIST_SEPARATOR in name]
    require(not never, f"names that a value of column `{column}` may list", never=never)
    values = [as_list(text, names) for text in table.values[column]]
    flags = [as_flags(value) for value in values]
    if not {"0", "1"} & {*names} and any(len(flag) > 1 for flag in flags):
        fits = [len(flag) == len(names) for flag in flags]
        table.require(column, fits, f"a list of {len(names)} times 0 or 1")
        return dict(zip(names, map(list, zip(*flags, strict=True)), strict=True))
    return {name: [float(name in listed) for listed in values] for name in names}


def as_flags(parts: Sequence[str]) -> list[float]:
    """Return the numbers of a list such as ``[0, 1, 0]``; none if it holds anything else."""
    flags = [LABELS.get(as_level(part), -1) for part in parts]
    return flags if set(flags) <= {0.0, 1.0} else []


def as_list(text: str, names: Collection[str] = ()) -> list[str]:
    """Return the names that a text such as ``sports;news`` or ``['sports', 'news']`` lists.

    A separator that occurs in one of ``names`` is none, and a text that is one lists itself.
    """
    if text in names:
        return [text]
    signs = "".join(sign for sign in _SEPARATORS if not any(sign in name for name in names))
    parts = re.split(f"[{signs}{_LIST_SEPARATOR}]", _unwrapped(text.strip()))
    return [part if part in names else part.strip(" '\"") for part in map(str.strip, parts)]


def _unwrapped(text: str) -> str:
    """Return a text without a pair of brackets around all of it."""
    while text[:1] in _BRACKETS and text[-1:] == _BRACKETS[text[0]]:
        depths = accumulate((sign == text[0]) - (sign == _BRACKETS[text[0]]) for sign in text)
        if 0 in [*depths][:-1]:
            break
        text = text[1:-1].strip()
    return text


def is_table(path: Path) -> bool:
    """Return whether a name belongs to a table: CSV, which may be packed, or parquet."""
    return path.name.endswith((".csv", ".csv.gz", ".tsv", ".parquet"))


def _csv_lines(path: Path, encoding: str) -> list[tuple[int, list[str]]]:
    """Return the numbers and values of the lines of a CSV file, first of the headings."""
    other = "" if encoding != UTF_8 else " (`encoding` names another, such as cp1252)"
    decoded = expecting(f"a CSV file in {encoding.upper()}{other}", UnicodeError, got=path)
    faults = csv.Error, gzip.BadGzipFile, zlib.error, EOFError
    with expecting("an `encoding` that Python knows", LookupError, got=encoding):
        # some programs begin their files with a byte order mark
        codec = "utf-8-sig" if codecs.lookup(encoding).name == UTF_8 else encoding
    with decoded, expecting("a CSV file", *faults, got=path):
        with opened(path) as start:
            archive = start.read(4) == _ZIP
        require(not archive, "a CSV file, as a spreadsheet saves it", archive=str(path))
        lines = read_lines(path, codec)
        head = next(lines, "")
        csv.field_size_limit(LONGEST)
        # spreadsheets write `;` where decimals have commas
        delimiter = max(",;\t", key=head.count)
        reader = csv.reader(chain([head], lines), delimiter=delimiter, strict=True)
        return [(reader.line_num, [value.strip() for value in row]) for row in reader if row]


def _parquet_lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return the rows of a parquet file as texts, numbered from 1, after the headings."""
    try:
        from pyarrow import ArrowInvalid
    except ImportError:
        raise ValueError(
            "Expected pyarrow, which reads parquet: pip install 'pate[parquet]'"
        ) from None
    with expecting("a parquet file", ArrowInvalid, OSError, got=path):
        table = read_parquet(path)
    columns = [[as_cell(value) for value in column.to_pylist()] for column in table.columns]
    return [(0, table.column_names), *enumerate(map(list, zip(*columns, strict=True)), 1)]


def as_cell(value: object) -> str:
    """Return a value as a text of a CSV file: an empty one for None, a list with separators."""
    if isinstance(value, list | tuple | set | np.ndarray):
        return _LIST_SEPARATOR.join(map(str, value))
    return "" if value is None else str(value).strip()


def read_columns(path: Path, required: Sequence[str] = (), *, encoding: str = UTF_8) -> Columns:
    """Return the columns of a CSV file. Empty headings at the end, without values, are left out.

    Args:
        path: the file.
        required: the columns that must be there.
        encoding: the encoding of a CSV file, which may be packed by gzip.

    Raises:
        ValueError: if a column is missing or a line is malformed, with a line for each fault.
    """
    require(path.is_file(), "a CSV file of labels", missing=str(path))
    numbered = _parquet_lines(path) if path.suffix == ".parquet" else _csv_lines(path, encoding)
    head, lines = numbered[0][1] if numbered else [], numbered[1:]
    if len(head) > 1 and not head[0]:
        head = [UNNAMED, *head[1:]]
    while head and not head[-1] and not any(row[len(head) - 1 :][:1] > [""] for _, row in lines):
        head, lines = head[:-1], [(line, row[: len(head) - 1]) for line, row in lines]
    faults, lower = Faults(), {name.lower(): name for name in head}
    for name in dict.fromkeys(required):
        alike = [lower[word] for word in get_close_matches(name.lower(), lower, n=1)]
        hint = f"; is it `{alike[0]}`?" if alike else ""
        missing = f"a column `{name}` in {path}, between commas{hint}"
        faults.require(name in head, missing, columns=head)
    faults.require(
        len(set(head)) == len(head) and all(head),
        f"columns of {path} with names that are unique, and not empty",
        columns=head,
    )
    faults.require(lines, f"lines below the headings of {path}")
    size = len(head)
    line, number = next(((at, len(row)) for at, row in lines if len(row) != size), (0, size))
    what = f"{size} values in each line of {path}"
    faults.require(number == size, what, line=line, values=number)
    faults.refuse()
    columns = dict(zip(head, map(list, zip(*(row for _, row in lines), strict=True)), strict=True))
    return Columns(path, columns, [line for line, _ in lines])
