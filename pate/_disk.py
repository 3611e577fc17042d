"""The disk: folders, and free space, which is checked before work is begun that would fill it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pate._validation import require


def make_folder(path: Path) -> None:
    """Make a folder if it is missing, and its parents; one below a folder ``private`` is open to its owner alone."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=0o700 if "private" in path.parts else 0o777, exist_ok=True)


def require_place(folder: Path) -> None:
    """Raise ``ValueError`` unless a folder is writable, or can be made where its nearest parent is."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    writable = place.is_dir() and os.access(place, os.W_OK)
    require(writable, f"a folder {folder} that can be written", nearest=str(place))


def gigabytes(size: int) -> str:
    """Return a number of bytes as GB, with three digits."""
    return f"{size / 1e9:.3g}"


def require_disk(needed: int, folder: Path, what: str, *, files: int = 0) -> None:
    """Raise ``ValueError`` if the disk of a folder, or of its nearest parent, has no room for so many bytes.

    Args:
        needed: the bytes.
        folder: the folder, which may be yet to be made.
        what: what they are of, a plural.
        files: in how many files of equal size they lie; 0 for few.
    """
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if files:
        block = os.statvfs(place).f_frsize  # a file takes whole blocks
        needed = files * block * -(-needed // (files * block))
    free = shutil.disk_usage(place).free
    require(
        needed <= free,
        f"{gigabytes(needed)} GB of free disk for the {what} in {folder}",
        free_gb=gigabytes(free),
    )
