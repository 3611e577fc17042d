"""Guesses of `pate init` about a table: its special columns, its labels, its kinds of columns."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pate._validation import Faults, require
from pate.data import Role
from pate.data._label_table import BUDGET, LABELS, Columns, as_list, as_number, is_gap, read_columns
from pate.data._source import SPLIT_OF_ROLE, split_by_hash

PUBLIC_FRACTION = 0.2
"""The share of public records that is proposed, and used for guesses, without a column of roles."""

_MOST_LEVELS = 50
_HASHED = 256  # columns of words of a text
_MOST_LISTED = 200
_TIMES = 3.0  # that a name in a list occurs, on average
_WORDS = 20  # letters of a text, on average
_LISTS = r"[;|\x1f]|^\["
_LISTS_OF_LABELS = r"[;|,\x1f]|^\["
_ROLES = {role.value: number for role, number in SPLIT_OF_ROLE.items()}
_NAMED = {
    "id": r"(^|[_ -])(id|uuid|guid|key|nr|no|number|code)$",
    "file": r"file|image|img|path|picture|photo",
    "text": r"text|message|body|comment|description|title|sentence|review",
    "split": r"split|fold|role|set|part",
    "group": r"person|patient|subject|user|customer|client|member|owner|family|household",
    "label": r"^(labels?|targets?|class(es)?|y|categor(y|ies)|topics?|tags?|genres?)$",
}


@dataclass
class Guess:
    """Settings of a source, each with its reason.

    Attributes:
        settings: the values by name.
        reasons: for each, a comment.
        remarks: lines for the user.
        hashed: whether a hash of ids is to choose the public records.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    hashed: bool = False

    def add(self, name: str, value: object, reason: str) -> None:
        """Add a setting."""
        self.settings[name], self.reasons[name] = value, reason


def guess_table(path: Path, content: str) -> Guess:
    """Return the settings of the source of a table.

    Labels, ids and roles are guessed from all records, because they say what a column is. Kinds of
    features are guessed from public records only.

    Args:
        path: the file.
        content: the column of which features are made, ``file`` or ``text``; ``id`` for numbers.

    Raises:
        ValueError: if columns are missing that no other one could be, with a line for each fault.
    """
    table, faults, guess = read_columns(path, ()), Faults(), Guess()
    identity = "file" if content == "file" else "id"
    names: dict[str, str] = {}
    for special in dict.fromkeys((identity, content, "split", "group")):
        if special in table.values or (special == "group" and "identity" in table.values):
            continue
        rest = [name for name in table.names if name not in names.values()]
        found = next(_candidates(table, special, rest), None)
        if found is not None:
            names[special] = found
        elif special in (identity, content):
            with faults.gather():
                require(False, _MISSING[special].format(path=path), columns=table.names)
    if names:
        guess.add("names", names, "Guessed: the columns that the file calls otherwise")
    faults.refuse()
    guess.hashed = names.get("split", "split") not in table.values
    taken = {*names.values(), identity, content, "split", "group", "identity", BUDGET}
    rest = [name for name in table.names if name not in taken]
    public = _public_rows(table, names, identity)
    _guess_labels(guess, table, rest, public)
    if content == "id":
        labels = guess.settings.get("labels", ())
        _guess_features(guess, table, [name for name in rest if name not in labels], public)
    return guess


_MISSING = {
    "id": "a column of ids in {path}, a value of its own for each record, given once and kept for"
    " good, such as uuid.uuid4().hex",
    "file": "a column of names of picture files in {path}",
    "text": "a column of texts in {path}",
}


def _candidates(table: Columns, special: str, names: Sequence[str]) -> Iterator[str]:
    """Yield columns that may be a special one, likely ones first."""
    likely = [name for name in names if re.search(_NAMED[special], name.lower())]
    others = [name for name in names if name not in likely] if special in _BY_VALUES else []
    for name in (*likely, *others):
        values = table.values[name]
        different = len(set(values))
        full = not any(is_gap(value) for value in values)
        fits = {
            "id": full and different == len(values),
            "file": full and all(re.search(r"\.\w{2,4}$", value) for value in values),
            "text": _is_text(values),
            "split": set(values) <= _ROLES.keys(),
            "group": full and different < len(values) and not set(values) <= LABELS.keys(),
        }
        if fits[special]:
            yield name


