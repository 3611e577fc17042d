"""Progress of jobs in other processes, which they write to small files now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from pate.teachers.jobs import ChunkJob, Report

_SECONDS = 1.0


class Progress:
    """A context manager that reports the steps of a job as they are done, in any process.

    Args:
        report: called with further steps, from one thread at a time; the total never falls.
        job: the job, which knows the steps of a chunk and the file of its progress.
        chunks: the teachers of the chunks that are worked on.
    """

    def __init__(self, report: Report, job: ChunkJob, chunks: Sequence[range]) -> None:
        self._report, self._job = report, job
        self._running = set(chunks)
        self._finished, self._told = 0, 0
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
        """Count the work on a chunk as done; repeating this changes nothing."""
        with self._lock:
            if teachers in self._running:
                self._running.remove(teachers)
                self._finished += self._job.num_steps
                forget_steps(self._job, [teachers])
                self._tell()

    def _watch(self) -> None:
        while not self._end.wait(_SECONDS):
            with self._lock:
                self._tell()

    def _tell(self) -> None:
        total = self._finished + sum(map(self._steps_of, self._running))
        # work whose worker was lost continues from an earlier step
        if total > self._told:
            self._report(total - self._told)
            self._told = total

    def _steps_of(self, teachers: range) -> int:
        path = self._job.steps_file(teachers)
        try:
            return min(int(path.read_text()), self._job.num_steps) if path else 0
        except (OSError, ValueError):  # none yet, replaced on a shared disk, or in the middle of being written
            return 0


def forget_steps(job: ChunkJob, chunks: Iterable[range]) -> None:
    """Delete the files of progress of ``chunks``."""
    for teachers in chunks:
        if path := job.steps_file(teachers):
            path.unlink(missing_ok=True)


def steps_writer(path: Path | None) -> Report:
    """Return a report that writes the steps so far to ``path`` about once a second; it writes nothing for None."""
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
