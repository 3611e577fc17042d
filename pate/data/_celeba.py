"""Folders in CelebA's format: aligned pictures, attributes, evaluation partition, identities."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pate._validation import UInt8Array, expecting, require, require_distinct, require_given
from pate.data._checks import check_labels, select_labels
from pate.data._images import ImageFiles
from pate.data._table import PictureFolder, Table
from pate.data.features import FeatureMap

_ATTRIBUTES = "list_attr_celeba"


class CelebA(PictureFolder):
    """A folder in CelebA's format.

    ``img_align_celeba/`` holds the pictures, or a folder of that name in it;
    ``list_attr_celeba.txt`` the attributes (-1/1 or 0/1, with or without its count line), or
    ``list_attr_celeba.csv``, separated by commas and with a heading for the pictures;
    ``list_eval_partition.txt`` or ``.csv`` the roles (0 private, 1 public, 2 test);
    ``identity_CelebA.txt`` or ``.csv``, if there is one, the person on each picture.

    Args:
        root: the folder.
        size: pictures are cut to their central square and resized to this many pixels.
        labels: the attributes to learn; None for all.
        features: a public map of the pictures.
    """

    def __init__(
        self,
        root: Path,
        *,
        size: int = 64,
        labels: list[str] | None = None,
        features: FeatureMap | None = None,
    ) -> None:
        super().__init__(root, size, labels, features)

    def _read_table(self) -> Table:
        names, pictures, values = self._attributes()
        roles, identities = self._roles(), self._find("identity_CelebA")
        _require_all("a partition", pictures, roles)
        groups = None
        if identities is not None:
            persons = _pairs(identities)
            _require_all("an identity", pictures, persons)
            groups = np.array([persons[picture] for picture in pictures])
        columns = select_labels(names, self._wanted, source=self._file(_ATTRIBUTES).name)
        folder = self._folder
        return Table(
            features=ImageFiles([folder / picture for picture in pictures], self.size, keep=False),
            names=[names[column] for column in columns],
            labels=values[:, columns],
            ids=np.array(pictures),
            split=np.array([roles[picture] for picture in pictures]),
            groups=groups,
        )

    def _attributes(self) -> tuple[list[str], list[str], UInt8Array]:
        """Names of the attributes, names of the pictures, attributes ``[N, A]``."""
        path = self._file(_ATTRIBUTES)
        lines = path.read_text().splitlines()
        if lines and lines[0].strip().isdigit():
            lines = lines[1:]
        by_comma = "," if path.suffix == ".csv" else None
        head, *rows = [
            [word.strip() for word in line.split(by_comma)] for line in lines if line.strip()
        ] or [[]]
        names = head[1:] if by_comma else head
        require(
            names and rows, f"attribute names and rows in {path}", names=len(names), rows=len(rows)
        )
        for row in rows:
            require(
                len(row) == len(names) + 1,
                f"{len(names)} values per row of {path.name}",
                row=" ".join(row)[:80],
            )
        with expecting(f"whole numbers in {path}", ValueError):
            values = np.array([row[1:] for row in rows], dtype=np.int64)
        require_distinct(f"pictures of {path.name}", (row[0] for row in rows))
        return names, [row[0] for row in rows], check_labels(values, source=path.name, hint="")

    def _roles(self) -> dict[str, int]:
        path = self._file("list_eval_partition")
        roles: dict[str, int] = {}
        for name, role in _pairs(path).items():
            if role.isdigit():  # the csv has a line of headings
                roles[name] = int(role)
        unknown = sorted(set(roles.values()) - {0, 1, 2})
        require(not unknown, f"partitions 0, 1 or 2 in {path.name}", partitions=unknown)
        return roles

    @property
    def _folder(self) -> Path:
        folder = self.root / "img_align_celeba"
        require(folder.is_dir(), "a folder of pictures", path=str(folder))
        if (folder / folder.name).is_dir():  # as some archives are packed
            folder /= folder.name
        return folder

    def _find(self, name: str) -> Path | None:
        """Return the table of a name, with columns separated by commas or spaces, or None."""
        places = (self.root / f"{name}{suffix}" for suffix in (".csv", ".txt"))
        return next((path for path in places if path.is_file()), None)

    def _file(self, name: str) -> Path:
        missing = f"{name}.txt in the folder, or {name}.csv"
        return require_given(self._find(name), missing, root=str(self.root))


def _require_all(what: str, pictures: list[str], known: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless each of ``pictures`` is among ``known``."""
    missing = [picture for picture in pictures if picture not in known]
    require(not missing, f"{what} for every picture", missing=missing[:3])


def _pairs(path: Path) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for line in path.read_text().splitlines():
        words = line.replace(",", " ").split()
        if words:
            require(len(words) == 2, f"two columns in {path.name}", line=line[:80])
            require(words[0] not in pairs, f"each picture once in {path.name}", twice=words[0])
            pairs[words[0]] = words[1]
    return pairs