_BY_VALUES = ("file", "text", "split")
"""Special columns that their values tell, whatever their name is."""


def _is_text(values: Sequence[str]) -> bool:
    return sum(map(len, values)) >= _WORDS * len(values) and any(" " in v for v in values)


def _public_rows(table: Columns, names: Mapping[str, str], identity: str) -> list[int]:
    """Return the rows of public records, as far as the columns tell; all rows if none is public."""
    roles = table.values.get(names.get("split", "split"))
    if roles is not None:
        rows = [row for row, role in enumerate(roles) if role in ("public", "1")]
    else:
        special = ("group", "identity", identity)
        key = next(
            names.get(name, name) for name in special if names.get(name, name) in table.values
        )
        split = split_by_hash(
            np.array(table.values[key]), PUBLIC_FRACTION, 0.1, source=str(table.path)
        )
        rows = np.flatnonzero(split == SPLIT_OF_ROLE[Role.PUBLIC]).tolist()
    return rows or [*range(len(table.lines))]


def _guess_labels(guess: Guess, table: Columns, rest: Sequence[str], public: Sequence[int]) -> None:
    """Guess a column of lists, or else the columns of 0 and 1, or else a column of classes."""
    lists, classes = {}, {}
    for name in rest:
        values = [table.values[name][row] for row in public]
        parts = [as_list(value) for value in values if not is_gap(value)]
        found = Counter(part for each in parts for part in each if part)
        called = re.search(_NAMED["label"], name.lower())
        apart = any(
            re.search(_LISTS if not called else _LISTS_OF_LABELS, value) for value in values
        )
        if len(found) <= min(_MOST_LISTED, found.total() / _TIMES):
            if apart and not all(as_number(part) is not None for part in found):
                lists[name] = sorted(found)
            elif called and not found.keys() <= LABELS.keys():
                classes[name] = sorted(found)
    marked = [
        name
        for name in rest
        if {value for value in table.values[name] if not is_gap(value)} <= LABELS.keys()
    ]
    named = [name for name in marked if re.match(r"(y|label|target|class)[_ .-]", name.lower())]
    if lists or (classes and not marked):
        reason = (
            "Guessed: names that public records list; add others that you expect, delete features"
        )
        guess.add("labels", lists or classes, reason)
    elif marked:
        chosen = named or marked
        guess.add(
            "labels", chosen, "Guessed: the columns of 0 and 1; delete those that are features"
        )
        if any(is_gap(value) for name in chosen for value in table.values[name]):
            guess.add("unknown_labels", "nan", "Guessed: columns of labels have gaps")
    else:
        remark = "No column of 0 and 1, and none that lists names: write `labels` in data.yaml."
        guess.remarks.append(remark)


def _guess_features(
    guess: Guess, table: Columns, rest: Sequence[str], public: Sequence[int]
) -> None:
    levels: dict[str, int] = {}
    texts: dict[str, int] = {}
    others: dict[str, int] = {}
    for name in rest:
        values = [table.values[name][row] for row in public if not is_gap(table.values[name][row])]
        if any(as_number(value) is None for value in values):
            different = len(set(values))
            few = different <= min(_MOST_LEVELS, max(10, len(values) / 2))
            kind = levels if few else texts if _is_text(values) and find_spec("sklearn") else others
            kind[name] = _HASHED if kind is texts else different
    if levels:
        counts = ", ".join(f"{name} {count}" for name, count in levels.items())
        reason = (
            f"Guessed: the columns of few words, and their levels among public records: {counts}"
        )
        guess.add("categories", dict.fromkeys(levels, "public"), reason)
    if texts:
        guess.add("texts", texts, "Guessed: the columns of sentences, each as hashed words")
    if others:
        left = ", ".join(others)
        chosen = [name for name in rest if name not in others]
        guess.add(
            "columns", chosen, f"Guessed: all other columns, without those of many words: {left}"
        )
        guess.remarks.append(f"Left out, because of too many different words: {left}.")
