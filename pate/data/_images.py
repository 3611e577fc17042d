"""Pictures in files, read when they are needed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pate._validation import BoolArray, Float32Array, IntArray, UInt8Array, expecting, require
from pate.data._records import Features

# Pictures of a role that take less than this when decoded are read once and kept.
_KEEP_BYTES = 2 * 2**30
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000")
"""Formats of pictures, by Pillow's names.

A file is one of these whatever its name says: others may start a program.
"""


class Pictures(Features):
    """Pictures read one by one when they are needed, as float32 ``[N, 3, size, size]`` in [0, 1].

    Args:
        num: the number of pictures.
        size: pictures are cut to their central square and resized to this many pixels.
        keep: whether pictures that were read are kept in memory for the next time, if they are not
            too many.
    """

    def __init__(self, num: int, size: int, *, keep: bool) -> None:
        self.size = size
        self._kept: UInt8Array | None = None
        self._read: BoolArray = np.zeros(num, dtype=np.bool_)
        if keep and num * 3 * size * size <= _KEEP_BYTES:
            self._kept = np.empty((num, 3, size, size), dtype=np.uint8)

    @abstractmethod
    def picture(self, row: int) -> UInt8Array:
        """Return one picture as uint8 ``[3, size, size]``.

        Raises ``ValueError`` if it is not readable.
        """

    @property
    def shape(self) -> tuple[int, ...]:
        """``(N, 3, size, size)``."""
        return (len(self._read), 3, self.size, self.size)

    def __getitem__(self, index: Any, /) -> Float32Array:
        """Return the pictures ``index``, float32 ``[..., 3, size, size]``."""
        index = np.asarray(index)
        if self._kept is None:
            pixels = np.stack([self.picture(i) for i in index.ravel().tolist()])
            pixels = pixels.reshape(*index.shape, *self.shape[1:])
        else:
            missing = np.unique(index[~self._read[index]])
            if len(missing) and not (self._kept.flags.writeable and self._read.flags.writeable):
                # a worker maps the arrays of the process that sent them, for reading only
                self._kept, self._read = self._kept.copy(), self._read.copy()
            for i in missing.tolist():
                self._kept[i] = self.picture(i)
                self._read[i] = True
            pixels = self._kept[index]
        return pixels.astype(np.float32) / np.float32(255)


class ImageFiles(Pictures):
    """Pictures in files.

    Args:
        paths: the files.
        size: pictures are cut to their central square and resized to this many pixels.
        keep: whether pictures that were read are kept in memory for the next time, if they are not
            too many.
    """

    def __init__(self, paths: list[Path], size: int, *, keep: bool = True) -> None:
        super().__init__(len(paths), size, keep=keep)
        self.paths = paths

    def picture(self, row: int) -> UInt8Array:
        return read_image(self.paths[row], self.size)

    def select(self, rows: IntArray) -> ImageFiles:
        return ImageFiles([self.paths[row] for row in rows], self.size)

    def once(self) -> ImageFiles:
        return ImageFiles(self.paths, self.size, keep=False)

    def identity(self) -> str:
        return repr(
            [(path.name, (stat := path.stat()).st_size, stat.st_mtime_ns) for path in self.paths]
        )


def require_distinct_files(paths: Iterable[Path]) -> None:
    """Raise ``ValueError`` if two names lead to one file, which would be two records.

    They do by a link, or where a file system takes upper and lower case for the same. Missing files
    are found when they are read: files of another role may lie elsewhere.
    """
    first: dict[tuple[int, int], Path] = {}
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            continue
        other = first.setdefault((stat.st_dev, stat.st_ino), path)
        require(
            other is path, "a file of its own for each picture", one_file=(str(other), str(path))
        )


def read_image(path: Path, size: int) -> UInt8Array:
    """Read one picture as uint8 ``[3, size, size]``, its central square resized."""
    # one who reads a pipe waits for ever
    require(path.is_file(), "a readable picture, in a file", path=str(path))
    # the error depends on the format, and on the place where a file ends or was changed
    errors = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
    readable = expecting("a readable picture", *errors, got=path)
    with readable, Image.open(path, formats=FORMATS) as image:
        picture = image.convert("RGB")
    return center_crop(picture, size)


def center_crop(picture: Image.Image, size: int) -> UInt8Array:
    """Return a picture in RGB as uint8 ``[3, size, size]``, its central square resized."""
    width, height = picture.size
    side = min(width, height)
    if (width, height) != (size, size):
        left, top = (width - side) // 2, (height - side) // 2
        picture = picture.resize(
            (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side)
        )
    return np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1)
