"""Guesses about a table for `pate init`, and what it read in it, for the owner's screen.

Labels, ids and roles are guessed from all records, kinds of features from public ones. At the end
lines and a strip of pictures that show private records: they are PRIVATE.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pate._core.files.reading import read_arrays
from pate._core.validation import UNKNOWN, Faults, require
from pate._labeling.data.arrays import OPTIONAL
from pate._labeling.data.label_table import (
    LABELS,
    UNNAMED,
    UTF_8,
    Columns,
    as_list,
    as_number,
    is_gap,
    read_columns,
)
from pate._labeling.data.pictures import Pictures
from pate._labeling.data.records import Role, are_row_numbers
from pate._labeling.data.source import SPLIT_OF_ROLE, DataSource, split_by_hash
from pate._labeling.data.tables import FORMATS, number_of
from pate._labeling.release.completion import describe_absent

PUBLIC_FRACTION = 0.2
"""The share of public records that is proposed, and used for guesses, without a column of roles."""
TEST_SHARE = 0.3
"""The share of public records that is proposed for tests, where no record is one."""
_MOST_LEVELS = 50
_HASHED = 256  # columns of words of a text
_MOST_LISTED = 200
_TIMES = 3.0  # that a name in a list occurs, on average
_WORDS = 20  # letters of a text, on average
_MOST_SIGNS = 3  # different signs of missing numbers in a column
_LISTS = r"[;|\x1f]|^\["
_LISTS_OF_LABELS = r"[;|,\x1f]|^\["
_ROLES = {role.value: number for role, number in SPLIT_OF_ROLE.items()}
_PERSONS = r"person|patient|subject|user|customer|client|member|owner|family|household"
_NAMED = {
    "id": r"(^|[_ -])(id|uuid|guid|key|nr|no|number|code)$",
    "file": r"file|image|img|path|picture|photo",
    "text": r"text|message|body|comment|description|title|sentence|review",
    "split": r"split|fold|role|set|part",
    "group": _PERSONS,
    "label": r"^(labels?|targets?|class(es)?|y|categor(y|ies)|topics?|tags?|genres?)$",
}
_FORMATS = (
    "thousands_comma",
    *(form for form in FORMATS if form != "thousands_comma"),
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M"),
)
"""Formats of numbers, in the order of trials."""
_ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # by their first bytes
_LATIN = "cp1252"


@dataclass
class Guess:
    """Settings of a source, each with its reason.

    Attributes:
        settings: the values by name.
        reasons: for each, a comment.
        remarks: lines for the user.
        hashed: whether a hash of ids is to choose the public records.
        table: the columns that were read. None for other data.
        numbers: names of columns of numbers.
        root: the folder of pictures, where it is not the one that was named.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    hashed: bool = False
    table: Columns | None = None
    numbers: list[str] = field(default_factory=list)
    root: Path | None = None

    def add(self, name: str, value: object, reason: str) -> None:
        """Add a setting, unless nothing was found for it."""
        if value is not None and value not in ([], {}):
            self.settings[name], self.reasons[name] = value, reason


def guess_table(path: Path, content: str) -> Guess:
    """Return the settings of the source of a table.

    Labels, ids and roles are guessed from all records, because they say what a column is. Kinds of
    features are guessed from public records only.

    Args:
        path: the file.
        content: the column that features are made of, ``file`` or ``text``; ``id`` for numbers.

    Raises:
        ValueError: if columns are missing that no other one could be, with a line for each fault.
    """
    table, encoding = read_table(path)
    faults, guess = Faults(), Guess(table=table)
    if encoding != UTF_8:
        guess.add("encoding", encoding, "Guessed: the file is not in UTF-8")
    numbers = table.values.get(UNNAMED, ())
    numbered = {UNNAMED} if are_row_numbers([np.array(numbers, dtype=np.str_)]) else set()
    identity = "file" if content == "file" else "id"
    names: dict[str, str] = {}
    for special in dict.fromkeys((identity, content, "split", "group")):
        if special in table.values or (special == "group" and "identity" in table.values):
            continue
        rest = [name for name in table.values if name not in {*names.values(), *numbered}]
        found = next(_candidates(table, special, rest), None)
        if found is not None:
            names[special] = found
        elif special in (identity, content):
            faults.require(False, _MISSING[special].format(path=path), columns=[*table.values])
    faults.refuse()
    guess.add("names", names, "Guessed: the columns that the file calls otherwise")
    group = next((name for name in ("group", "identity") if name in table.values), "group")
    keys = table.values.get(names.get(group, group), table.values[names.get(identity, identity)])
    if content == "file" and not {"group", "identity"} & {*table.values, *names}:
        pattern, persons = _persons_in(keys)
        guess.add("group_pattern", pattern, "Guessed: the names of pictures name their persons")
        keys = persons or keys
    guess.hashed = names.get("split", "split") not in table.values
    taken = {*names.values(), identity, content, "split", "group", "identity"}
    rest = [name for name in table.values if name not in taken]
    public = _public_rows(table, names, keys)
    _guess_labels(guess, table, [name for name in rest if name not in numbered], public)
    if content == "id":
        labels = guess.settings.get("labels", ())
        _guess_features(guess, [name for name in rest if name not in labels], public, numbered)
    return guess


