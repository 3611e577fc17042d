"""Atomic writes, locks and tables: one process at a time writes run folders and shared work.

A draft gets the name of its file once it is complete and on disk. Folders are made, and free space
is checked before work that needs it.
"""

import csv
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from glob import escape
from pathlib import Path
from textwrap import shorten, wrap
from typing import IO, Any

import numpy as np

from pate._core.files.reading import Json, load_json, opened, read_text
from pate._core.validation import require

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")

DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{16}")
"""The name of a draft, which contains the name of its file."""


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

    A lock shows other processes that the draft is not abandoned. Drafts of ``path`` that killed
    commands left are deleted.

    Args:
        path: the file.
        mode: the mode for writing, as for `open`.
        folder: the folder of the draft, on the same file system. None for the folder of the file.
        once: whether an existing file stays as it is.
        permissions: the permissions of the file, before the system's mask.
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
        with suppress(OSError):  # it may never have been created
            beside.unlink()


def remove_abandoned(path: Path, folder: Path | None = None) -> None:
    """Delete the drafts of ``path`` that killed commands left in ``folder``, or next to it."""
    for draft in (folder or path.parent).glob(f".{escape(path.name)}.*"):
        if (named := DRAFT.fullmatch(draft.name)) and named[1] == path.name:
            with suppress(OSError), opened(draft) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink()


def _locked(draft: Path, mode: str, permissions: int) -> IO[Any]:
    """Open a draft with a lock, so that no process takes it for abandoned until it is closed."""
    while True:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, permissions)
        file: IO[Any] = os.fdopen(descriptor, mode, encoding=None if "b" in mode else "utf-8")
        with suppress(OSError):  # file systems without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process deleted it before it was locked


@contextmanager
def atomic_write(path: Path, mode: str = "wb", *, folder: Path | None = None) -> Iterator[IO[Any]]:
    """Open a draft for writing, and rename it to ``path`` once it is complete and on disk.

    The draft is next to ``path``, or in another ``folder`` of the same file system. Drafts of
    killed commands are deleted.
    """
    make_folder(path.parent)
    try:
        with draft_of(path, mode, folder=folder) as file:
            yield file
    except OSError as error:
        # errors of a full disk name no file, and the name of a draft means nothing to users
        error.filename, error.filename2 = str(path), None
        raise


def remove_drafts(files: Iterable[Path], names: Container[str] | None = None) -> None:
    """Delete the drafts among ``files`` that killed commands left. No other process may be writing.

    Args:
        files: hidden files and folders.
        names: the names of the files of these drafts. None for all drafts.
    """
    for path in list(files):
        draft = DRAFT.fullmatch(path.name)
        if draft is not None and (names is None or draft[1] in names):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def require_new(output: Path, *, overwrite: bool) -> None:
    """Raise ``ValueError`` if an output is there that is not to be overwritten."""
    require(
        overwrite or not output.exists(),
        "an output that is not there yet, or `overwrite`",
        output=str(output),
    )


@contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` while the output ``path`` is written into a one-line ``ValueError``."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"Expected an output that can be written, got {path} ({error.strerror})"
        ) from None


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Make a new folder to be filled with files, and rename it to ``path`` once they are on disk.

    An older folder of that name is moved aside and deleted. A process that is killed between the
    two renames leaves neither. No other process may write ``path`` meanwhile: drafts that an
    earlier process left are deleted.
    """
    make_folder(path.parent)
    remove_drafts(path.parent.glob(".*"), (path.name,))
    beside, aside = (path.with_name(f".{path.name}.{secrets.token_hex(8)}") for _ in range(2))
    make_folder(beside)
    try:
        yield beside
        for file in beside.iterdir():
            with opened(file) as written:
                os.fsync(written.fileno())
        if path.exists():
            path.rename(aside)
        beside.rename(path)
    finally:
        for folder in (beside, aside):
            shutil.rmtree(folder, ignore_errors=True)


def write_json(path: Path, content: Json) -> None:
    """Write ``content`` as JSON, atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write ``text``, atomically."""
    with atomic_write(path, "w") as file:
        file.write(text)


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write an ``.npz``, atomically."""
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)


def make_once(path: Path, make: Callable[[], Json]) -> Json:
    """Return the JSON content of ``path``, which is created by ``make`` if it is missing.

    If several processes create it at the same time, on one machine or on many, all return the
    content of the first.
    """
    if not path.is_file():
        write_once(path, json.dumps(make()).encode())
    return load_json(path)


def write_once(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Create a file with ``content``, atomically. An existing file stays as it is."""
    with draft_of(path, once=True, permissions=mode) as file:
        file.write(content)


def cell(text: str) -> str:
    """Return the text of a CSV cell, with an apostrophe before apparent formulas."""
    with suppress(ValueError):
        float(text)
        return text
    return f"'{text}" if text.startswith(_FORMULA) else text


def sync_folder(folder: Path) -> None:
    """Wait until the names of the files in a folder are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder and its parents if they are missing, with mode 0700 below ``private``."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=0o700 if "private" in path.parts else 0o777, exist_ok=True)


def require_place(folder: Path) -> None:
    """Raise ``ValueError`` unless a folder is writable or can be created."""
    place = _nearest(folder)
    require(
        place.is_dir() and os.access(place, os.W_OK),
        f"a folder {folder} that can be written",
        nearest=str(place),
    )


def _nearest(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def gigabytes(size: int) -> str:
    """Return a number of bytes as GB, with three digits."""
    return f"{size / 1e9:.3g}"


def require_disk(needed: int, folder: Path, what: str) -> None:
    """Raise ``ValueError`` if the disk of a folder has less free space than ``needed`` bytes.

    Args:
        needed: the number of bytes.
        folder: the folder, which need not exist yet.
        what: a plural noun for the content, for errors.
    """
    free = shutil.disk_usage(_nearest(folder)).free
    require(
        needed <= free,
        f"{gigabytes(needed)} GB of free disk for the {what} in {folder}",
        free_gb=gigabytes(free),
    )


LOCK = ".lock"
"""Name of the lock file in a run's folder. It names the process that works on the run."""

_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)
_held: set[Path] = set()
"""The runs that this process has locked."""


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keep other processes from writing the run in ``root`` until the block ends.

    A process that holds the lock may take it again: `pate run` holds it through all stages. The
    operating system releases it when the process is killed.

    Args:
        root: the run's folder, created if it is missing.

    Raises:
        ValueError: if another process holds the lock, or the folder cannot be written.
    """
    key, made_folder = root.resolve(), not root.exists()
    if key in _held:
        yield
        return
    try:
        with lease(
            root / LOCK, f"a run that no other process writes, got {root}", wait=False
        ) as alone:
            remove_drafts(root.rglob(".*") if alone else ())
            _held.add(key)
            yield
    finally:
        _held.discard(key)
        if made_folder:
            with suppress(OSError):  # which has files now
                root.rmdir()


@contextmanager
def locked_output(output: Path) -> Iterator[None]:
    """Keep other processes from writing ``output``, with any suffix, until the block ends.

    The lock is a hidden file next to it, deleted at the end. Its folder is created if it is
    missing.

    Raises:
        ValueError: if another process holds the lock, or the folder cannot be written.
    """
    lock = output.with_name(f".{output.stem}{LOCK}")
    with lease(lock, f"an output that no other process writes, got {output}", wait=False):
        yield


@contextmanager
def lease(path: Path, wanted: str = "", *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock, a file that names this process, until the block ends; wait if another has it.

    A disk without locks gives False, and a warning.
    """
    descriptor = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _open(path, wanted, wait=wait)
    except OSError as error:
        require(
            error.errno in _NO_LOCKS,
            f"a folder that can be written, got {path.parent} ({error.strerror})",
        )
        print(
            f"The disk of {path.parent} has no locks: make sure that no two commands write to it.",
            file=sys.stderr,
        )
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with suppress(OSError):  # what the block did, or raised, stands
                path.unlink()
            os.close(descriptor)


def _open(path: Path, wanted: str, *, wait: bool) -> int:
    """Return a lock, with the name of this process."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _take(descriptor, path, wanted, wait=wait)
            # the previous holder may have deleted the file on release
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    _sign(descriptor)
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _take(descriptor: int, path: Path, wanted: str, *, wait: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        who = ""
        with suppress(FileNotFoundError):  # it was released a moment ago
            who = read_text(path)
        raise ValueError(f"Expected {wanted} in use by {who or 'another process'}") from None


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    command = " ".join(["pate", *sys.argv[1:]])
    who = (
        f"process {os.getpid()} on {socket.gethostname()}"
        f" ({shorten(command, _WIDTH, placeholder=' ...')})"
    )
    with suppress(OSError):  # on a full disk the lock still holds, without a name
        os.write(descriptor, who.encode())


_WIDTH = 100
_LEAST = 22  # columns for names, however many figures there are


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: each row is a name, wrapped if it is long, and figures.

    The first row is the head.

    >>> text_table([("aggregator", "epsilon"), ("NoisyVotes", "2.0")])
    ['aggregator  epsilon', 'NoisyVotes      2.0']
    """
    widths = [max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[1:]]
    names = [
        wrap(name, max(_LEAST, _WIDTH - sum(widths)), subsequent_indent="    ") or [""]
        for name, *_ in rows
    ]
    width = max(len(line) for name in names for line in name)
    lines = []
    for (name, *more), (_, *figures) in zip(names, rows, strict=True):
        cells = (f"{figure:>{space}}" for figure, space in zip(figures, widths, strict=True))
        lines += [f"{name:<{width}}{''.join(cells)}".rstrip(), *more]
    return lines


def write_csv(path: Path, notice: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows with some or all fields of the first row, below a comment ``notice``."""
    first, *others = rows
    with atomic_write(path, "w") as file:
        file.write(f"# {notice}\n")
        writer = csv.DictWriter(file, fieldnames=list(first))
        writer.writeheader()
        writer.writerows([first, *others])


def rendered(template: Path, **words: Any) -> str:
    """Return the text of a template of Jinja.

    Raises:
        LookupError: if the template names what is not among the ``words``, or not in one of them.
    """
    from jinja2 import UndefinedError

    try:
        return _environment(template.parent).get_template(template.name).render(words)
    except UndefinedError as error:
        raise LookupError(str(error)) from None


@cache
def _environment(folder: Path) -> Any:
    """Return the environment of a folder, which compiles each template once: that takes 0.1 s."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
