"""Jobs on chunks of teachers: each leaves one file, wherever it runs.

An `Execution` chooses the place, and does not affect results. Processes that work on a chunk write
down their steps, so that one bar shows the progress of all.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Self

Report = Callable[[int], object]
"""Called with the number of further steps that are done."""


class ChunkJob(ABC):
    """Work to be done for each of many chunks of teachers; picklable.

    The work on a chunk writes a file, and can safely be repeated if it was lost halfway.
    """

    public: ClassVar[bool] = False
    """Whether the job's large arrays are public, and may lie in a file that workers map."""

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """The total number of steps that the work on one chunk reports."""

    @abstractmethod
    def is_done(self, teachers: range) -> bool:
        """Whether the file of a chunk exists."""

    @abstractmethod
    def work(self, teachers: range, report: Report) -> None:
        """Work on the chunk of ``teachers``, write its file and ``report`` its steps."""

    def only(self, teachers: range) -> Self:
        """Return the job with only the data for one chunk, to be sent to a worker."""
        return self

    def lease_file(self, teachers: range) -> Path | None:
        """Return the file that names the process at work on a chunk. None if it is not shared."""
        return None

    def steps_file(self, teachers: range) -> Path | None:
        """Return the file for the progress on a chunk. None if it is told only at the end."""
        return None


_SECONDS = 1.0


class Progress:
    """Reports the steps of a job as they are done, in whatever process. A context manager.

    Args:
        report: called with further steps, from one thread at a time.
        job: the job, which knows how many steps a chunk takes and where they are written.
        chunks: the teachers of each unfinished chunk.
    """

    def __init__(self, report: Report, job: ChunkJob, chunks: Sequence[range]) -> None:
        self._report, self._job = report, job
        self._running = set(chunks)
        self._finished, self._reported = 0, 0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join()
        forget_steps(self._job, self._running)

    def finish(self, teachers: range) -> None:
        """Count a chunk as done, once."""
        with self._lock:
            if teachers in self._running:
                self._running.remove(teachers)
                self._finished += self._job.num_steps
                forget_steps(self._job, [teachers])
                self._update()

    def _watch(self) -> None:
        while not self._end.wait(_SECONDS):
            with self._lock:
                self._update()

    def _update(self) -> None:
        total = self._finished + sum(map(self._steps_of, self._running))
        # a lost worker's chunk resumes from an earlier step
        if total > self._reported:
            self._report(total - self._reported)
            self._reported = total

    def _steps_of(self, teachers: range) -> int:
        path = self._job.steps_file(teachers)
        try:
            return min(int(path.read_text()), self._job.num_steps) if path else 0
        except (
            OSError,
            ValueError,
        ):  # none yet, replaced on a shared disk, or in the middle of being written
            return 0


def forget_steps(job: ChunkJob, chunks: Iterable[range]) -> None:
    """Delete the step counts written for ``chunks``."""
    for teachers in chunks:
        if path := job.steps_file(teachers):
            path.unlink(missing_ok=True)


def steps_writer(path: Path | None) -> Report:
    """Return a report that writes the steps so far to ``path``, if any, about once a second."""
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
