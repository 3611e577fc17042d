"""Files that appear whole or not at all, digests of what is in them, and archives that are read with care."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import sys
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from struct import Struct
from tokenize import TokenError
from typing import IO, Any, Literal
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo, is_zipfile

import numpy as np
from numpy.typing import NDArray

from pate._disk import make_folder
from pate._drafts import DRAFT, draft_of
from pate._json import read_json
from pate._validation import require, require_known
from pate._version import __version__

Json = dict[str, Any]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_BLOCK = 1 << 22  # bytes read at once
_LOCAL_HEADER = Struct(
    "<26xHH"
)  # of a zip's member, with the lengths of the name and of the extra fields after it
_Header = tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]


@contextmanager
def replacing(path: Path, mode: str = "wb", *, folder: Path | None = None) -> Iterator[IO[Any]]:
    """Open a temporary file for writing, and rename it to ``path`` once it is complete and on disk.

    It lies beside ``path``, or in another ``folder`` of the same file system. Drafts of killed
    commands are deleted.
    """
    make_folder(path.parent)
    try:
        with draft_of(path, mode, folder=folder) as file:
            yield file
    except OSError as error:
        # what is written has no name in errors of a full disk, and a draft has one that nobody
        # knows
        error.filename, error.filename2 = str(path), None
        raise


def remove_drafts(files: Iterable[Path], names: Container[str] | None = None) -> None:
    """Delete those of ``files`` that killed commands left half-written, where nobody else is writing.

    Args:
        files: hidden files and folders.
        names: the names of the files that are meant, without hidden parts; None for all.
    """
    for path in list(files):
        draft = DRAFT.fullmatch(path.name)
        if draft is not None and (names is None or draft[1] in names):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@contextmanager
def naming_output(path: Path) -> Iterator[None]:
    """Turn an error of the system while the output ``path`` is written into a ``ValueError`` in one line."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"Expected an output that can be written, got {path} ({error.strerror})"
        ) from None


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Make a new folder beside ``path``, to be filled with files, and rename it to ``path`` once they are on disk.

    An older folder of that name is moved aside and deleted. A process that is killed between the
    two renames leaves neither. Nobody else may write ``path`` meanwhile: what an earlier process
    left half-written is deleted.
    """
    make_folder(path.parent)
    remove_drafts(path.parent.glob(".*"), (path.name,))
    beside, aside = (path.with_name(f".{path.name}.{secrets.token_hex(8)}") for _ in range(2))
    make_folder(beside)
    try:
        yield beside
        for file in beside.iterdir():
            with file.open("rb") as written:
                os.fsync(written.fileno())
        if path.exists():
            path.rename(aside)
        beside.rename(path)
    finally:
        for folder in (beside, aside):
            shutil.rmtree(folder, ignore_errors=True)


def write_json(path: Path, content: Json) -> None:
    """Write ``content`` as JSON, completely or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write ``text``, completely or not at all."""
    with replacing(path, "w") as file:
        file.write(text)


def cell(text: str) -> str:
    """Return the text of a cell of a CSV file, with an apostrophe before what spreadsheets take for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write an ``.npz``, completely or not at all."""
    with replacing(path) as file:
        np.savez_compressed(file, **arrays)


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


def make_once(path: Path, make: Callable[[], Json]) -> Json:
    """Return the JSON content of ``path``, which is created by ``make`` if it is missing.

    If several processes create it at the same time, on one machine or on many, all return the
    content of the first.
    """
    if not path.is_file():
        write_once(path, json.dumps(make()).encode())
    content: Json = read_json(path.read_text())
    return content


def write_once(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Create a file with ``content``, whole or not at all; one that is there stays as it is."""
    with draft_of(path, once=True, permissions=mode) as file:
        file.write(content)


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
        required: names of arrays that have to be there.
        optional: names of arrays that may be there; any other would be left out without a word, and
            is refused.
        unread: names of arrays that may be there, too, and are not wanted.
        mapped: names of arrays that are not read into memory, if they hold numbers and are not
            compressed: they are compared with their checksum, and mapped (`numpy.memmap`).
        what: what the file is, for errors.

    Raises:
        ValueError: if the file is missing or damaged, holds pickled objects, lacks an array or has
            an unknown one.
    """
    require(path.is_file(), what, missing=str(path))
    if not is_zipfile(path):
        # numpy would take it for a pickle, and advise to trust it
        raise ValueError(f"Expected {what} in {path}, got another kind of file, or a truncated one")
    with _opened(path, what) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        require_known(f"arrays of {path}", members, [*required, *optional, *unread])
        missing = [name for name in required if name not in members]
        require(not missing, f"the arrays {', '.join(required)} in {path}", missing=missing)
        names = [name for name in (*required, *optional) if name in members]
        return {name: _array(archive, members[name], mapped=name in mapped) for name in names}


@contextmanager
def _opened(path: Path, what: str) -> Iterator[ZipFile]:
    """Open an ``.npz``; what is raised while it is read depends on where it ends or was changed."""
    try:
        with ZipFile(path) as archive:
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
        raise ValueError(f"Expected {what} in {path}, got {problem}") from None


class _DamagedError(ValueError):
    """An array that cannot be what its file says."""


@dataclass(frozen=True)
class Blocks:
    """An array of an ``.npz`` file that is read when it is iterated, some rows at once, because it may be large.

    Attributes:
        shape: its shape.
    """

    shape: tuple[int, ...]
    _path: Path
    _member: str
    _what: str

    @classmethod
    def find(cls, path: Path, name: str, *, what: str) -> Blocks | None:
        """Return an array of an ``.npz`` file that `read_arrays` has read, or None.

        Raises as that does.
        """
        with _opened(path, what) as archive:
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
        """Yield blocks of rows; all rows of an array that is stored by columns.

        Raises as `read_arrays` does.
        """
        with _opened(self._path, self._what) as archive:
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
                file.read()  # to the end, where the checksum is compared


def read_array(path: Path, *, what: str = "an .npy file of one plain array") -> NDArray[Any]:
    """Return the array of an ``.npy`` file. Raises ``ValueError`` as `read_arrays` does."""
    require(path.is_file(), what, missing=str(path))
    try:
        with path.open("rb") as file:
            _require_fitting(file, path.stat().st_size, path.name)
            file.seek(0)
            return _content(file)
    except _DamagedError as error:
        raise ValueError(f"Expected {what} in {path}, got {error}") from None


def _array(archive: ZipFile, member: ZipInfo, *, mapped: bool) -> NDArray[Any]:
    """Return an array whose header fits its size, which is compared before anything is inflated."""
    with archive.open(member) as file:
        shape, order, dtype = _require_fitting(file, member.file_size, member.filename)
        if (
            mapped
            and member.compress_type == ZIP_STORED
            and dtype.kind in "biuf"
            and shape
            and 0 not in shape
        ):
            start = _start(archive, member) + file.tell()
            while file.read(_BLOCK):  # compares the checksum at the end
                pass
            assert archive.fp is not None
            return np.memmap(archive.fp, dtype, "r", start, shape, order)
    with archive.open(member) as file:
        return _content(file)


def _start(archive: ZipFile, member: ZipInfo) -> int:
    """Return where the content of a member begins: after its local header, which ends with a name and extra fields."""
    assert archive.fp is not None
    archive.fp.seek(member.header_offset)
    lengths: tuple[int, int] = _LOCAL_HEADER.unpack(archive.fp.read(_LOCAL_HEADER.size))
    return archive.fp.tell() + sum(lengths)


def _content(file: IO[bytes]) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind == "U" and array.dtype.itemsize:
        letters = array.reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if letters.max(initial=0) > sys.maxunicode:
            raise _DamagedError("a damaged one (texts of letters that there are not)")
    return array


def _require_fitting(file: IO[bytes], size: int, name: str) -> _Header:
    """Return the header of an array, which has to speak of plain values and of as many as there are bytes for."""
    shape, order, dtype = _header(file)
    if dtype.hasobject:
        raise _DamagedError("an array of Python objects, which is never read")
    if dtype.kind in "Vc":
        raise _DamagedError(f"an array of type {dtype}")
    if file.tell() + math.prod(shape) * dtype.itemsize != size:
        raise _DamagedError(f"a damaged one ({name} of {size} bytes, shape {shape})")
    return shape, order, dtype


def _header(file: IO[bytes]) -> _Header:
    """Return the shape, the order and the type of what follows in an ``.npy``."""
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
    # numpy evaluates it as Python
    except (ValueError, TypeError, SyntaxError, TokenError, OverflowError, RecursionError) as error:
        raise _DamagedError(f"a damaged one ({error})") from None
    return shape, "F" if by_columns else "C", dtype
