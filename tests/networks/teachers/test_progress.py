"""Steps of jobs in other processes, as they are told of."""

import threading
from pathlib import Path

import pytest

from pate._networks.teachers import executors
from pate._networks.teachers.executors import Progress, Report
from pate.teachers import ChunkJob

CHUNKS = [range(2), range(2, 4), range(4, 5)]


class Job(ChunkJob):
    """Ten steps a chunk, told in ``folder``."""

    num_steps = 10

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def is_done(self, teachers: range) -> bool:
        return False

    def work(self, teachers: range, report: Report) -> None:
        raise NotImplementedError

    def steps_file(self, teachers: range) -> Path | None:
        return self.folder and self.folder / str(teachers.start)


class Told:
    """Keeps what it is told, and lets others wait for it."""

    def __init__(self) -> None:
        self.total = 0
        self._more = threading.Condition()

    def __call__(self, steps: int) -> None:
        assert steps > 0
        with self._more:
            self.total += steps
            self._more.notify_all()

    def reaches(self, total: int) -> bool:
        with self._more:
            return self._more.wait_for(lambda: self.total >= total, timeout=20)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(executors, "_SECONDS", 0.01)
    return tmp_path


def test_steps_are_told_while_jobs_work(folder: Path) -> None:
    told = Told()
    with Progress(told, Job(folder), CHUNKS) as counts:
        (folder / "0").write_text("4")
        assert told.reaches(4)
        (folder / "2").write_text("3")
        assert told.reaches(7)
        (folder / "0").write_text("2")  # its worker was lost
        (folder / "2").write_text("")  # in the middle of being written
        counts.finish(CHUNKS[2])
        assert told.reaches(12)
        for chunk in CHUNKS:
            counts.finish(chunk)
        counts.finish(CHUNKS[0])
    assert told.total == 30
    assert not list(folder.iterdir())


def interrupted(told: Told, folder: Path) -> None:
    with Progress(told, Job(folder), CHUNKS):
        (folder / "0").write_text("12345")
        assert told.reaches(10)
        raise KeyboardInterrupt


def test_what_is_unfinished_leaves_no_file(folder: Path) -> None:
    told = Told()
    with pytest.raises(KeyboardInterrupt):
        interrupted(told, folder)
    assert told.total == 10
    assert not list(folder.iterdir())
