"""One command at a time writes a run, whatever becomes of the command."""

import fcntl
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pate._core.files.writing import LOCK, lease, lock_run, release_locks


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    yield
    release_locks()


class Other:
    """Another process that has locked a run."""

    def __init__(self, root: Path) -> None:
        script = (
            "import sys\nfrom pathlib import Path\nfrom pate._core.files.writing import lock_run, release_locks\n"
            f"lock_run(Path({str(root)!r}))\nprint('locked', flush=True)\n"
            "sys.stdin.read()\nrelease_locks()\n"
        )
        words = [sys.executable, "-c", script, "run", "configs/faces"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if said != "locked\n":
            self.end()
            raise AssertionError(f"the other process says {said!r}")

    def end(self) -> None:
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_second_process_is_told_who_has_it(tmp_path: Path) -> None:
    root = tmp_path / "run"
    other = Other(root)
    with pytest.raises(ValueError, match="a run that no other process writes") as raised:
        lock_run(root)
    who = f"got {root} in use by process {other.process.pid} on {socket.gethostname()} (pate run configs/faces)"
    assert str(raised.value).endswith(who) and "\n" not in str(raised.value)
    other.end()
    assert not root.exists()
    lock_run(root)
    assert (root / LOCK).is_file()


def test_a_killed_process_locks_nothing(tmp_path: Path) -> None:
    other = Other(tmp_path)
    other.kill()
    assert (tmp_path / LOCK).is_file()
    lock_run(tmp_path)
    release_locks()
    assert not (tmp_path / LOCK).exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        ValueError, match=r"a run's folder that can be written, got .*file/run \(Not a directory\)"
    ):
        lock_run(tmp_path / "file" / "run")


def test_drafts_of_a_command_that_was_killed_go(tmp_path: Path) -> None:
    drafts = [
        tmp_path / name
        for name in ("private/label/.5e.json.0123456789abcdef", "public/.probe.0123456789abcdef")
    ]
    kept = [tmp_path / name for name in ("public/.hidden", "a.b")]
    for path in drafts + kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    (tmp_path / "public/.model.0123456789abcdef").mkdir()
    lock_run(tmp_path)
    assert sorted(
        path for path in tmp_path.rglob("*") if path.is_file() and path.name != LOCK
    ) == sorted(kept)
    assert not (tmp_path / "public/.model.0123456789abcdef").exists()


@pytest.mark.parametrize("blocked", [False, True])
def test_a_lease_that_ends_while_it_is_asked_for_is_free(
    blocked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder deletes the file just before, or just after, the lock is tried."""
    flock, path = fcntl.flock, tmp_path / "lease"

    def release(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()
        if blocked:
            raise BlockingIOError

    monkeypatch.setattr(fcntl, "flock", release)
    with lease(path):
        assert path.is_file()
    assert not path.exists()
