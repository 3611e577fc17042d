"""Careful reading of files that others wrote: JSON, YAML and arrays; and digests of files.

JSON has a bounded depth and distinct keys. Arrays are plain values that match the size of their
file.
"""

import hashlib
import json
import math
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from struct import Struct
from tokenize import TokenError
from typing import IO, Any, Literal, Self
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo, is_zipfile

import numpy as np
import yaml
from numpy.typing import NDArray

from pate._core.validation import expecting, require, require_distinct, require_known
from pate._core.version import RELEASE

Json = dict[str, Any]

_DEEPEST = 100  # objects and lists within each other
_MOST_DIGITS = 308  # of a whole number that fits a float


def read_json(text: str | bytes) -> Any:
    """Return the content of a JSON text.

    Raises:
        ValueError: if it is not JSON, is nested too deeply, holds a whole number beyond the range
            of floats, or repeats a key in an object, which readers would interpret differently.
    """
    try:
        content = json.loads(text, object_pairs_hook=distinct_keys, parse_int=_whole_number)
    except RecursionError:
        raise ValueError(f"Expected JSON of at most {_DEEPEST} levels, got more") from None
    level, depth = [content], 1
    while level := [item for part in level for item in _parts(part)]:
        depth += 1
        require(depth <= _DEEPEST, f"JSON of at most {_DEEPEST} levels")
    return content


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; raise ``ValueError`` if a key occurs twice.

    It serves as the ``object_pairs_hook`` of `json.loads`.
    """
    content = dict(pairs)
    if len(content) < len(pairs):
        require_distinct("keys of an object", (name for name, _ in pairs))
    return content


def _whole_number(digits: str) -> int:
    require(
        len(digits.lstrip("-")) <= _MOST_DIGITS,
        f"whole numbers of at most {_MOST_DIGITS} digits",
    )
    return int(digits)


def _parts(content: Any) -> list[Any]:
    """Return the objects and lists in a list or an object."""
    if isinstance(content, dict):
        content = content.values()
    elif not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict | list)]


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may have been built without it


def read_yaml(text: str) -> Any:
    """Return the content of a YAML text.

    Raises ``yaml.YAMLError`` if it is not YAML, or needs classes of Python.
    """
    return yaml.load(text, Loader=_LOADER)


_BLOCK = 1 << 22  # bytes read at once
# the local header of a zip's member: the lengths of the name and the extra fields after it
_LOCAL_HEADER = Struct("<26xHH")


def read_arrays(
    path: Path,
    required: Sequence[str],
    optional: Sequence[str] = (),
    *,
    unread: Sequence[str] = (),
    mapped: Sequence[str] = (),
    what: str = "an .npz file of plain arrays",
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` file by name.

    Args:
        path: the file.
        required: names of arrays that must be present.
        optional: names of arrays that may be present; other names are refused.
        unread: names of arrays that may be present and are not read.
        mapped: names of arrays to map (`numpy.memmap`) instead of reading them into memory, if they
            hold numbers and are not compressed. Their checksums are compared.
        what: a description of the file, for errors.

    Raises:
        ValueError: if the file is missing or damaged, holds pickled objects, lacks an array or has
            an unknown one.
    """
    require(path.is_file(), what, missing=str(path))
    if not is_zipfile(path):
        # numpy would take it for a pickle, and suggest to trust it
        raise ValueError(f"Expected {what} in {path}, got another kind of file, or a truncated one")
    with _opened(path, f"{what} in {path}") as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        require_known(f"arrays of {path}", members, [*required, *optional, *unread])
        missing = [name for name in required if name not in members]
        require(not missing, f"the arrays {', '.join(required)} in {path}", missing=missing)
        names = [name for name in (*required, *optional) if name in members]
        return {name: _array(archive, members[name], mapped=name in mapped) for name in names}


def unpacked(
    content: bytes, names: Sequence[str], *, what: str, most: int
) -> dict[str, NDArray[Any]]:
    """Return the arrays of the content of an ``.npz`` file, which has the ``names`` alone.

    Raises ``ValueError`` as `read_arrays` does, and if they hold more than ``most`` bytes.
    """
    if not is_zipfile(BytesIO(content)):
        raise ValueError(f"Expected {what}, got another kind of file, or a truncated one")
    with _opened(BytesIO(content), what) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        found = sorted(member.filename for member in members)
        require(found == sorted(f"{name}.npy" for name in names) and size <= most, what, bytes=size)
        return {
            name: _array(archive, archive.getinfo(f"{name}.npy"), mapped=False) for name in names
        }


@contextmanager
def _opened(file: Path | BytesIO, wanted: str) -> Iterator[ZipFile]:
    """Open an ``.npz``, and turn the many errors of reading a damaged one into a ``ValueError``."""
    try:
        with ZipFile(file) as archive:
            yield archive
    except (
        OSError,
        EOFError,
        KeyError,
        RuntimeError,
        BadZipFile,
        zlib.error,
        _DamagedError,
    ) as error:
        problem = error if isinstance(error, _DamagedError) else f"a damaged one ({error})"
        raise ValueError(f"Expected {wanted}, got {problem}") from None


