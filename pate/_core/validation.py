"""Types of arrays, and all that users are told: errors in one line, and progress.

Errors are of input, and of the machine. A stage has one bar in a terminal, and a line each minute
elsewhere.
"""

import errno
import math
import os
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from threading import Event, RLock, Thread
from traceback import extract_tb
from typing import Any, TypeAlias, TypeVar
from unicodedata import category

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

BoolArray: TypeAlias = NDArray[np.bool_]
UInt8Array: TypeAlias = NDArray[np.uint8]
Rows: TypeAlias = NDArray[np.number]
"""Scores of any integer or floating-point type."""
IntArray: TypeAlias = NDArray[np.int64]
Float32Array: TypeAlias = NDArray[np.float32]
FloatArray: TypeAlias = NDArray[np.float64]
StrArray: TypeAlias = NDArray[np.str_]
Given = TypeVar("Given")

UNKNOWN = 255
"""The entry of labels in {0, 1} where a label is unknown."""
LARGEST = np.finfo(np.float32).max
"""The bound of features, on either side."""
MOST_VOTERS = 1 << 23
"""The largest number of voters with exact sums, and the nominal one if their number is private."""

_MOST_LETTERS = 1000  # of a label's name
_UNSHOWN = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories of control characters, surrogates, line and paragraph separators."""


_MOST_FAULTS = 20
_LONGEST_REASON = 1000  # letters: torch lists all weights of a network


class AwaitedError(Exception):
    """Another participant must send something first, which the message names."""


class InputError(ValueError):
    """The faults of one input, each an argument and a line of the message."""

    def __str__(self) -> str:
        return "\n".join(self.args)


class Faults:
    """The faults of one input, gathered so that its author reads all of them at once.

    >>> faults = Faults()
    >>> with faults.gather():
    ...     require(False, "a number", value="x")
    >>> faults.lines
    ["Expected a number, got value='x'"]
    """

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def gather(
        self, errors: type[Exception] | tuple[type[Exception], ...] = ValueError
    ) -> Iterator[None]:
        """Keep ``errors`` of the block instead of raising them."""
        try:
            yield
        except errors as error:
            self.lines += error.args if isinstance(error, InputError) else [str(error)]

    def require(self, condition: object, requirement: str, **got: Any) -> None:
        """Keep the error of `require`, if there is one."""
        with self.gather():
            require(condition, requirement, **got)

    def refuse(self) -> None:
        """Raise an `InputError` with all faults, if there are any."""
        if self.lines:
            more = len(self.lines) - _MOST_FAULTS
            rest = [f"{more} more faults"] if more > 0 else []
            raise InputError(*self.lines[:_MOST_FAULTS], *rest)


def require(condition: object, requirement: str, **got: Any) -> None:
    """Raise ``ValueError("Expected <requirement>, got name=value")`` unless ``condition`` holds.

    Without values there is no ``, got``.

    >>> require(2 > 1, "x > 1", x=2)
    """
    if not condition:
        # show 40, not np.int64(40)
        values = ", ".join(
            f"{name}={value.item() if isinstance(value, np.generic) else value!r}"
            for name, value in got.items()
        )
        raise ValueError(f"Expected {requirement}" + (f", got {values}" if values else ""))


@contextmanager
def expecting(requirement: str, *errors: type[Exception], got: object = None) -> Iterator[None]:
    """Turn ``errors`` of the block into ``ValueError("Expected <requirement>, got <error>")``.

    With ``got`` the error stands in brackets behind it.

    >>> with expecting("a number", ValueError):
    ...     float("x")
    Traceback (most recent call last):
    ValueError: Expected a number, got could not convert string to float: 'x'
    """
    try:
        yield
    except errors as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
        values = reason if got is None else f"{got} ({reason})"
        raise ValueError(f"Expected {requirement}, got {values}") from None


@contextmanager
def naming_own_faults(what: str, *places: Path) -> Iterator[None]:
    """Turn an error of a user's own code, below ``places``, into a ``ValueError`` in one line.

    The line has the error's type, its text and its place. Errors of input and of the machine stay.
    """
    try:
        yield
    except (ValueError, OSError, MemoryError, ImportError):
        raise
    except Exception as error:
        own = [
            frame
            for frame in extract_tb(error.__traceback__)
            if any(Path(frame.filename).is_relative_to(place) for place in places)
        ]
        if not own:
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON]
        raise ValueError(
            f"Expected {what}, got {said} ({own[-1].filename}, line {own[-1].lineno})"
        ) from error


def require_given(value: Given | None, requirement: str, **got: Any) -> Given:
    """Return ``value``; raise ``ValueError`` as `require` does where it is None.

    >>> require_given(2, "x")
    2
    """
    require(value is not None, requirement, **got)
    assert value is not None
    return value


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that many share and none can change."""
    array.setflags(write=False)
    return array


