"""All reading of files: each is a regular one within a budget; and digests of files.

Nothing that another wrote takes much more time or memory than its size: `SMALL` bounds files of
settings and facts, and `require_unpacked` the content of packed ones. A pipe is never waited for.
JSON and YAML have a bounded depth and distinct keys. Arrays are plain values that match the size
of their file.
"""

import gzip
import hashlib
import json
import math
import os
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from io import BufferedReader, BytesIO, StringIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from struct import Struct
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any, Literal
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo, is_zipfile

import numpy as np
import yaml
from numpy.typing import NDArray

from pate._core.package import __version__
from pate._core.validation import expecting, require, require_distinct, require_known

if TYPE_CHECKING:
    import pyarrow
    from PIL import Image

Json = dict[str, Any]
Header = tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]
"""The shape, the order and the type of a stored array."""

SMALL = 1 << 22
"""The most bytes of a file of settings, facts or progress."""
MOST_WEIGHTS = 1 << 28
"""The most bytes of the weights of a linear student, with those of its features."""
LARGE = 1 << 40
"""The most bytes of a file of data, votes or weights: those of a terabyte."""
_LEAST, _TIMES = 1 << 26, 100  # bytes that may be packed in any file, and in each byte of one
_LEAST_LINES, _LINE = 1 << 18, 4  # lines of a packed text, and the packed bytes of each further one
_LEAST_PIXELS, _PIXELS = 1 << 23, 8  # the same of pixels of a picture
_LEAST_CELLS, _CELLS = 1 << 20, 32  # and of cells of a table by columns
_DEEPEST = 100  # objects and lists within each other
_MOST_DIGITS = 308  # of a whole number that fits a float
_MOST_NODES = 1 << 18  # of a YAML text
_LETTERS = 64  # of a text that counts as one more node
_MOST_MEMBERS = 1000  # of an archive
_LONGEST_LINE = 1 << 24
_GZIP = b"\x1f\x8b"
# the record at the end of an archive, the one before it in a large archive, and bytes to find both
_END_RECORD, _ZIP64, _END = b"PK\x05\x06", b"PK\x06\x07", 1 << 17
_SIZE_64 = 1 << 31  # bytes from which an archive needs the longer record at its end


def opened(path: Path | str, most: int = LARGE) -> BufferedReader:
    """Open a regular file for reading.

    Raises:
        OSError: if it cannot be opened.
        ValueError: if it is a pipe, a device or a folder, or has more than ``most`` bytes.
    """
    # a pipe is opened without waiting for its writer
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        require(S_ISREG(status.st_mode), f"a regular file at {path}")
        size = f"a file of at most {most} bytes at {path}"
        require(status.st_size <= most, size, bytes=status.st_size)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def regular(path: Path | str, most: int = LARGE) -> Path:
    """Return the path of a file for a library that reads no other. Raises as `opened` does."""
    opened(path, most).close()
    return Path(path)


