"""Digests of files, streams and the package's own code."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pate._version import __version__

_BLOCK = 1 << 22  # bytes read at once


@dataclass(frozen=True)
class Stream:
    """Bytes that are read while they are hashed.

    Attributes:
        size: number of bytes.
        blocks: the bytes, in blocks.
    """

    size: int
    blocks: Iterable[bytes | memoryview]


def digest(*parts: bytes | str | Path | Stream) -> str:
    """Return one hash of bytes, texts, the contents of files, and streams, in order.

    Files and streams may be larger than memory. A stream has the hash of its bytes.
    """
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                total.update(os.fstat(file.fileno()).st_size.to_bytes(8, "big"))
                while block := file.read(_BLOCK):
                    total.update(block)
        elif isinstance(part, Stream):
            total.update(part.size.to_bytes(8, "big"))
            for piece in part.blocks:
                total.update(piece)
        else:
            content = part.encode() if isinstance(part, str) else part
            total.update(len(content).to_bytes(8, "big") + content)
    return total.hexdigest()


@cache
def code_version() -> str:
    """Return the package's version and a hash of its source."""
    root = Path(__file__).parents[1]
    return f"{__version__}+{digest(*sorted(root.rglob('*.py')))}"