def given(**values: Any) -> dict[str, Any]:
    """Return the values that are not None, for a check of optional ones.

    >>> given(k=2, kbar=None)
    {'k': 2}
    """
    return {name: value for name, value in values.items() if value is not None}


def require_positive(**values: float) -> None:
    """Raise ``ValueError`` unless each value is a finite number above zero.

    >>> require_positive(sigma=2.0)
    """
    for name, value in values.items():
        require(is_real(value) and value > 0, f"{name} > 0", **{name: value})


def require_not_negative(**values: float) -> None:
    """Raise ``ValueError`` unless each value is a finite number, and none is below zero.

    >>> require_not_negative(min_lead=0.0)
    """
    for name, value in values.items():
        require(is_real(value) and value >= 0, f"{name} >= 0", **{name: value})


def require_flag(**values: bool) -> None:
    """Raise ``ValueError`` unless each value is True or False.

    >>> require_flag(soft=True)
    """
    for name, value in values.items():
        require(isinstance(value, bool | np.bool_), f"{name} True or False", **{name: value})


def require_in_open_unit_interval(**values: float) -> None:
    """Raise ``ValueError`` unless each value lies strictly between 0 and 1.

    >>> require_in_open_unit_interval(delta=1e-6)
    """
    for name, value in values.items():
        require(is_real(value) and 0 < value < 1, f"0 < {name} < 1", **{name: value})


def require_count(minimum: int, **values: float) -> None:
    """Raise ``ValueError`` unless each value is an integer of at least ``minimum``.

    >>> require_count(1, num_labels=4)
    """
    for name, value in values.items():
        integer = isinstance(value, int) or (hasattr(value, "dtype") and value.dtype.kind in "iu")
        enough = integer and not isinstance(value, bool) and value >= minimum
        require(enough, f"an integer {name} >= {minimum}", **{name: value})


