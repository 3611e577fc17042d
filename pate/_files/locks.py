"""Locks of run folders, outputs and shared work: one process at a time writes each of them."""

import errno
import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from pate._files.writing import make_folder, remove_drafts

LOCK = ".lock"
"""Name of the lock file in a run's folder; it names the process that works on the run."""

FINISH = ".finish"
"""Name of the lease, in a stage's folder, of the one process that finishes shared work."""

_WIDTH = 80
_POLL_SECONDS = 0.2
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)


class _InUseError(ValueError):
    """Another process holds the lock."""


@dataclass
class _Held:
    path: Path
    descriptor: int
    shared: bool
    made_folder: bool


_held: dict[Path, _Held] = {}


def lock_run(root: Path, *, shared: bool = False) -> None:
    """Keep other processes from writing the run in ``root`` until `release_locks` or exit.

    A process that holds the lock may take it again: `pate run` holds it through all stages. The
    operating system releases it when the process is killed.

    Args:
        root: the run's folder, created if it is missing.
        shared: whether other processes that ask for a shared lock may work on the run at the same
            time.

    Raises:
        ValueError: if another process holds the lock, or the folder cannot be written.
    """
    key = root.resolve()
    if (held := _held.get(key)) is not None:
        if held.shared and not shared:
            _take(held.descriptor, held.path, shared=False)
            held.shared = False
        return
    made_folder = not root.exists()
    path = root / LOCK

    def open_lock() -> int:
        root.mkdir(parents=True, exist_ok=True)
        return _open(path, shared=shared)

    descriptor = _opened(open_lock, root, "a run's folder")
    if descriptor is None:
        return
    if not shared:
        remove_drafts(root.rglob(".*"))
        for left in root.rglob(FINISH):  # by a process that was killed
            left.unlink()
    _held[key] = _Held(path, descriptor, shared, made_folder)


@contextmanager
def locked(root: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of `lock_run` until the block ends; a lock that was held before stays."""
    key = root.resolve()
    before = key in _held
    lock_run(root, shared=shared)
    try:
        yield
    finally:
        if not before and key in _held:
            _release(_held.pop(key))


@contextmanager
def locked_output(output: Path) -> Iterator[None]:
    """Keep other processes from writing ``output``, with any suffix, until the block ends.

    The lock is a hidden file next to it, deleted at the end.

    Raises:
        ValueError: if another process holds the lock, or the folder cannot be written.
    """
    path = output.with_name(f".{output.stem}{LOCK}")
    unused = f"an output that no other process writes, got {output}"
    descriptor = _opened(lambda: _open(path, shared=False, wanted=unused), output, "an output")
    try:
        yield
    finally:
        if descriptor is not None:
            path.unlink(missing_ok=True)
            os.close(descriptor)


@contextmanager
def lease(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lease ``path``, a file that names this process, until the block ends.

    The file is then deleted. The operating system ends the lease of a process that dies, and a
    network file system ends the leases of a machine that disappears.

    Args:
        path: the file; its folder is created if it is missing.
        wait: whether to wait for another process that holds the lease.

    Yields:
        Whether this process holds the lease: always, if it waits.

    Raises:
        ValueError: if the disk has no locks.
    """
    make_folder(path.parent)
    descriptor = None
    while descriptor is None:
        try:
            descriptor = _open(path, shared=False)
        except _InUseError:
            if not wait:
                yield False
                return
            time.sleep(_POLL_SECONDS)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise ValueError(
                    f"Expected a disk with locks, which leases need, got {path.parent}"
                ) from None
            raise
    _sign(descriptor)
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def release_locks() -> None:
    """Release the locks of this process and delete their files."""
    while _held:
        _release(_held.popitem()[1])


def _release(held: _Held) -> None:
    with suppress(OSError):
        # another process that shares the lock still uses the file
        fcntl.flock(held.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.path.unlink()
        if held.made_folder:
            held.path.parent.rmdir()
    os.close(held.descriptor)


def _opened(open_lock: Callable[[], int], place: Path, noun: str) -> int | None:
    """Return the signed lock of ``place``, or None, with a warning, on a disk without locks."""
    try:
        descriptor = open_lock()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise ValueError(
                f"Expected {noun} that can be written, got {place} ({error.strerror})"
            ) from None
        warning = f"The disk of {place} has no locks: make sure that no two commands write to it."
        print(warning, file=sys.stderr)
        return None
    _sign(descriptor)
    return descriptor


def _sign(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    command = " ".join(["pate", *sys.argv[1:]])
    who = (
        f"process {os.getpid()} on {socket.gethostname()}"
        f" ({shorten(command, _WIDTH, placeholder=' ...')})"
    )
    with suppress(OSError):  # on a full disk the lock still holds, without a name
        os.write(descriptor, who.encode())


def _open(path: Path, *, shared: bool, wanted: str | None = None) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _take(descriptor, path, shared=shared, wanted=wanted)
            # the previous holder may have deleted the file on release
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _take(descriptor: int, path: Path, *, shared: bool, wanted: str | None = None) -> None:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        who = path.read_text() if path.is_file() else ""
        wanted = wanted or f"a run that no other process writes, got {path.parent}"
        raise _InUseError(f"Expected {wanted} in use by {who or 'another process'}") from None
