"""The progress of a stage: one bar in a terminal, and a line each minute elsewhere."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event, RLock, Thread
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

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