def read_bytes(path: Path | str, most: int = SMALL) -> bytes:
    """Return the content of a file. Raises as `opened` does."""
    with opened(path, most) as file:
        # it may grow
        content = b"".join(islice(iter(partial(file.read, _BLOCK), b""), most // _BLOCK + 2))
    require(len(content) <= most, f"a file of at most {most} bytes at {path}", bytes=len(content))
    return content


def read_text(path: Path | str, most: int = SMALL) -> str:
    """Return the text of a file in UTF-8. Raises as `opened` does, and ``ValueError`` on others."""
    return StringIO(read_bytes(path, most).decode(), newline=None).read()


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a text with their ends. It may be packed by gzip.

    Raises ``ValueError`` as `opened` does, and on a line of more than 16 million letters.
    """
    with opened(path) as raw:
        size = os.fstat(raw.fileno()).st_size
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        with TextIOWrapper(file, encoding, newline="") as text:
            number = 0
            while line := text.readline(_LONGEST_LINE):
                require(len(line) < _LONGEST_LINE, f"lines of at most {_LONGEST_LINE} letters")
                number += 1
                if packed:  # the rows of a table take far more memory than their text
                    most = _LEAST_LINES + size // _LINE
                    require(number <= most, f"at most {most} lines for the bytes of {path}")
                    require_unpacked(4 * file.tell(), size, path)
                yield line


def require_unpacked(size: int, packed: int, place: object) -> None:
    """Raise ``ValueError`` on much more content than packed bytes: it was made to fill memory."""
    require(
        size <= _LEAST + _TIMES * packed,
        f"at most {_TIMES} times as many bytes as are packed in {place}; larger ones without"
        " compression",
        bytes=size,
    )


@contextmanager
def opened_picture(path: Path | str, formats: tuple[str, ...]) -> "Iterator[Image.Image]":
    """Open a picture, whose head is read. Raises errors of Pillow, and ``ValueError``."""
    from PIL import Image

    # its own bound warns of pictures that are refused here, or are as large as their files
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    with opened(path) as file, Image.open(file, formats=formats) as image:
        most = _LEAST_PIXELS + _PIXELS * os.fstat(file.fileno()).st_size
        pixels = image.width * image.height
        require(pixels <= most, f"a picture of at most {most} pixels for its bytes", pixels=pixels)
        yield image


def read_parquet(path: Path) -> "pyarrow.Table":
    """Return the table of a parquet file. Raises errors of pyarrow, and ``ValueError``."""
    from pyarrow import Table, parquet

    with opened(path) as file, parquet.ParquetFile(file) as source:
        facts, size = source.metadata, os.fstat(file.fileno()).st_size
        cells, most = facts.num_rows * facts.num_columns, _LEAST_CELLS + _CELLS * size
        require(cells <= most, f"at most {most} cells for the bytes of {path}", cells=cells)
        groups = [facts.row_group(number).total_byte_size for number in range(facts.num_row_groups)]
        require_unpacked(sum(groups), size, path)
        batches, total = [], 0
        for batch in source.iter_batches(batch_size=256):
            total += batch.nbytes
            require_unpacked(total, size, path)
            batches.append(batch)
        return Table.from_batches(batches, source.schema_arrow)


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
        len(digits.lstrip("+-")) <= _MOST_DIGITS,
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


def load_json(path: Path, most: int = SMALL) -> Any:
    """Return the content of a file of JSON. Raises as `opened` and `read_json` do."""
    return read_json(read_bytes(path, most))


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may have been built without it


def read_yaml(text: str, what: str = "YAML") -> Any:
    """Return the content of a YAML text.

    Raises ``ValueError`` if it is not YAML of one document, or as `require_plain_yaml` does.
    """
    require_plain_yaml(text, what)
    with expecting(what, yaml.YAMLError, ValueError):
        documents = [*yaml.load_all(text, Loader=_LOADER)]
    require(len(documents) < 2, f"{what} of one document", documents=len(documents))
    return documents[0] if documents else None


def load_yaml(path: Path) -> Any:
    """Return the content of a file of YAML. Raises as `opened` and `read_yaml` do."""
    what = f"YAML in {path}"
    with expecting(what, UnicodeError):
        text = read_text(path)
    return read_yaml(text, what)


def require_plain_yaml(text: str, what: str = "YAML") -> None:
    """Raise ``ValueError`` unless a text is YAML of few levels and parts, and of distinct keys.

    Each alias counts as all that it stands for. Events are read before anything is built of them:
    the loader in C has no bound on its stack.
    """
    sizes: dict[str, int] = {}
    # the anchor, the size and, of a mapping, its plain keys and values of what is open
    open_parts: list[tuple[str | None, list[int], list[str | None] | None]] = [(None, [0], None)]
    with expecting(what, yaml.YAMLError):
        for event in yaml.parse(text, Loader=_LOADER):
            size, word = 1, None
            if isinstance(event, yaml.CollectionStartEvent):
                mapping = isinstance(event, yaml.MappingStartEvent)
                open_parts.append((event.anchor, [1], [] if mapping else None))
                require(len(open_parts) <= _DEEPEST, f"{what} of at most {_DEEPEST} levels")
                continue
            if isinstance(event, yaml.CollectionEndEvent):
                anchor, (size,), words = open_parts.pop()
                if words is not None:
                    require_distinct(f"settings of {what}", filter(None, words[::2]))
            elif isinstance(event, yaml.AliasEvent):
                assert event.anchor is not None
                require(event.anchor in sizes, f"{what} with each anchor before its aliases")
                anchor, size = None, sizes[event.anchor]
            elif isinstance(event, yaml.ScalarEvent):
                anchor, word = event.anchor, event.value
                if word[word.startswith(("+", "-")) :].isdecimal():
                    _whole_number(word)
                size += len(word) // _LETTERS
            else:
                continue
            if anchor is not None:
                sizes[anchor] = size
            _, total, words = open_parts[-1]
            total[0] += size
            require(total[0] <= _MOST_NODES, f"{what} of at most {_MOST_NODES} parts")
            if words is not None:
                words.append(word)


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
    check: Callable[[dict[str, Header]], None] | None = None,
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
        check: raises ``ValueError`` on shapes and types that no honest file has, before an array is
            read.
        what: a description of the file, for errors.

    Raises:
        ValueError: if the file is missing or damaged, holds pickled objects, lacks an array or has
            an unknown one.
    """
    require(path.is_file(), what, missing=str(path))
    with opened_archive(path, f"{what} in {path}") as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        require_known(f"arrays of {path}", members, [*required, *optional, *unread])
        missing = [name for name in required if name not in members]
        require(not missing, f"the arrays {', '.join(required)} in {path}", missing=missing)
        names = [name for name in (*required, *optional) if name in members]
        if check is not None:
            check({name: _header(archive, members[name]) for name in names})
        return {name: _array(archive, members[name], mapped=name in mapped) for name in names}


def unpacked(
    content: bytes, names: Sequence[str], *, what: str, most: int
) -> dict[str, NDArray[Any]]:
    """Return the arrays of the content of an ``.npz`` file, which has the ``names`` alone.

    Raises ``ValueError`` as `read_arrays` does, and if they hold more than ``most`` bytes.
    """
    with opened_archive(BytesIO(content), what) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        found = sorted(member.filename for member in members)
        require(found == sorted(f"{name}.npy" for name in names) and size <= most, what, bytes=size)
        return {
            name: _array(archive, archive.getinfo(f"{name}.npy"), mapped=False) for name in names
        }


@contextmanager
def opened_archive(file: Path | BytesIO, what: str) -> Iterator[ZipFile]:
    """Open a zip of few members.

    The many errors of one that is damaged, or becomes so while it is read, are ``ValueError``.
    """
    try:
        with opened(file) if isinstance(file, Path) else file as content:
            size = _require_few_members(content)
            with ZipFile(content) as archive:
                members = sum(member.file_size for member in archive.infolist())
                require_unpacked(members, size, "an archive")
                yield archive
    except (
        OSError,
        EOFError,
        KeyError,
        NotImplementedError,
        RuntimeError,
        BadZipFile,
        zlib.error,
        _DamagedError,
    ) as error:
        problem = error if isinstance(error, _DamagedError) else f"a damaged one ({error})"
        raise ValueError(f"Expected {what}, got {problem}") from None


def _require_few_members(file: IO[bytes]) -> int:
    """Return the size of an archive. Raise `_DamagedError` if its list of members fills memory."""
    if not is_zipfile(file):
        raise _DamagedError("another kind of file, or a truncated one")
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END))
    tail = file.read()
    end = tail.rfind(_END_RECORD)
    members = int.from_bytes(tail[end + 10 : end + 12], "little")
    if members > _MOST_MEMBERS or (tail[end - 20 : end - 16] == _ZIP64 and size < _SIZE_64):
        raise _DamagedError(f"an archive of more than {_MOST_MEMBERS} members")
    return size


