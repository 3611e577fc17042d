"""The columns of a table for `pate fit` and `init`: what is declared, and what must be.

Roles, persons, ids and labels come from exact names of columns and from options. A question lists
the columns that may be meant, with what is seen in all records: for the owner, PRIVATE. Codings of
labels and kinds of features are guessed from public and test records.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pate._core.files.reading import opened, read_arrays, read_yaml
from pate._core.validation import InputError, require
from pate._labeling.data.label_table import (
    LABELS,
    UNNAMED,
    UTF_8,
    Columns,
    LabelColumns,
    as_flags,
    as_level,
    as_list,
    as_number,
    counts_rows,
    groups_of,
    is_gap,
    read_columns,
    split_of,
)
from pate._labeling.data.records import Features, Role, UnknownLabels
from pate._labeling.data.source import GIVE_IDS, OPTIONAL, SPLIT_OF_ROLE, roles_of
from pate._labeling.data.tables import FORMATS, is_no_level, number_of

_MOST_LEVELS = 50
_HASHED = 256  # columns of words of a text
_WORDS = 20  # letters of a text, on average
_MOST_SIGNS = 3  # different signs of missing numbers in a column
_LISTS = r"[;|\x1f]|^\["
_LISTS_OF_LABELS = r"[;|,\x1f]|^\["
_SENTINEL = r"-?9+"
_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%b-%Y", "%d %b %Y")
_FORMATS = (
    "thousands_comma",
    *(form for form in FORMATS if form != "thousands_comma"),
    *(*_DAYS, "%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M"),
)
"""Formats of numbers, in the order of trials."""
_TWO_NUMBERS = r"\d+\s*[/x-]\s*\d+"
_TRIED = 200  # different values
_FEW, _RARELY, _ALWAYS = 10, 0.02, 0.95  # different values of a code that repeats
_DIGITS = 5  # of a number that is a code
_EVEN, _CHANCE = 0.12, 1.4  # of all, that values differ from evenly spread ones; and by chance
_MOST_SHOWN = 20  # columns of a question, or values
_ALL = ""  # all columns that have no other meaning are labels
_ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # by their first bytes
_LATIN = "cp1252"


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What options say of the columns of data, by the data's own names.

    Args:
        labels: the columns to learn, such as gout,asthma; or with their coding, such as
            '{gout: {Yes: 1, No: 0}}', or the words of a column that are a label each, such as
            '{species: [cat, dog]}'; or for pictures a .csv, of which all other columns are labels.
        id: the column of ids, or of names of picture files, if it has another name.
        split: the column of roles, if it is not called `split`.
        public_fraction: the share of your records to publish, chosen by a hash, if no column
            says which.
        test_fraction: the share of test records: of all if a hash chooses the public ones, and of
            the public ones if the column of roles names none.
        group: the column that names the person of a record, if it is not called `group`. All
            records of a person are protected together.
        group_pattern: the part of a picture's name that names its person, such as patient[0-9]+.
        no_group: each record is a person's only one.
        features: the columns of features, such as age,sex, or of texts. All others are left out.
        unknown_labels: the sign of labels that are unknown.
        kind: the kind of data, unless their names tell it.
        copies: public records may be private ones, too, which nothing protects then.
    """

    labels: str | None = None
    id: str | None = None
    split: str | None = None
    public_fraction: float | None = None
    test_fraction: float | None = None
    group: str | None = None
    group_pattern: str | None = None
    no_group: bool = False
    features: str | None = None
    unknown_labels: UnknownLabels | None = None
    kind: str | None = None
    copies: bool = False

    @property
    def wanted(self) -> LabelColumns | None:
        """The labels: names, or what ``labels`` of data.yaml takes."""
        if self.labels is None or self.labels[:1] not in ("{", "["):
            return _listed(self.labels) or None
        wanted: LabelColumns = read_yaml(self.labels, "names of columns in --labels, or YAML")
        return wanted

    def names(self, content: str) -> dict[str, str | None]:
        """Return the file's own names of special columns.

        Args:
            content: the column that features are made of, ``file`` or ``text``; ``id`` for numbers.
        """
        text = self.features if content == "text" else None
        special = "file" if content == "file" else "id"
        named = {special: self.id, "text": text, "split": self.split, "group": self.group}
        return {name: column for name, column in named.items() if column not in (None, name)}