def guess_pictures(folder: Path) -> Guess:
    """Return the settings of the source of a folder of pictures with a CSV file of labels."""
    tables = sorted(folder.glob("*.csv"), key=lambda table: (table.name != "labels.csv", table))
    require(tables, f"a CSV file of labels in {folder}")
    table = tables[0]
    guess = guess_table(table, "file")
    assert guess.table is not None
    column = guess.settings.get("names", {}).get("file", "file")
    first, above = guess.table.values[column][0], folder.absolute().parent
    if not (folder / first).exists() and (above / first).exists():
        # names begin with the folder, as in CheXpert
        guess.root = above
        guess.add("table", str(table.absolute().relative_to(above)), "Guessed: the CSV file")
    elif table.name != "labels.csv":
        guess.add("table", table.name, "Guessed: the CSV file in the folder")
    return guess


def guess_arrays(path: Path) -> Guess:
    """Return the settings of the source of an ``.npz``: the sign of unknown labels."""
    guess = Guess()
    arrays = read_arrays(path, ("Y",), ("split",), unread=("X", *OPTIONAL))
    labels, guess.hashed = arrays["Y"], "split" not in arrays
    if labels.dtype.kind in "fi":
        _guess_sign(guess, bool(np.isnan(labels).any()), {-1, 0} <= {*np.unique(labels).tolist()})
    return guess


def read_table(path: Path) -> tuple[Columns, str]:
    """Return the columns of a table, and its encoding, which is guessed if it is not UTF-8."""
    try:
        return read_columns(path, ()), UTF_8
    except ValueError as error:
        if "`encoding`" not in str(error):
            raise
    with path.open("rb") as file:
        encoding = _ENCODINGS.get(file.read(2), _LATIN)
    return read_columns(path, (), encoding=encoding), encoding