class _DamagedError(ValueError):
    """An archive or array of an unknown kind, or one that does not match its header."""


def read_array(path: Path, *, what: str = "an .npy file of one plain array") -> NDArray[Any]:
    """Return the array of an ``.npy`` file. Raises ``ValueError`` as `read_arrays` does."""
    require(path.is_file(), what, missing=str(path))
    with expecting(f"{what} in {path}", _DamagedError), opened(path) as file:
        _require_fitting(file, os.fstat(file.fileno()).st_size, path.name)
        file.seek(0)
        return _content(file)


def map_array(path: Path, mode: Literal["r", "r+"] = "r") -> np.memmap[Any, np.dtype[Any]]:
    """Return the array of an ``.npy`` file without reading it. Raises ``ValueError`` on another."""
    array: np.memmap[Any, np.dtype[Any]] = np.load(regular(path), mmap_mode=mode)
    return array


def _header(archive: ZipFile, member: ZipInfo) -> Header:
    with archive.open(member) as file:
        return _require_fitting(file, member.file_size, member.filename)


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


def _require_fitting(file: IO[bytes], size: int, name: str) -> Header:
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
            with opened(part) as file:
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
    return f"{__version__}+{digest(*sorted(Path(__file__).parents[2].rglob('*.py')))}"


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
