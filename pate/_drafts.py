"""Drafts: hidden files that are renamed to what they become once they are complete and on disk."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, Any

DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{16}")
"""The name of a draft, which has that of its file in it."""


@contextmanager
def draft_of(
    path: Path,
    mode: str = "wb",
    *,
    folder: Path | None = None,
    once: bool = False,
    permissions: int = 0o666,
) -> Iterator[IO[Any]]:
    """Open a draft for writing, and give it the name ``path`` once it is complete and on disk.

    Nobody else takes it for abandoned meanwhile. Drafts that killed commands left of ``path`` are
    deleted.

    Args:
        path: the file.
        mode: the mode for writing, as of `open`.
        folder: where the draft lies, on the same file system; None for the folder of the file.
        once: whether a file that is there stays as it is.
        permissions: those of the file, less what the system masks.
    """
    place = folder or path.parent
    remove_abandoned(path, place)
    beside = place / f".{path.name}.{secrets.token_hex(8)}"
    try:
        with _locked(beside, mode, permissions) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not once:
                beside.replace(path)
            else:
                with suppress(FileExistsError):
                    os.link(beside, path)  # unlike a rename, a link fails if the file exists
    finally:
        with suppress(OSError):  # what could not be made
            beside.unlink()


def remove_abandoned(path: Path, folder: Path | None = None) -> None:
    """Delete the drafts of ``path`` that killed commands left in ``folder``, by default that of the file."""
    for draft in (folder or path.parent).glob(f".{escape(path.name)}.*"):
        if (named := DRAFT.fullmatch(draft.name)) and named[1] == path.name:
            with suppress(OSError), draft.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink()


def _locked(draft: Path, mode: str, permissions: int) -> IO[Any]:
    """Open a draft that nobody takes for abandoned until it is closed."""
    while True:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, permissions)
        file: IO[Any] = os.fdopen(descriptor, mode, encoding=None if "b" in mode else "utf-8")
        with suppress(OSError):  # file systems without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # somebody deleted it before it was locked
