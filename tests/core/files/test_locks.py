"""One command at a time writes a run, whatever becomes of the command."""

import errno
import fcntl
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pate._core.files.writing import LOCK, atomic_write, lease, locked


class Other:
    """Another process that has locked a run."""

    def __init__(self, root: Path) -> None:
        script = (
            "import sys\nfrom pathlib import Path\nfrom pate._core.files.writing import locked\n"
            f"with locked(Path({str(root)!r})):\n    print('locked', flush=True)\n    sys.stdin.read()\n"
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
    with (
        pytest.raises(ValueError, match="a run that no other process writes") as raised,
        locked(root),
    ):
        pass
    who = f"got {root} in use by process {other.process.pid} on {socket.gethostname()} (pate run configs/faces)"
    assert str(raised.value).endswith(who) and "\n" not in str(raised.value)
    other.end()
    assert not root.exists()
    with locked(root), locked(root):
        assert (root / LOCK).is_file()
    assert not root.exists()


def test_a_killed_process_locks_nothing(tmp_path: Path) -> None:
    other = Other(tmp_path)
    other.kill()
    assert (tmp_path / LOCK).is_file()
    with locked(tmp_path):
        pass
    assert not (tmp_path / LOCK).exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    wanted = r"a folder that can be written, got .*file/run \(Not a directory\)"
    with pytest.raises(ValueError, match=wanted), locked(tmp_path / "file" / "run"):
        pass


def test_a_disk_without_locks_keeps_the_drafts_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with atomic_write(tmp_path / "labels.txt", "w") as draft:
        draft.write("half")
        with locked(tmp_path):
            pass
    assert (tmp_path / "labels.txt").read_text() == "half"
    assert "has no locks" in capsys.readouterr().err


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
    with locked(tmp_path):
        pass
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)
    assert not (tmp_path / "public/.model.0123456789abcdef").exists()


def test_a_lease_that_ends_while_it_is_asked_for_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its holder deletes the file just before the lock is granted."""
    flock, path = fcntl.flock, tmp_path / "lease"

    def release(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()

    monkeypatch.setattr(fcntl, "flock", release)
    with lease(path):
        assert path.is_file()
    assert not path.exists()