def _listed(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


@dataclass
class Draft:
    """Settings of a source, each with its reason.

    Attributes:
        settings: the values by name.
        reasons: for each, a comment.
        remarks: lines for the user.
        root: the folder of pictures, where it is not the one that was named.
        first: the id of the first record of a table.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    root: Path | None = None
    first: str = ""

    def add(self, name: str, value: object, reason: str) -> None:
        """Add a setting, unless nothing was found for it."""
        if value is not None and value not in ([], {}):
            self.settings[name], self.reasons[name] = value, reason


def declared_draft(declared: Declared, content: str | None) -> Draft:
    """Return the settings that options give."""
    draft = Draft()
    draft.add("names", declared.names(content or "id"), "The columns that the file calls otherwise")
    given = {
        "group_pattern": declared.group_pattern,
        "labels": declared.wanted,
        "columns": None if content == "text" else _listed(declared.features),
        "unknown_labels": declared.unknown_labels,
        "public_fraction": declared.public_fraction,
        "test_fraction": declared.test_fraction,
        "copies": declared.copies or None,
    }
    for name, value in given.items():
        draft.add(name, value, f"From --{'features' if name == 'columns' else name}")
    return draft


class UndeclaredError(InputError):
    """What must be declared.

    Attributes:
        evidence: a line for each column that may be meant: PRIVATE.
        options: options that may answer it.
    """

    def __init__(self, faults: list[str], evidence: list[str], options: list[str]) -> None:
        super().__init__(*faults)
        self.evidence, self.options = evidence, options


def draft_of_table(path: Path, content: str, declared: Declared) -> Draft:
    """Return the settings of the source of a table.

    Args:
        path: the file.
        content: as of `Declared.names`.
        declared: what options say.

    Raises:
        UndeclaredError: if something that privacy rests on, or a label, is not declared.
        ValueError: if the table is not as it is declared, with a line for each fault.
    """
    (table, encoding), draft = read_table(path), declared_draft(declared, content)
    if encoding != UTF_8:
        draft.add("encoding", encoding, "Guessed: the file is not in UTF-8")
    names = declared.names(content)
    if declared.no_group and "group" in table.values:
        names["group"] = None
        draft.add("names", names, "The columns that the file calls otherwise; null: there is none")
    identity = names.get(special := "file" if content == "file" else "id", special) or special
    wanted = declared.wanted or ()
    features = _listed(declared.features if content == "id" else None)
    needed = [*filter(None, names.values()), *wanted, *features]
    unknown = [name for name in needed if name not in table.values]
    require(not unknown, f"columns of {path}", unknown=unknown, columns=[*table.values])
    role, group = (
        column if (column := names.get(name, name)) in table.values else None
        for name in ("split", "group")
    )
    _ask(table, declared, content, identity, role, group)
    if declared.labels == _ALL:
        left = [name for name in table.values if name not in (identity, role, group)]
        declared = replace(declared, labels=json.dumps(left))
    keys, draft.first = np.array(table.values[identity]), table.values[identity][0]
    groups = groups_of(table, group, identity, declared.group_pattern)
    fractions = declared.public_fraction, declared.test_fraction
    split = split_of(table, role, keys if groups is None else groups, fractions)
    shown = Columns(
        path,
        {
            name: [values[row] for row in np.flatnonzero(split != SPLIT_OF_ROLE[Role.PRIVATE])]
            for name, values in table.values.items()
        },
        [],
    )
    _code_labels(draft, shown, declared)
    if content == "id":
        rest = [name for name in shown.values if name not in {identity, role, group, *wanted}]
        _add_features(draft, shown, features or rest, bool(features))
    return draft


def draft_of_pictures(folder: Path, declared: Declared) -> Draft:
    """Return the settings of the source of a folder of pictures with a CSV file of labels."""
    tables = {table.name: table for table in sorted(folder.glob("*.csv"))}
    named = "labels.csv"
    if declared.labels is not None and declared.labels.endswith(".csv"):
        named, declared = declared.labels, replace(declared, labels=_ALL)
    table = tables.get(named, next(iter(tables.values()), folder))
    some = named in tables or (len(tables) == 1 and declared.labels != _ALL)
    require(some, f"{named} in {folder}", files=[*tables])
    draft, above = draft_of_table(table, "file", declared), folder.absolute().parent
    if not (folder / draft.first).exists() and (above / draft.first).exists():
        # names begin with the folder, as in CheXpert
        draft.root = above
        draft.add("table", str(table.absolute().relative_to(above)), "The CSV file")
    elif table.name != "labels.csv":
        draft.add("table", table.name, "The CSV file in the folder")
    return draft


def draft_of_arrays(path: Path, declared: Declared) -> Draft:
    """Return the settings of the source of an ``.npz``."""
    draft = declared_draft(declared, None)
    arrays = read_arrays(path, ("Y",), ("ids", "split", "group"), unread=("X", *OPTIONAL))
    if "split" not in arrays and declared.public_fraction is None:
        fault = (
            "Expected an array `split` of 0 (private), 1 (public) and 2 (test), or the share of"
            " YOUR records to publish, --public_fraction 0.2"
        )
        raise UndeclaredError([fault], [], ["--public_fraction 0.2"])
    groups = "group" in arrays and declared.no_group
    require(not groups, f"no array `group` in {path} with --no_group", arrays=[*arrays])
    fractions, labels = (declared.public_fraction, declared.test_fraction), arrays["Y"]
    if declared.unknown_labels is None and labels.dtype.kind in "fi":
        with suppress(ValueError, IndexError):  # faults of arrays, which the source lists
            split = roles_of(arrays, fractions, source=path.name)
            guess_sign(draft, labels[split != SPLIT_OF_ROLE[Role.PRIVATE]])
    return draft


def require_no_counters(features: Features) -> None:
    """Raise ``ValueError`` if columns of public features ``[N, F]`` count the rows."""
    head = features[: max(_TRIED, 10**6 // max(features.shape[1], 1))]
    steps, whole = np.diff(head, axis=0), (head == np.rint(head)).all(axis=0)
    ordered = (steps > 0).all(axis=0) | (steps < 0).all(axis=0)
    counters = np.flatnonzero(whole & ordered & (len(head) >= _FEW))
    what = "X without columns that count the rows, or its rows in another order"
    require(not counters.size, what, columns=counters[:_FEW].tolist())


def read_table(path: Path) -> tuple[Columns, str]:
    """Return the columns of a table, and its encoding, which is guessed if it is not UTF-8."""
    try:
        return read_columns(path), UTF_8
    except ValueError as error:
        if "`encoding`" not in str(error):
            raise
    with opened(path) as file:
        encoding = _ENCODINGS.get(file.read(2), _LATIN)
    return read_columns(path, encoding=encoding), encoding


def _ask(
    table: Columns,
    declared: Declared,
    content: str,
    identity: str,
    role: str | None,
    group: str | None,
) -> None:
    """Raise a `UndeclaredError` on all that is not declared."""
    faults, evidence, options = list[str](), dict[str, str](), list[str]()
    taken = {identity, role, group, *(declared.wanted or ())}
    free = {name: values for name, values in table.values.items() if name not in taken}

    def ask(fault: str, likely: Callable[[list[str]], bool], *answers: str) -> None:
        found = {name: values for name, values in free.items() if likely(values)}
        some = dict([*found.items()][:_MOST_SHOWN])
        evidence.update((name, describe(name, values)) for name, values in some.items())
        faults.append(f"Expected {fault}, got candidates={[*some]}")
        first = quote(next(iter(some), "COLUMN"))
        options.extend(answer.replace("COLUMN", first) for answer in answers)

    if identity not in table.values:
        kind = "names of picture files"
        if content != "file":
            kind = f"ids, one for each record, {GIVE_IDS}"
        ask(
            f"a column `{identity}` of {kind}, or --id COLUMN",
            lambda values: "" not in values and len({*values}) == len(values),
            "--id COLUMN",
        )
    if content == "text" and "text" not in {*table.values, *declared.names(content)}:
        ask("a column `text`, or --features COLUMN of texts", _is_text, "--features COLUMN")
    if group is None and declared.group_pattern is None and not declared.no_group:
        column = table.values.get(identity, [])
        patterns = _repeated_parts(column) if content == "file" else {}
        if content != "file" and len({*column}) < len(column):
            free[identity] = column

        def may_name(values: list[str]) -> bool:
            return values is column or may_be_persons(values)

        if patterns or any(map(may_name, free.values())):
            evidence.update(patterns)
            ask(
                "--group COLUMN if a column names the person of a record, so that each person is"
                " protected, or --no_group if none does",
                may_name,
                f"--group_pattern '{next(iter(patterns))}'" if patterns else "--group COLUMN",
            )
    if declared.labels is None:
        likely = [name for name, values in free.items() if len(_levels(values)) == 2]
        ask(
            "--labels, the columns to learn, such as --labels a,b",
            lambda values: 2 <= len(_levels(values)) <= _FEW or _lists(values),
            f"--labels {quote(','.join(likely[:_MOST_SHOWN])) if likely else 'COLUMN'}",
        )
    if role is None and declared.public_fraction is None:
        ask(
            "a column `split` of private, public and test, or --split COLUMN, or the share of YOUR"
            " records to publish, --public_fraction 0.2",
            lambda values: {*values} <= {each.value for each in Role},
            "--public_fraction 0.2",
        )
    if faults:
        raise UndeclaredError(faults, [*evidence.values()], options)


def _levels(values: Sequence[str]) -> Counter[str]:
    """Return how often each value occurs, without gaps."""
    return Counter(as_level(value) for value in values if not is_no_level(value))


def _lists(values: Sequence[str]) -> bool:
    return any(re.search(_LISTS, value) for value in values)


def _is_text(values: Sequence[str]) -> bool:
    return sum(map(len, values)) >= _WORDS * len(values) and any(" " in v for v in values)


def may_be_persons(values: Sequence[str]) -> bool:
    """Return whether a column is a code that repeats, and no measure: a person may have it.

    Whole numbers are codes if they have as many digits each, stand in runs, or are spread as evenly
    as numbers that somebody gave.
    """
    full = [value for value in values if not is_gap(value)]
    counts = Counter(full)
    different = len(counts)
    if different <= _FEW or not _RARELY <= different / len(full) <= _ALWAYS:
        return False
    numbers = [as_number(value) for value in full]
    whole = [number for number in numbers if number is not None and number.is_integer()]
    if len(whole) < len(full):
        some = sorted(counts)[:_TRIED]
        return not any(
            sum(number_of(value, form) is not None for value in some) > len(some) / 2
            for form in (None, *_FORMATS)
        )
    digits = {len(str(int(abs(number)))) for number in whole}
    runs = int((np.diff(whole) == 0).sum()) / (len(whole) - different)
    ranks = (np.sort(whole) - min(whole)) / (max(whole) - min(whole))
    uneven = float(np.abs(ranks - np.linspace(0, 1, len(ranks))).max())
    return (
        (len(digits) == 1 and min(digits) >= _DIGITS)
        or runs > 1 / 2
        or (uneven <= max(_EVEN, _CHANCE / math.sqrt(different)))
    )


def _repeated_parts(files: Sequence[str]) -> dict[str, str]:
    """Return parts of names of pictures that may name persons, as patterns, each with a line."""
    words = re.findall(r"([A-Za-z]+[_-]?)[0-9]+", files[0]) if files else []
    found = {}
    for pattern in ["^.+/", *(f"{word}[0-9]+" for word in dict.fromkeys(words))]:
        parts = [match[0] for match in map(re.compile(pattern).search, files) if match]
        if len(parts) == len(files) and may_be_persons(parts):
            found[pattern] = (
                f"names of pictures: {len({*parts})} values of {pattern!r} in {len(files)}"
                f" pictures, such as {parts[0]!r}"
            )
    return found


def describe(name: str, values: Sequence[str]) -> str:
    """Return what is seen in a column, in a line: PRIVATE."""
    counts, num = _levels(values), len(values)
    said = [f"{len(counts)} values in {num} records"]
    if len(counts) <= _FEW:
        said.append(", ".join(f"{value!r} {times}" for value, times in sorted(counts.items())))
    elif max(counts.values()) > 1:
        said.append(f"each up to {max(counts.values())} times, such as {min(counts)!r}")
    lost, signs = num - counts.total(), ", ".join(sentinels(values))
    others = {
        f"{lost} empty": lost,
        "counts the rows": counts_rows(values),
        "lists": _lists(values),
        f"likely signs of a missing value: {signs}": signs,
        "days or months first": _ambiguous(values),
    }
    said += [fact for fact, holds in others.items() if holds]
    return f"column `{name}`: {'; '.join(said)}"


def sentinels(values: Sequence[str]) -> list[str]:
    """Return numbers such as -9999 that occur twice, far from all others."""
    numbers = {text: number for text in {*values} if (number := as_number(text)) is not None}
    odd = {text for text in numbers if re.fullmatch(_SENTINEL, as_level(text))}
    rest = [number for text, number in numbers.items() if text not in odd]
    if len(rest) < 2:
        return []
    width, times = max(rest) - min(rest), Counter(values)
    return [
        text
        for text in sorted(odd)
        if times[text] > 1
        and (
            numbers[text] < 0 <= min(rest)
            or not min(rest) - width <= numbers[text] <= max(rest) + width
        )
    ]


def _ambiguous(values: Sequence[str]) -> bool:
    """Return whether dates are read with the day first, and with the month first."""
    days = [value for value in values if not is_gap(value)]
    return bool(days) and all(
        all(number_of(day, form) is not None for day in days) for form in ("%d/%m/%Y", "%m/%d/%Y")
    )


def _code_labels(draft: Draft, shown: Columns, declared: Declared) -> None:
    """Add the labels, with the coding of those that are not 0 and 1.

    Raises `UndeclaredError` if a column has words or lists that could be a label each.
    """
    wanted = declared.wanted
    if not isinstance(wanted, list):
        return
    plain = {name for name in wanted if _levels(shown.values[name]).keys() <= LABELS.keys()}
    cells = {as_level(cell) for name in plain for cell in shown.values[name]}
    if declared.unknown_labels is None:
        guess_sign(draft, [LABELS.get(cell, math.nan) for cell in cells])
    if plain >= {*wanted}:
        return
    codings: dict[str, Any] = {
        name: _coding_of(name, shown.values[name], plain=name in plain) for name in wanted
    }
    option = f"--labels {quote(json.dumps(codings, ensure_ascii=False))}"
    faults = [
        f"Expected {option} for a label of each value of `{name}`, or there {{VALUE: 1, VALUE: 0,"
        f" VALUE: null}} for one label (null: unknown), got values={coding}"
        for name, coding in codings.items()
        if isinstance(coding, list)
    ]
    if faults:
        raise UndeclaredError(faults, [describe(at, shown.values[at]) for at in wanted], [option])
    for name in [name for name in wanted if name not in plain]:
        coded = ", ".join(
            f"{word} is {'unknown' if code is None else code}"
            for word, code in codings[name].items()
        )
        draft.remarks.append(f"Label {name}: {coded}. This is a guess: see data.yaml.")
        if any(map(is_no_level, shown.values[name])) and declared.unknown_labels is None:
            draft.add("unknown_labels", "nan", "Guessed: labels have gaps")
    draft.add(
        "labels",
        codings,
        "From --labels; codings are guessed from public and test records: add others that you"
        " expect",
    )


def _coding_of(
    name: str, values: Sequence[str], *, plain: bool
) -> dict[str, int | None] | list[str]:
    levels = _levels(values)
    ordered = sorted(levels, key=lambda word: (as_number(word) or 0.0, word))
    two = [word for word in ordered if not re.fullmatch(_SENTINEL, word)]
    signs = [word for word in ordered if word not in two]
    if plain or (two and {*two} <= LABELS.keys()):
        minus = {"-1": None if "0" in levels else 0} if "-1" in levels else {}
        words = {word: int(LABELS[word]) for word in two}
        return {"1": 1, "0": 0} | words | minus | dict.fromkeys(signs)
    lists = [as_list(value) for value in values if not is_no_level(value)]
    if lists and all(map(as_flags, lists)):
        return [f"{name}_{place}" for place in range(len(lists[0]))]
    if any(re.search(_LISTS_OF_LABELS, value) for value in values):
        return sorted({part for parts in lists for part in parts if part})
    require(
        2 <= len(levels) <= _MOST_LEVELS,
        f"two values of label `{name}` at least in public and test records, or --labels"
        f" '{{{name}: {{Yes: 1, No: 0}}}}' with its coding",
        values=sorted(levels)[:_FEW],
    )
    if len(two) != 2:  # signs of missing values are classes, too
        two, signs = ordered, []
    return {two[1]: 1, two[0]: 0} | dict.fromkeys(signs) if len(two) == 2 else sorted(two)


def guess_sign(draft: Draft, labels: ArrayLike) -> None:
    """Add the sign of unknown labels, by the labels of public and test records."""
    values = {*np.unique(np.asarray(labels, dtype=np.float64)).tolist()}
    if {-1.0, 0.0} <= values:
        draft.add("unknown_labels", -1, "Guessed: labels are -1 among 0 and 1")
    elif any(map(math.isnan, values)):
        draft.add("unknown_labels", "nan", "Guessed: labels have gaps")


def _add_features(draft: Draft, shown: Columns, rest: Sequence[str], listed: bool) -> None:
    """Add the columns of features, by their kinds. Counters of rows are none unless listed."""
    levels, texts, formats = dict[str, int](), dict[str, int](), dict[str, str]()
    signs, left = dict[str, None](), dict[str, str]()
    for name in rest:
        column = shown.values[name]
        values = [value for value in column if not is_gap(value)]
        (form, missing), counts = _form_of(values), _levels(column)
        if not counts:
            left[name] = "no value in public records"
        elif not listed and (counts_rows(column) or name == UNNAMED):
            left[name] = f"counts the rows: --features {quote(name)} takes it"
        elif missing is not None:
            signs |= dict.fromkeys(sorted(missing))
            formats |= {} if form is None else {name: form}
            if sentinels(column) or (form is not None and _ambiguous(column)):
                doubt = f"{describe(name, column)}. Right? `gaps` and `formats` are in data.yaml."
                draft.remarks.append(f"C{doubt[1:]}")
            draft.remarks += [
                f"Column {name} has numbers, and {column.count(sign)} times {sign!r} in public and"
                " test records: by `gaps` in data.yaml they are missing."
                for sign in sorted(missing)
            ]
        elif len(counts) <= min(_MOST_LEVELS, max(10, counts.total() / 2)):
            levels[name] = len(counts)
        elif listed or (_is_text(values) and find_spec("sklearn")):
            texts[name] = _HASHED
        else:
            two = "two numbers in a cell" if re.fullmatch(_TWO_NUMBERS, values[0]) else ""
            left[name] = f"{two or 'too many different words'}, such as {values[0]!r}"
    kept = [name for name in rest if name not in left]
    require(kept, f"a column of numbers, dates, few words or sentences in {shown.path}", left=left)
    if not listed:
        draft.remarks.append(
            f"Features: {', '.join(kept[:_MOST_SHOWN])}{', ...' * (len(kept) > _MOST_SHOWN)}."
        )
    draft.add("columns", kept, "The features; all of the file without the ones that are left out")
    counts_of = ", ".join(f"{name} {count}" for name, count in levels.items())
    draft.add(
        "categories",
        dict.fromkeys(levels, "public"),
        f"Guessed: the columns of few words, and their levels among public and test records:"
        f" {counts_of}",
    )
    draft.add("texts", texts, "Guessed: the columns of sentences, each as hashed words")
    draft.add("formats", formats, "Guessed: how numbers and dates are written; dates are days")
    draft.add("gaps", [*signs], "Guessed: signs of missing numbers in columns of numbers")
    if left:
        said = "; ".join(f"{name} ({why})" for name, why in left.items())
        draft.remarks.append(f"Left out: {said}.")


def _form_of(values: Sequence[str]) -> tuple[str | None, set[str] | None]:
    """Return the format of numbers, None for that of Python, and values that are signs of gaps.

    In place of signs None says that the values are no numbers: signs are few, and stand for less
    than half of them.
    """
    for form in (None, *_FORMATS):
        others = [value for value in values if number_of(value, form) is None]
        signs = set(others)
        few = (
            len(signs) <= _MOST_SIGNS
            and all(as_number(sign) is None for sign in signs)
            and 2 * len(others) < len(values)
            and len(set(values)) > max(10, 3 * len(signs))
        )
        if few or not signs:
            return form, signs
    return None, None