def _persons_in(files: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return a regular expression for the person in each picture's name, and all persons, if so."""
    first = re.search(rf"({_PERSONS})[_-]?[0-9]+", files[0])
    if first is None:
        return None, []
    pattern = re.sub("[0-9]+$", "[0-9]+", first[0])
    persons = [match[0] for match in map(re.compile(pattern).search, files) if match]
    return (pattern, persons) if len(persons) == len(files) > len(set(persons)) else (None, [])


_MISSING = {
    "id": "a column of ids in {path}, a value of its own for each record, given once and kept for"
    " good (--random_ids COPY writes a copy with random ones)",
    "file": "a column of names of picture files in {path}",
    "text": "a column of texts in {path}",
}


def _candidates(table: Columns, special: str, names: Sequence[str]) -> Iterator[str]:
    """Yield columns that may be a special one, likely ones first."""
    likely = [name for name in names if re.search(_NAMED[special], name.lower())]
    if special == "id":
        likely += [name for name in names if re.search(_PERSONS, name.lower())]
    others = [name for name in names if name not in likely] if special in _BY_VALUES else []
    for name in (*likely, *others):
        values = table.values[name]
        different = len(set(values))
        full = not any(is_gap(value) for value in values)
        fits = {
            "id": full
            and different == len(values)
            and (
                name in likely
                # as many words may tell records apart by chance
                or (
                    different > _MOST_LEVELS
                    and not (_is_text(values) or any(map(_is_number, values)))
                )
            ),
            "file": full and all(re.search(r"\.\w{2,4}$", value) for value in values),
            "text": _is_text(values),
            "split": set(values) <= _ROLES.keys(),
            "group": full and different < len(values) and not set(values) <= LABELS.keys(),
        }
        if fits[special]:
            yield name


def _is_number(text: str) -> bool:
    return any(number_of(text, form) is not None for form in (None, *_FORMATS))


_BY_VALUES = ("id", "file", "text", "split")
"""Special columns that their values tell, whatever their name is."""


def _is_text(values: Sequence[str]) -> bool:
    return sum(map(len, values)) >= _WORDS * len(values) and any(" " in v for v in values)


def _public_rows(table: Columns, names: Mapping[str, str], keys: Sequence[str]) -> list[int]:
    """Return the rows of public records, as far as the columns tell. All rows if none is public."""
    roles = table.values.get(names.get("split", "split"))
    if roles is not None:
        public = np.isin(roles, ("public", "1"))
    else:
        split = split_by_hash(np.array(keys), PUBLIC_FRACTION, None, source=str(table.path))
        public = split == SPLIT_OF_ROLE[Role.PUBLIC]
    return np.flatnonzero(public).tolist() or [*range(len(table.lines))]


def _guess_labels(guess: Guess, table: Columns, rest: Sequence[str], public: Sequence[int]) -> None:
    """Guess a column of lists, or else the columns of 0 and 1, or else a column of classes."""
    lists, classes = {}, {}
    for name in rest:
        values = [table.values[name][row] for row in public]
        found = Counter(
            part for value in values if not is_gap(value) for part in as_list(value) if part
        )
        if len(found) > min(_MOST_LISTED, found.total() / _TIMES):
            continue
        called = re.search(_NAMED["label"], name.lower())
        apart = any(re.search(_LISTS_OF_LABELS if called else _LISTS, value) for value in values)
        if apart and not all(as_number(part) is not None for part in found):
            lists[name] = sorted(found)
        elif called and not found.keys() <= LABELS.keys():
            classes[name] = sorted(found)
    marked = [
        name
        for name in rest
        if set() < {value for value in table.values[name] if not is_gap(value)} <= LABELS.keys()
    ]
    named = [name for name in marked if re.match(r"(y|label|target|class)[_ .-]", name.lower())]
    if lists or (classes and not marked):
        guess.add(
            "labels",
            lists or classes,
            "Guessed: names that public records list; add others that you expect, delete features",
        )
    elif marked:
        marked = named or marked
        guess.add(
            "labels", marked, "Guessed: the columns of 0 and 1; delete those that are features"
        )
        cells = {value for name in marked for value in table.values[name]}
        signs = {LABELS.get(cell) for cell in cells}
        _guess_sign(guess, any(map(is_gap, cells)), {-1.0, 0.0} <= signs)
    else:
        guess.remarks.append(
            "No column of 0 and 1, and none that lists names: write `labels` in data.yaml."
        )


def _guess_sign(guess: Guess, gaps: bool, minus: bool) -> None:
    if minus:
        guess.add("unknown_labels", -1, "Guessed: labels are -1 among 0 and 1")
    elif gaps:
        guess.add("unknown_labels", "nan", "Guessed: labels have gaps")


def _guess_features(
    guess: Guess, rest: Sequence[str], public: Sequence[int], numbered: set[str]
) -> None:
    levels, texts = dict[str, int](), dict[str, int]()
    formats, signs = dict[str, str](), dict[str, None]()
    words, empty = list[str](), list[str]()
    assert guess.table is not None
    for name in (name for name in rest if name not in numbered):
        column = [guess.table.values[name][row] for row in public]
        values = [value for value in column if not is_gap(value)]
        (form, missing), different = _form_of(values), len(set(values))
        if not values:
            empty.append(name)
        elif missing is not None:
            guess.numbers.append(name)
            signs |= dict.fromkeys(sorted(missing))
            formats |= {} if form is None else {name: form}
        elif different <= min(_MOST_LEVELS, max(10, len(values) / 2)):
            levels[name] = different
        elif _is_text(values) and find_spec("sklearn"):
            texts[name] = _HASHED
        else:
            words.append(name)
    counts = ", ".join(f"{name} {count}" for name, count in levels.items())
    guess.add(
        "categories",
        dict.fromkeys(levels, "public"),
        f"Guessed: the columns of few words, and their levels among public records: {counts}",
    )
    guess.add("texts", texts, "Guessed: the columns of sentences, each as hashed words")
    guess.add("formats", formats, "Guessed: how numbers and dates are written; dates are days")
    guess.add("gaps", [*signs], "Guessed: signs of missing numbers in columns of numbers")
    left = [*(name for name in rest if name in numbered), *empty, *words]
    if left:
        guess.add(
            "columns",
            [name for name in rest if name not in left],
            f"Guessed: all other columns, without empty ones, numbers of rows or many words:"
            f" {', '.join(left)}",
        )
    for why, names in (
        ("because of too many different words", words),
        ("because public records have no value there", empty),
    ):
        if names:
            guess.remarks.append(f"Left out, {why}: {', '.join(names)}.")
    require(
        len(left) < len(rest),
        f"a column of numbers, dates, few words or sentences in {guess.table.path}",
        left_out=left,
    )


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
            and not any(map(_is_large, signs))
            and 2 * len(others) < len(values)
            and len(set(values)) > max(10, 3 * len(signs))
        )
        if few or not signs:
            return form, signs
    return None, None


