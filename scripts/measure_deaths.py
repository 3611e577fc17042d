"""How long the chunk of a killed worker waits, and the delay of its stage, as Markdown.

python scripts/measure_deaths.py [--deaths 20] [--chunks 12] [--seconds 5]

Three processes, which come one after the other, share the chunks by leases, as in `pate teachers
fit --shared true`. Work on a chunk is a pause, so that a busy machine does not change
the figures, and leaves no checkpoint: all that a killed worker did on its chunk is lost. At a
random moment of the stage one of the three is killed (SIGKILL). Times are in units of a chunk's.
"""

import argparse
import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pate.teachers import ChunkJob, Execution, run_jobs

_WORKERS = 3
_STARTED = 0.5  # seconds in which a process starts
_AT_A_TIME = 5
_MEASURES = (
    "waited for a worker",
    "ended later than without the death",
    "ended later than if nothing were lost",
)
_context = multiprocessing.get_context("forkserver")


class Outcome(NamedTuple):
    """The cost of a death, in units of a chunk's time."""

    waited: float
    later: float
    beyond: float


@dataclass(frozen=True)
class Pause(ChunkJob):
    """Waits for some seconds in each chunk, and notes when which process began."""

    folder: Path
    seconds: float
    num_steps = 1

    def is_done(self, teachers: range) -> bool:  # noqa: D102
        return (self.folder / f"{teachers.start}.done").exists()

    def lease_file(self, teachers: range) -> Path:  # noqa: D102
        return self.folder / f"{teachers.start}.lease"

    def work(self, teachers: range, report: Callable[[int], object]) -> None:  # noqa: D102
        process = multiprocessing.current_process()
        _note(self.folder / f"{teachers.start}.{process.pid}.begun")
        time.sleep(self.seconds)
        _note(self.folder / f"{teachers.start}.done")
        report(self.num_steps)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deaths", type=int, default=20, help="number of deaths for each row")
    parser.add_argument("--chunks", type=int, default=12, help="number of chunks of the stage")
    parser.add_argument("--seconds", type=float, default=5.0, help="time that a chunk takes")
    options = parser.parse_args(arguments)
    _context.set_forkserver_preload(["pate._networks.teachers.executors"])
    print(f"| the killed worker | {' | '.join(_MEASURES)} |\n|{'---|' * (1 + len(_MEASURES))}")
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        for title, replaced in (("is not replaced", False), ("is started again at once", True)):
            way = partial(measure, options.chunks, options.seconds, replaced)
            outcomes = list(threads.map(way, range(options.deaths)))
            cells = [
                f"{median(times):.2f}, at most {max(times):.2f}"
                for times in zip(*outcomes, strict=True)
            ]
            print(f"| {title} | {' | '.join(cells)} |", flush=True)


def measure(chunks: int, seconds: float, replaced: bool, seed: int) -> Outcome:
    """Run a stage without a death, and again with one."""
    generator = random.Random(seed)
    delays = [0.0, *(generator.uniform(0, seconds) for _ in range(_WORKERS - 1))]
    moment = generator.uniform(max(delays) + _STARTED, chunks // _WORKERS * seconds - _STARTED)
    victim = generator.randrange(_WORKERS)
    with TemporaryDirectory() as folder:
        job = Pause(Path(folder), seconds)
        workers = [start(job, chunks, delay) for delay in delays]
        undisturbed = _length(job, workers)
    with TemporaryDirectory() as folder:
        job = Pause(Path(folder), seconds)
        workers = [start(job, chunks, delay) for delay in delays]
        while not (begun := _begun(job)):
            time.sleep(0.01)
        time.sleep(max(0.0, min(begun.values()) + moment - time.monotonic()))
        workers[victim].kill()
        workers[victim].join()
        death = time.monotonic()
        if replaced:
            workers.append(start(job, chunks, 0.0))
        length = _length(job, workers)
        begun, first = _begun(job), min(_begun(job).values())
        done = {
            teachers: float((job.folder / f"{teachers}.done").read_text())
            for teachers in range(chunks)
        }
    lost = [
        teachers for teachers, pid in begun if pid == workers[victim].pid and done[teachers] > death
    ]
    again = [
        begun[teachers, pid]
        for teachers, pid in begun
        if teachers in lost and pid != workers[victim].pid
    ]
    assert len(lost) == len(again) == 1, "the worker was killed between two chunks"
    work_done = sum(min(death - moment, seconds) for moment in begun.values() if moment < death)
    left = (chunks * seconds - work_done) / (_WORKERS if replaced else _WORKERS - 1)
    return Outcome(
        (again[0] - death) / seconds,
        (length - undisturbed) / seconds,
        (length - (death - first) - left) / seconds,
    )


def start(job: Pause, chunks: int, delay: float) -> Any:
    """Start a worker after ``delay`` seconds."""
    worker = _context.Process(target=share, args=(job, chunks, delay))
    worker.start()
    return worker


def share(job: Pause, chunks: int, delay: float) -> None:
    """Work on chunks together with others."""
    time.sleep(delay)
    run_jobs(
        job,
        [range(start, start + 1) for start in range(chunks)],
        Execution(shared=True),
        lambda steps: None,
    )


def _length(job: Pause, workers: Sequence[Any]) -> float:
    """Return the time of a stage from its first chunk's beginning to its last one's end."""
    for worker in workers:
        worker.join()
    last = max(float(path.read_text()) for path in job.folder.glob("*.done"))
    return last - min(_begun(job).values())


def _begun(job: Pause) -> dict[tuple[int, int], float]:
    """Return when each process began each chunk, by chunk and process."""
    paths = job.folder.glob("*.begun")
    return {
        (int(path.name.split(".")[0]), int(path.name.split(".")[1])): float(path.read_text())
        for path in paths
    }


def _note(path: Path) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(str(time.monotonic()))
    draft.rename(path)


if __name__ == "__main__":
    main()
