"""The stages of the teachers by their commands: several processes, the choice of a chunk size, dry
runs."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import cli
from tests.conftest import make_arrays
from tests.networks.conftest import recipe


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    np.savez(tmp_path / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz", steps=5)
    return ["--config", str(folder / "data.yaml"), "--config", str(folder / "teachers.yaml")]


def fit(words: list[str], root: Path, *more: str) -> int:
    return cli.main(["teachers", "fit", *words, "--run", str(root), *more])


def contents(root: Path) -> dict[str, bytes]:
    folder = root / "private" / "teachers"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def again(finished: Path) -> list[str]:
    """The settings that the finished run's teachers were trained with."""
    return ["--config", str(finished / "private" / "teachers_fit.yaml")]


def one_line(capsys: pytest.CaptureFixture[str], *parts: str) -> None:
    """What was said last is one line that holds all ``parts``."""
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("pate ")
    for part in parts:
        assert part in line


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


DAMAGE = [
    flip,
    pytest.param(Path.unlink, marks=pytest.mark.slow),
    pytest.param(cut, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_teachers_are_noticed_and_made_again(
    damage: Callable[[Path], Any],
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path(shutil.copytree(finished, tmp_path / "run"))
    before = contents(root)
    path = root / "private" / "teachers" / "teachers_00004.pt"
    damage(path)
    assert cli.main(["teachers", "vote", "--run", str(root)]) == 2
    one_line(capsys, "private/teachers/teachers_00004.pt", "`pate teachers fit` makes it again")
    again = ["--config", str(root / "private" / "teachers_fit.yaml")]
    path.unlink(missing_ok=True)
    # of a worker that was killed while it wrote
    draft = path.with_name(f".{path.name}.0123456789abcdef")
    draft.write_bytes(b"half")
    assert fit(again, root) == 0
    assert contents(root) == before and not draft.exists()
    assert cli.main(["teachers", "vote", "--run", str(root)]) == 0


def test_teachers_vote_as_they_were_trained(finished: Path, tmp_path: Path) -> None:
    """The file that tells readers how is none that later stages believe."""
    for number, text in enumerate((None, "", "num_teachers: 4\n")):
        root = Path(shutil.copytree(finished, tmp_path / f"run{number}"))
        saved = root / "private" / "teachers_fit.yaml"
        if text is None:
            saved.unlink()
        else:
            saved.write_text(text)
        assert cli.main(["teachers", "vote", "--run", str(root)]) == 0