def _is_large(text: str) -> bool:
    """Return whether a text is a finite number that no float32 holds."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


_MOST_SHOWN = 40  # labels
_PICTURES = 8
_DARK = 32  # of 255


def shown(source: DataSource, guess: Guess, strip: Image.Image | None) -> list[str]:
    """Return lines on what was read of private records, for the owner's screen: PRIVATE.

    Args:
        source: the source.
        guess: the guesses about it.
        strip: some of its private pictures, if it has any.
    """
    private, names = source.load(Role.PRIVATE), source.label_names
    labels, num = private.labels, len(private)
    have, known = (labels == 1).sum(axis=0).tolist(), (labels != UNKNOWN).sum(axis=0).tolist()
    rare = sorted(sorted(range(len(names)), key=have.__getitem__)[:_MOST_SHOWN])
    counts = [
        f"{names[j]} {have[j]:,}" + (f" of {known[j]:,} known" if known[j] < num else "")
        for j in rare
    ]
    which = f"the {_MOST_SHOWN} rarest labels" if len(rare) < len(names) else "labels"
    lines = [f"PRIVATE: {which} of {num:,} private records: {', '.join(counts)}."]
    lines += describe_absent(labels, names)
    if strip is not None and np.asarray(strip).max() < _DARK:
        lines.append(
            "PRIVATE: pictures are nearly black. White is 65,535 of 16 bits: values of 12 bits are"
            " to be multiplied by 16 first."
        )
    return lines + _shares(guess)


def _shares(guess: Guess) -> list[str]:
    """Return a line on the share of each column that was read as numbers, if there are any."""
    parts, formats = [], guess.settings.get("formats", {})
    for name in guess.numbers:
        assert guess.table is not None
        values = guess.table.values[name]
        read = sum(number_of(value, formats.get(name)) is not None for value in values)
        parts += [] if read == len(values) else [f"{name} {read / len(values):.0%}"]
    whole = len(guess.numbers) - len(parts)
    said = [f"{whole} column{'s' * (whole > 1)} whole"] if whole else []
    return [f"PRIVATE: read as numbers: {', '.join([*said, *parts])}."] if guess.numbers else []


def strip_of(source: DataSource) -> Image.Image | None:
    """Return some private pictures side by side as a network sees them, or None: PRIVATE."""
    features = source.load(Role.PRIVATE).features
    if not isinstance(features, Pictures):
        return None
    rows = np.unique(np.linspace(0, features.shape[0] - 1, _PICTURES).astype(np.int64))
    pixels = np.rint(features.once()[rows] * 255).astype(np.uint8)
    return Image.fromarray(np.concatenate([*pixels.transpose(0, 2, 3, 1)], axis=1))
