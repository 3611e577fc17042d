"""Folders in CelebA's format: aligned pictures, an attribute table, an evaluation partition, identities."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pate.data.arrays import SPLIT_OF_ROLE
from pate.data.checks import check_labels, select_labels
from pate.data.features import FeatureMap
from pate.data.records import Features, Records, Role
from pate.data.source import DataSource, located
from pate.typing import BoolArray, Float32Array, IntArray, UInt8Array
from pate.validation import expect, expect_count

# Pictures of a role that take less than this when decoded are read once and kept.
_KEEP_BYTES = 2 * 2**30


class ImageFiles(Features):
    """Pictures in files, as float32 ``[N, 3, size, size]`` in [0, 1].

    Args:
        paths: the files.
        size: pictures are cut to their central square and resized to this many pixels.
    """

    def __init__(self, paths: list[Path], size: int) -> None:
        self.paths = paths
        self.size = size
        self._kept: UInt8Array | None = None
        self._read: BoolArray = np.zeros(len(paths), dtype=np.bool_)
        if len(paths) * 3 * size * size <= _KEEP_BYTES:
            self._kept = np.empty((len(paths), 3, size, size), dtype=np.uint8)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(N, 3, size, size)``."""
        return (len(self.paths), 3, self.size, self.size)

    def __getitem__(self, index: Any, /) -> Float32Array:
        """Return the pictures ``index``, float32 ``[..., 3, size, size]``."""
        index = np.asarray(index)
        if self._kept is None:
            pixels = np.stack([read_image(self.paths[i], self.size) for i in index.ravel()])
            pixels = pixels.reshape(*index.shape, *self.shape[1:])
        else:
            for i in np.unique(index[~self._read[index]]):
                self._kept[i] = read_image(self.paths[i], self.size)
                self._read[i] = True
            pixels = self._kept[index]
        return pixels.astype(np.float32) / np.float32(255)

    def select(self, rows: IntArray) -> ImageFiles:
        """Return the pictures ``rows`` alone, none of them read yet."""
        return ImageFiles([self.paths[row] for row in rows], self.size)

    def identity(self) -> str:
        """Return the names, sizes and modification times of the files."""
        return repr([(path.name, (stat := path.stat()).st_size, stat.st_mtime_ns) for path in self.paths])


def read_image(path: Path, size: int) -> UInt8Array:
    """Read one picture as uint8 ``[3, size, size]``, its central square resized."""
    try:
        with Image.open(path) as image:
            picture = image.convert("RGB")
    # what is raised depends on the format, and on where a file ends or was changed
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"Expected a readable picture, got {path} ({error})") from None
    return squared(picture, size)


def squared(picture: Image.Image, size: int) -> UInt8Array:
    """Return a picture in RGB as uint8 ``[3, size, size]``, its central square resized."""
    width, height = picture.size
    side = min(width, height)
    if (width, height) != (size, size):
        left, top = (width - side) // 2, (height - side) // 2
        picture = picture.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
    return np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1)


class CelebA(DataSource):
    """A folder in CelebA's format.

    ``img_align_celeba/`` holds the pictures; ``list_attr_celeba.txt`` the attributes (-1/1 or 0/1, with or without its
    count line); ``list_eval_partition.txt`` or ``.csv`` the roles (0 private, 1 public, 2 test);
    ``identity_CelebA.txt``, if there is one, the person on each picture.

    Args:
        root: the folder.
        size: pictures are cut to their central square and resized to this many pixels.
        labels: the attributes to learn; None for all.
        features: a public map of the pictures.
    """

    def __init__(
        self, root: Path, *, size: int = 64, labels: list[str] | None = None, features: FeatureMap | None = None
    ) -> None:
        super().__init__(features=features)
        expect_count(8, size=size)
        self.root = located(root)
        self.size = size
        self._wanted = labels

    @property
    def ledger_path(self) -> Path:
        """``ledger.sqlite`` in the folder."""
        # links lead to the same records, and so to the same ledger
        return self.root.resolve() / "ledger.sqlite"

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels."""
        names, _, _ = self._attributes
        return tuple(names[j] for j in select_labels(names, self._wanted, source="list_attr_celeba.txt"))

    @cached_property
    def _attributes(self) -> tuple[list[str], list[str], UInt8Array]:
        """Names of the attributes, names of the pictures, attributes ``[N, A]``."""
        path = self._file("list_attr_celeba.txt")
        lines = path.read_text().splitlines()
        if lines and lines[0].strip().isdigit():
            lines = lines[1:]
        names = lines[0].split() if lines else []
        rows = [line.split() for line in lines[1:] if line.strip()]
        expect(names and rows, f"attribute names and rows in {path}", names=len(names), rows=len(rows))
        for row in rows:
            expect(len(row) == len(names) + 1, f"{len(names)} values per row of {path.name}", row=" ".join(row)[:80])
        try:
            values = np.array([row[1:] for row in rows], dtype=np.int64)
        except ValueError as error:
            raise ValueError(f"Expected whole numbers in {path} ({error})") from None
        return names, [row[0] for row in rows], check_labels(values, source=path.name)

    @cached_property
    def _roles(self) -> dict[str, int]:
        path = self.root / "list_eval_partition.csv"
        if not path.is_file():
            path = self._file("list_eval_partition.txt")
        roles: dict[str, int] = {}
        for name, role in _pairs(path):
            if role.isdigit():  # the csv has a line of headings
                roles[name] = int(role)
        unknown = sorted(set(roles.values()) - {0, 1, 2})
        expect(not unknown, f"partitions 0, 1 or 2 in {path.name}", found=unknown)
        return roles

    @cached_property
    def _identities(self) -> dict[str, str] | None:
        path = self.root / "identity_CelebA.txt"
        return dict(_pairs(path)) if path.is_file() else None

    def load(self, role: Role) -> Records:
        """Read the records of a role; the pictures are read when they are used."""
        names, pictures, values = self._attributes
        columns = select_labels(names, self._wanted, source="list_attr_celeba.txt")
        unplaced = [picture for picture in pictures if picture not in self._roles]
        expect(not unplaced, "a partition for every picture", missing=unplaced[:3])
        rows = [i for i, picture in enumerate(pictures) if self._roles[picture] == SPLIT_OF_ROLE[role]]
        expect(rows, f"at least one {role.value} record in {self.root}", records=0)
        folder = self.root / "img_align_celeba"
        expect(folder.is_dir(), "a folder of pictures", path=str(folder))
        present = {path.name for path in folder.iterdir()}
        absent = [pictures[i] for i in rows if pictures[i] not in present]
        expect(not absent, f"a picture in {folder} for every row of list_attr_celeba.txt", missing=absent[:3])
        ids = [pictures[i] for i in rows]
        groups = None
        if self._identities is not None:
            nameless = [picture for picture in ids if picture not in self._identities]
            expect(not nameless, "an identity for every picture", missing=nameless[:3])
            groups = np.array([self._identities[picture] for picture in ids])
        return Records(
            features=ImageFiles([folder / picture for picture in ids], self.size),
            labels=values[rows][:, columns],
            ids=np.array(ids),
            groups=groups,
        )

    def _file(self, name: str) -> Path:
        path = self.root / name
        expect(path.is_file(), f"{name} in the folder", root=str(self.root))
        return path


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text().splitlines():
        words = line.replace(",", " ").split()
        if words:
            expect(len(words) == 2, f"two columns in {path.name}", line=line[:80])
            yield words[0], words[1]
