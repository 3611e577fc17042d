"""A folder of pictures and a table, comma-separated, of what is on them."""

from __future__ import annotations

import csv
from difflib import get_close_matches
from pathlib import Path
from posixpath import normpath

import numpy as np

from pate._validation import expect
from pate.data._checks import select_labels
from pate.data._images import ImageFiles
from pate.data._records import Role
from pate.data._source import located
from pate.data._table import SPLIT_OF_ROLE, PictureFolder, Table, expect_fractions, split_by_hash
from pate.data.features import FeatureMap

_GROUPS = ("group", "identity")
_SPLIT = {role.value: number for role, number in SPLIT_OF_ROLE.items()} | {str(n): n for n in SPLIT_OF_ROLE.values()}
_ALIKE = 0.76  # similarity of a misspelt name to the one that was meant
_LABEL = {"0": 0, "1": 1, "-1": 0}


class PictureTable(PictureFolder):
    """A folder of pictures with a CSV file of their labels.

    The file has a line of headings and a line for each picture. The column ``file`` names the picture, in the folder or
    below it, and so is its id: it stays when other pictures come and go. ``split`` gives its role (``private``,
    ``public``, ``test``, or 0, 1, 2), ``group`` or ``identity`` whose picture it is; both may be missing. All other
    columns are labels: 0 or 1, or -1 and 1.

    Args:
        root: the folder.
        table: the CSV file, in the folder unless its path is absolute.
        size: pictures are cut to their central square and resized to this many pixels.
        labels: names of the columns to learn; None for all labels. Columns that are not named may hold anything.
        public_fraction: share of public pictures, if there is no ``split`` and a hash of the group, or else of the
            file's name, is to decide. There is no default: public pictures are seen by anybody.
        test_fraction: share of test pictures, likewise.
        features: a public map of the pictures.
    """

    def __init__(
        self,
        root: Path,
        *,
        table: str = "labels.csv",
        size: int = 64,
        labels: list[str] | None = None,
        public_fraction: float | None = None,
        test_fraction: float = 0.1,
        features: FeatureMap | None = None,
    ) -> None:
        super().__init__(root, size, labels, features)
        expect_fractions(public_fraction, test_fraction)
        self.path = self.root / located(table)
        self._fractions = public_fraction, test_fraction

    def _read_table(self) -> Table:
        path, wanted = self.path, self._wanted or ()
        head, lines, columns = _columns(path)
        # `./a.jpg` and `a.jpg` are one picture
        files = columns["file"] = [name and normpath(name) for name in columns["file"]]
        _expect_unique(files, lines, path)
        unnamed = {name: columns[name] for name in head if name not in wanted}
        _expect_no_misspelling(unnamed, self._wanted is None, path)
        group = next((name for name in _GROUPS if name in head), None)
        others = [name for name in head if name not in ("file", "split", group)]
        expect(others, f"a column of labels in {path}", columns=head)
        chosen = [others[place] for place in select_labels(others, self._wanted, source=path.name)]

        def numbers(name: str, codes: dict[str, int], what: str) -> list[int]:
            for line, value in zip(lines, columns[name], strict=True):
                expect(value in codes, f"{what} in column `{name}` of {path}", line=line, value=value)
            return [codes[value] for value in columns[name]]

        labels = np.array([numbers(name, _LABEL, "0 or 1") for name in chosen], dtype=np.uint8)
        ids, groups = np.array(files), None
        if group is not None:
            for line, value in zip(lines, columns[group], strict=True):
                expect(value, f"a value in column `{group}` of {path}", line=line, value=value)
            groups = np.array(columns[group])
        if "split" in head:
            split = np.array(numbers("split", _SPLIT, "private, public or test"))
        else:
            split = split_by_hash(ids if groups is None else groups, *self._fractions, source=str(path))
        return Table(
            features=ImageFiles([self.root / name for name in files], self.size, keep=False),
            names=chosen,
            labels=np.ascontiguousarray(labels.T),
            ids=ids,
            split=split,
            groups=groups,
        )


def _columns(path: Path) -> tuple[list[str], list[int], dict[str, list[str]]]:
    """Return the headings of a CSV file, the number of each line below them, and the values of each column."""
    expect(path.is_file(), "a CSV file of labels", missing=str(path))
    try:
        # some programs begin their files with a byte order mark
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            numbered = [(reader.line_num, [value.strip() for value in row]) for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"Expected a CSV file in UTF-8, got {path} ({error})") from None
    head = numbered[0][1] if numbered else []
    expect("file" in head, f"a column `file` in {path}, between commas", columns=head)
    expect(len(set(head)) == len(head) and all(head), f"columns of {path} with names that are unique", columns=head)
    expect(len(numbered) > 1, f"lines below the headings of {path}", lines=0)
    for line, row in numbered[1:]:
        expect(len(row) == len(head), f"{len(head)} values in each line of {path}", line=line, values=len(row))
    columns = {name: [row[place] for _, row in numbered[1:]] for place, name in enumerate(head)}
    return head, [line for line, _ in numbered[1:]], columns


def _expect_no_misspelling(columns: dict[str, list[str]], labels: bool, path: Path) -> None:
    """Raise ``ValueError`` if a column that was not requested looks like a misspelt special column.

    Args:
        columns: all columns except labels requested by name.
        labels: whether these columns are taken as labels.
        path: the file.
    """
    special = ("file", "split", *_GROUPS)
    for name in columns.keys() - set(special):
        meant = get_close_matches(name.lower(), special, n=1, cutoff=_ALIKE)
        roles = "split" not in columns and not labels and set(columns[name]) <= {role.value for role in Role}
        expect(not meant and not roles, f"a column `{meant[0] if meant else 'split'}` of {path}", column=name)
    expect(not set(_GROUPS) <= columns.keys(), f"one column among {', '.join(_GROUPS)} in {path}", columns=_GROUPS)


def _expect_unique(files: list[str], lines: list[int], path: Path) -> None:
    first: dict[str, int] = {}
    for line, name in zip(lines, files, strict=True):
        expect(name, f"the name of a picture in each line of {path}", line=line, file=name)
        expect(name not in first, f"each picture once in {path}", file=name, lines=(first.get(name), line))
        first[name] = line
