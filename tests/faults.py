"""Faults of the machine, made for a moment: a disk that is full, folders that cannot be written."""

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VERSION = 0x20080522  # of Linux's capabilities
_OVERRIDE = 1 << 1  # CAP_DAC_OVERRIDE: the superuser writes what is marked read-only


@contextmanager
def full_disk(left: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``left`` bytes; each error is "File too large"."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Mark a folder and all that is in it read-only, for the superuser too."""
    places = [folder, *folder.rglob("*")]
    modes = [place.stat().st_mode for place in places]
    libc, before = ctypes.CDLL(None), (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    for place, mode in zip(places, modes, strict=True):
        place.chmod(mode & ~0o222)
    if os.geteuid() == 0:
        libc.capget(header, before)
        without = (ctypes.c_uint32 * 6)(*before)
        without[0] &= ~_OVERRIDE
        libc.capset(header, without)
    try:
        yield
    finally:
        if os.geteuid() == 0:
            libc.capset(header, before)
        for place, mode in zip(places, modes, strict=True):
            place.chmod(mode)
