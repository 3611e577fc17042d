"""Where the files of an exchange are: a shared folder, or a store that fsspec reaches.

The protocol needs three operations: put a file once, get a file, and tell which files are there.
Other parties write to the place too, so a size is compared with its bound before content is read,
and a request to a store has a time limit.
"""

import re
import secrets
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from textwrap import shorten
from threading import Thread
from typing import Any, TypeVar

from pate._core.files.reading import read_bytes
from pate._core.files.writing import output_errors, remove_abandoned, write_once
from pate._core.validation import AwaitedError, expecting, one_line, require

SECONDS = 60.0
"""How long a store may take to answer, and a step beyond the end of ``--wait``."""
_BYTES_PER_SECOND = 2**16  # of a slow line, for which a large file has more time
_MOST_LETTERS = 300  # of an error of a store
_CREATES = {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
"""Stores that take a file whole, and whose ``mode="create"`` refuses a second one."""
_Result = TypeVar("_Result")


class Folder:
    """A folder that all who take part can read and write.

    Args:
        root: the folder.
    """

    poll = 0.2

    def __init__(self, root: Path) -> None:
        self.root = root

    def __str__(self) -> str:
        return str(self.root)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.root.resolve().name

    def wait_until(self, end: float | None) -> None:
        """Do nothing: a folder answers at once."""

    def present(self, paths: Collection[str]) -> set[str]:
        """Return the ``paths`` that are files."""
        return {path for path in paths if self._is_there(path)}

    def get(self, path: str, most: int) -> bytes:
        """Return the content of a file of at most ``most`` bytes.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if it is larger, or cannot be read.
        """
        place = self.root / path
        if not self._is_there(path):
            raise FileNotFoundError(place)
        try:
            return read_bytes(place, most)
        except OSError as error:
            raise ValueError(f"Expected {place} that can be read ({error.strerror})") from None

    def put(self, path: str, content: bytes) -> None:
        """Write a file unless there is one. Raises ``ValueError`` where it cannot be written."""
        place = self.root / path
        with output_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(place)
            if not self._is_there(path):
                write_once(place, content)

    def _is_there(self, path: str) -> bool:
        """Whether there is a file. Raises ``ValueError`` where anything else is in its place."""
        place = self.root / path
        there = place.exists()
        _require_regular(not there or place.is_file(), place)
        return there


class Store:
    """A store that fsspec reaches, such as a bucket or a server of SFTP or WebDAV.

    Its package and fsspec's own configuration have its credentials and other settings. A request
    that the store does not answer, or answers by an error that may pass, raises `AwaitedError`,
    with the store's words.

    Args:
        url: the address.

    Raises:
        ValueError: if the address is no store's, or the package for it is missing.
    """

    poll = 2.0

    def __init__(self, url: str) -> None:
        self._url = url
        self._end: float | None = None
        protocol = url.partition("://")[0]
        wanted = "an exchange in a folder or at one URL that fsspec reaches"
        require("::" not in url, wanted, exchange=str(self))
        with expecting("the package fsspec", ImportError, got="none: pip install 'pate[silos]'"):
            import fsspec
        try:
            protocols = fsspec.get_filesystem_class(protocol).protocol
        except (ValueError, ImportError) as error:
            raise ValueError(f"Expected {wanted}, got {self} ({one_line(str(error))})") from None
        names = [protocols] if isinstance(protocols, str) else protocols
        self._creates = bool(_CREATES.intersection([protocol, *names]))

    def __str__(self) -> str:
        # without a password, nor the signature of a query
        return re.sub(r"//.*@", "//", self._url.partition("?")[0]).rstrip("/")

    @property
    def name(self) -> str:
        """The last part of its address."""
        return str(self).rpartition("/")[2]

    def wait_until(self, end: float | None) -> None:
        """Let requests last until `SECONDS` after ``end`` at most, on the clock of `monotonic`."""
        self._end = None if end is None else end + SECONDS

    def present(self, paths: Collection[str]) -> set[str]:
        """Return the ``paths`` that are there, all of one folder."""
        (folder,) = {PurePosixPath(path).parent.as_posix() for path in paths}
        try:
            listed = self._ask(
                lambda files, root: files.ls(f"{root}/{folder}".removesuffix("/."), detail=False)
            )
        except FileNotFoundError:
            return set()
        names = {str(each).rstrip("/").rpartition("/")[2] for each in listed}
        return {path for path in paths if PurePosixPath(path).name in names}

    def get(self, path: str, most: int) -> bytes:
        """Return the content of a file of at most ``most`` bytes, as `Folder.get` does."""
        size = self._ask(lambda files, root: files.info(f"{root}/{path}")["size"])
        _require_size(size, most, f"{self}/{path}")
        content: bytes = self._ask(
            # of an empty file no store gives a part
            lambda files, root: (
                files.cat_file(f"{root}/{path}", start=0, end=size) if size else b""
            ),
            size,
        )
        _require_size(len(content), most, f"{self}/{path}")
        return content

    def put(self, path: str, content: bytes) -> None:
        """Write a file whole, unless there is one.

        Where the store has no ``mode="create"``, two parties that write at the same time may both
        succeed, and the last one's file stays. So a writer reads its file afterwards.
        """

        def write(files: Any, root: str) -> None:
            place = f"{root}/{path}"
            with suppress(FileNotFoundError):  # `exists` is false after any other error, too
                files.info(place)
                return
            with suppress(FileExistsError):
                if self._creates:
                    files.pipe_file(place, content, mode="create")
                    return
                files.makedirs(place.rpartition("/")[0], exist_ok=True)
                draft = f"{place}.{secrets.token_hex(8)}"  # no reader sees half a file
                files.pipe_file(draft, content)
                files.mv(draft, place)

        self._ask(write, len(content))

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        import fsspec.core

        files, root = fsspec.core.url_to_fs(self._url, skip_instance_cache=True)
        return files, str(root).rstrip("/")

    def _ask(self, request: Callable[[Any, str], _Result], size: int = 0) -> _Result:
        """Return the store's answer, which is waited for in a thread that may be left behind.

        The request gets the file system and the path of the exchange in it.
        """
        seconds = SECONDS + size / _BYTES_PER_SECOND
        if self._end is not None:
            seconds = max(0.0, min(seconds, self._end - time.monotonic()))
        answer: Future[_Result] = Future()

        def work() -> None:
            try:
                files, root = self._opened
                files.invalidate_cache()  # others write, too
                answer.set_result(request(files, root))
            except BaseException as error:
                answer.set_exception(error)

        Thread(target=work, daemon=True).start()
        try:
            return answer.result(seconds)
        except FileNotFoundError:
            raise
        except TimeoutError:
            raise AwaitedError(f"{self}, which did not answer in {seconds:.0f} seconds") from None
        except Exception as error:  # of the packages of all stores
            words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            said = shorten(one_line(words), _MOST_LETTERS)
            if isinstance(error, PermissionError | NotImplementedError | TypeError | ImportError):
                raise ValueError(
                    f"Expected a store where files can be listed, read and written, got {self}"
                    f" ({said})"
                ) from None
            raise AwaitedError(f"{self} ({said})") from None


def place_of(where: str | Path) -> Folder | Store:
    """Return the folder or the store that a path or a URL names.

    Raises ``ValueError`` as `Store` does.
    """
    protocol, separator, path = str(where).partition("://")
    if not separator or isinstance(where, Path):
        return Folder(Path(where))
    return Folder(Path(path)) if protocol in ("file", "local") else Store(str(where))


def _require_regular(is_regular: bool, place: Path) -> None:
    require(is_regular, f"a regular file at {place}, which another party may have put there")


def _require_size(size: object, most: int, place: str) -> None:
    require(
        isinstance(size, int) and 0 <= size <= most,
        f"a file of at most {most} bytes at {place}",
        bytes=size,
    )