class _DamagedError(ValueError):
    """An array that does not match its header, or has an unsafe or unknown type."""


@dataclass(frozen=True)
class Blocks:
    """A large array of an ``.npz`` file, whose blocks of rows are read during iteration.

    Attributes:
        shape: its shape.
    """

    shape: tuple[int, ...]
    _path: Path
    _member: str
    _what: str

    @classmethod
    def find(cls, path: Path, name: str, *, what: str) -> Self | None:
        """Return an array of an ``.npz`` file, or None if it has no such array.

        Raises ``ValueError`` as `read_arrays` does.
        """
        with _opened(path, f"{what} in {path}") as archive:
            members = [
                member
                for member in archive.infolist()
                if member.filename.removesuffix(".npy") == name
            ]
            if not members:
                return None
            with archive.open(members[-1]) as file:
                shape, *_ = _require_fitting(file, members[-1].file_size, name)
        return cls(shape, path, members[-1].filename, what)

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Yield blocks of rows, or all rows at once of an array stored by columns.

        Raises ``ValueError`` as `read_arrays` does.
        """
        with _opened(self._path, f"{self._what} in {self._path}") as archive:
            member = archive.getinfo(self._member)
            with archive.open(member) as file:
                shape, order, dtype = _require_fitting(file, member.file_size, member.filename)
                if order == "F":
                    yield _array(archive, member, mapped=False)
                    return
                row = math.prod(shape[1:]) * dtype.itemsize
                step = max(1, _BLOCK // max(1, row))
                for start in range(0, shape[0], step):
                    count = min(step, shape[0] - start)
                    content = file.read(count * row)
                    if len(content) < count * row:
                        raise _DamagedError(f"a damaged one ({member.filename} ends early)")
                    yield np.frombuffer(content, dtype=dtype).reshape(count, *shape[1:])
                file.read()  # compares the checksum at the end


def read_array(path: Path, *, what: str = "an .npy file of one plain array") -> NDArray[Any]:
    """Return the array of an ``.npy`` file. Raises ``ValueError`` as `read_arrays` does."""
    require(path.is_file(), what, missing=str(path))
    with expecting(f"{what} in {path}", _DamagedError), path.open("rb") as file:
        _require_fitting(file, path.stat().st_size, path.name)
        file.seek(0)
        return _content(file)


def _array(archive: ZipFile, member: ZipInfo, *, mapped: bool) -> NDArray[Any]:
    """Return an array, after comparing its header with its size and before inflating anything."""
    with archive.open(member) as file:
        shape, order, dtype = _require_fitting(file, member.file_size, member.filename)
        if (
            mapped
            and member.compress_type == ZIP_STORED
            and dtype.kind in "biuf"
            and shape
            and 0 not in shape
        ):
            assert archive.fp is not None
            # the content of the member begins after its local header, name and extra fields
            archive.fp.seek(member.header_offset)
            lengths = _LOCAL_HEADER.unpack(archive.fp.read(_LOCAL_HEADER.size))
            start = archive.fp.tell() + sum(lengths) + file.tell()
            while file.read(_BLOCK):  # compares the checksum at the end
                pass
            return np.memmap(archive.fp, dtype, "r", start, shape, order)
    with archive.open(member) as file:
        return _content(file)


def _content(file: IO[bytes]) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind == "U" and array.dtype.itemsize:
        letters = array.reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if letters.max(initial=0) > sys.maxunicode:
            raise _DamagedError("a damaged one (texts of letters that there are not)")
    return array


def _require_fitting(
    file: IO[bytes], size: int, name: str
) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    """Return the header of an array, which must be of plain values and match the file's size."""
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, by_columns, dtype = read(file)
        if min(shape, default=0) < 0:
            raise ValueError(f"a negative size in {shape}")
    # numpy evaluates the header as Python
    except (ValueError, TypeError, SyntaxError, TokenError, OverflowError, RecursionError) as error:
        raise _DamagedError(f"a damaged one ({error})") from None
    if dtype.hasobject:
        raise _DamagedError("an array of Python objects, which is never read")
    if dtype.kind in "Vc":
        raise _DamagedError(f"an array of type {dtype}")
    if file.tell() + math.prod(shape) * dtype.itemsize != size:
        raise _DamagedError(f"a damaged one ({name} of {size} bytes, shape {shape})")
    return shape, "F" if by_columns else "C", dtype


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
    return f"{RELEASE}+{digest(*sorted(Path(__file__).parents[2].rglob('*.py')))}"


def packaged_file(name: str, *suffixes: str) -> Path | None:
    """Return the one file with a suffix in an installed package, which is not imported, or None."""
    spec = find_spec(name) if name.isidentifier() else None
    files = [
        file
        for place in (spec and spec.submodule_search_locations) or ()
        for file in Path(place).rglob("*")
        if file.suffix in suffixes
    ]
    return files[0] if len(files) == 1 else None
