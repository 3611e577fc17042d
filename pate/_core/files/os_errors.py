"""Errors of the machine in one line: a full disk, too little memory, a file without access."""

import errno
import shutil
import sqlite3
from collections.abc import Iterator

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# messages of torch, SQLite and C++ code, in exceptions of classes that other faults share
_FULL_WORDS = ("No space left on device", "disk is full", "File too large")
_MEMORY_WORDS = (
    "allocate memory",
    "bad_alloc",
    "out of memory",
    "Unable to allocate",
    "start new thread",
)
_MOST_LETTERS = 300
_KEPT = "Nothing that was finished is lost"
_AGAIN = "and the same command goes on"


def explain_os_error(error: BaseException) -> str | None:
    """Return one line on a fault of the machine and its remedy. None for other errors.

    A shortage is also found behind a ``ValueError``, any other fault of the system is not. An
    ``OSError`` that is a ``ValueError`` too, such as `FolderDiffersError`, has its own words.
    """
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # from pathlib
        return f"Expected a path that leads somewhere, got: {_line(error)}. {_KEPT}"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError | ValueError):
        return (
            explain_shortage(error)
            or f"Expected access to {error.filename or 'a file'}, got: {_line(error)}. {_KEPT}"
        )
    return explain_shortage(error)


def explain_shortage(error: BaseException) -> str | None:
    """Return one line on a full disk or short memory. None for other errors.

    The shortage may be in the context of the error: it explains a file that seems damaged.
    """
    for cause in _chain(error):
        if (
            isinstance(cause, MemoryError)
            or _number(cause) == errno.ENOMEM
            or _says(cause, _MEMORY_WORDS)
        ):
            return (
                f"Expected more memory than is free, got: {_line(cause) or 'none'}. {_KEPT}: free"
                f" some, or ask for less at once, {_AGAIN}"
            )
        if _number(cause) in _FULL or _says(cause, _FULL_WORDS):
            path = getattr(cause, "filename", None)
            return (
                f"Expected room on the disk{'' if path is None else f' of {path}'}, got:"
                f" {_line(cause)}. {_KEPT}: free some, {_AGAIN}"
            )
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its contexts, the errors that were being handled when it was raised."""
    while error is not None:
        yield error
        error = error.__context__


def _number(error: BaseException) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def _says(error: BaseException, words: tuple[str, ...]) -> bool:
    """Return whether an error of a library, which may lack a number, contains one of ``words``."""
    return isinstance(error, RuntimeError | OSError | sqlite3.Error) and any(
        word in str(error) for word in words
    )


def _line(error: BaseException) -> str:
    if isinstance(error, shutil.Error):  # a list with an error for each file of a folder
        return str(error.args[0][0][-1])
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:_MOST_LETTERS]
