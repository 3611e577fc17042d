"""How far jobs in other processes are, told by small files that they write now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

Report = Callable[[int], object]
"""Is told how many steps more are done."""
ProgressFile = Callable[[range], Path]
"""Names the file that a chunk's job tells its steps in."""

_SECONDS = 1.0


class Tally:
    """Tells of the steps of jobs as they are done, in whatever process. A context manager.

    Args:
        report: is told of steps, from one thread at a time, never of fewer than before.
        chunks: the teachers of the chunks that are worked on.
        steps: steps of a job.
        file: names the file of a chunk, on a disk that the workers share; None where jobs tell at their end alone.
    """

    def __init__(self, report: Report, chunks: Sequence[range], steps: int, file: ProgressFile | None) -> None:
        self._report, self._steps, self._file = report, steps, file
        self._running = set(chunks)
        self._finished, self._told = 0, 0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Tally:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join()
        self._forget(self._running)

    def finish(self, teachers: range) -> None:
        """Count the job of a chunk as done; a second time changes nothing."""
        with self._lock:
            if teachers in self._running:
                self._running.remove(teachers)
                self._finished += self._steps
                self._forget({teachers})
                self._tell()

    def _watch(self) -> None:
        while not self._end.wait(_SECONDS):
            with self._lock:
                self._tell()

    def _tell(self) -> None:
        total = self._finished + sum(map(self._steps_of, self._running))
        # a job that lost its worker goes on from an earlier step
        if total > self._told:
            self._report(total - self._told)
            self._told = total

    def _steps_of(self, teachers: range) -> int:
        if self._file is None:
            return 0
        try:
            return min(int(self._file(teachers).read_text()), self._steps)
        except (OSError, ValueError):  # none yet, replaced on a shared disk, or in the middle of being written
            return 0

    def _forget(self, chunks: set[range]) -> None:
        if self._file is not None:
            for teachers in chunks:
                self._file(teachers).unlink(missing_ok=True)


def telling(path: Path | None) -> Report:
    """Return a report that writes a job's steps to ``path`` about once a second; one that does nothing for None."""
    if path is None:
        return lambda steps: None
    done, written = 0, time.monotonic()

    def report(steps: int) -> None:
        nonlocal done, written
        done += steps
        if time.monotonic() > written + _SECONDS:
            path.write_text(str(done))
            written = time.monotonic()

    return report