def as_float32(values: ArrayLike) -> Float32Array:
    """Return numbers as float32; finite ones beyond its range as its largest, 3.4e38.

    A record that holds one must not make a run fail.

    >>> as_float32([0.5, -1e39, np.inf])
    array([ 5.0000000e-01, -3.4028235e+38,            inf], dtype=float32)
    """
    given = np.asarray(values)
    if given.dtype == np.float32:
        return given
    wide = given if given.dtype.kind in "biuf" else given.astype(np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    beyond = np.isinf(narrow)
    if beyond.any():
        beyond &= np.isfinite(wide)
        narrow[beyond] = np.copysign(LARGEST, wide[beyond])
    return narrow


def require_format(expected: int, found: object, place: object) -> None:
    """Raise ``ValueError`` unless a file has the one format that this version reads and writes.

    >>> require_format(1, 1, "privacy.json")
    """
    require(
        type(found) is int and found == expected,
        f"format {expected} in {place}, which another version of pate may have written",
        format=found,
    )


def require_label_names(what: str, names: Iterable[str]) -> None:
    """Raise ``ValueError`` on a repeated name, or one that files, tables and reports cannot show.

    >>> require_label_names("label names", ["cat", "dog"])
    """
    listed = list(names)
    for name in listed:
        require(
            name.strip() and len(name) <= _MOST_LETTERS,
            f"{what} of 1 to {_MOST_LETTERS} characters",
            name=name[:80],
            characters=len(name),
        )
        require(
            not any(category(sign) in _UNSHOWN for sign in name),
            f"{what} without control characters, line breaks and lone surrogates",
            name=name,
        )
    require_distinct(what, listed)


def require_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``ValueError`` on an unknown name, such as a misspelled one.

    >>> require_known("keys", ["data"], ["data", "ledger"])
    """
    listed = list(known)
    for name in sorted(set(names) - set(listed)):
        raise ValueError(
            f"Expected {what} among {', '.join(listed)}, got {name}{did_you_mean(name, listed)}"
        )


def require_distinct(what: str, values: Iterable[Hashable]) -> None:
    """Raise ``ValueError`` if a value occurs twice.

    >>> require_distinct("ids", ["a", "b"])
    """
    twice = [value for value, times in Counter(values).items() if times > 1]
    require(not twice, f"{what} that occur once", twice=twice[:3])


def one_line(message: str) -> str:
    r"""Return a message with escapes in place of line breaks and other unprintable characters.

    >>> print(one_line("no such file: a" + chr(10) + "b"))
    no such file: a\nb
    """
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in message
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question that suggests the closest name to ``word``; empty if none is close."""
    listed = sorted(name for name in set(known) if not name.endswith(".help"))
    # an abbreviation is likelier than a misspelling
    close = [name for name in listed if name.startswith(word)][:3] or get_close_matches(
        word, listed, n=1
    )
    return f"; did you mean {' or '.join(close)}?" if close else ""


def is_real(value: object) -> bool:
    """Return whether a value is a finite number, and no truth value."""
    try:
        return math.isfinite(value) and not isinstance(value, bool)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return False


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


owner_reads = ContextVar("owner_reads", default=False)
"""Whether only the owner of the private data reads the screen, as ``--owner`` says."""

_PAUSE = 60.0  # seconds between two lines
_LINE = "{desc}: {n_fmt} of {total_fmt} {unit}s in {elapsed}, {remaining} to go"
_UNCOUNTED_LINE = "{desc}: {elapsed}"
_UNCOUNTED_BAR = "{desc}: |{bar}| {elapsed}"


def _has_width() -> bool:
    """Return whether the terminal reports a width. A bar of width 0 would be empty."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except OSError:
        return False


class _Bar(tqdm):  # type: ignore[misc,unused-ignore]
    """A bar without tqdm's monitor thread, which prints a message if an interrupt meets its start.

    The monitor only lowers ``miniters``, so that bars of this kind are made with 1.
    """

    monitor_interval = 0

    def __del__(self) -> None:
        """Do nothing: ``with`` closes bars, and tqdm fails on half-made ones."""


# tqdm's own lock is shared with forked processes: one that was killed would hold it forever
_Bar.set_lock(RLock())


class _Lines:
    """A file that turns each drawing of a bar into a line of stderr."""

    def write(self, text: str) -> None:
        if line := text.strip():
            sys.stderr.write(f"{line}\n")

    def flush(self) -> None:
        sys.stderr.flush()


def stage_bar(
    total: int | None,
    name: str,
    *,
    unit: str,
    initial: int = 0,
    counted: bool = True,
    shown: bool = True,
    patient: bool = False,
) -> Any:
    """Return the bar of a stage, for a ``with`` statement with a call of ``update`` for each unit.

    Unless stderr is a terminal, nothing is printed in the first minute, and one line a minute
    after that.

    Args:
        total: number of units, None if it is not known.
        name: the name of the work.
        unit: the word for a unit. Its plural ends with ``s``.
        initial: number of units done before.
        counted: whether numbers of units may be printed; the number of private records may not.
        shown: whether anything is printed at all.
        patient: whether a terminal shows nothing in the first minute either.
    """
    options: dict[str, Any] = {
        "total": total,
        "desc": name,
        "unit": unit,
        "initial": initial,
        "miniters": 1,
        "disable": not shown,
    }
    if patient:
        options["delay"] = _PAUSE
    if sys.stderr is not None and sys.stderr.isatty():
        return _Bar(
            **options,
            dynamic_ncols=_has_width(),
            **({} if counted else {"bar_format": _UNCOUNTED_BAR}),
        )
    return _Bar(
        **(options | {"delay": _PAUSE}),
        file=_Lines(),
        bar_format=_LINE if counted else _UNCOUNTED_LINE,
        mininterval=_PAUSE,
    )


@contextmanager
def step_bar(total: int, name: str, *, unit: str = "step") -> Iterator[Any]:
    """Open the bar of a stage with few steps, refreshed each minute however long a step takes."""
    with stage_bar(total, name, unit=unit, patient=True) as bar:
        ended = Event()

        def tell() -> None:
            while not ended.wait(_PAUSE):
                bar.refresh()

        teller = Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield bar
        finally:
            ended.set()
            teller.join()
