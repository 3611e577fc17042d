"""The folder of faces: what is in it, what a kill leaves, and what is never overwritten."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pate import cli
from pate.accounting import Ledger
from pate.data import CelebA, Role
from pate.lab.faces.canvas import FACE_ATTRIBUTES
from pate.lab.faces.drawing import FolderDiffersError, render_faces, write_celeba_folder


def _stamps(folder: Path) -> dict[str, int]:
    return {
        str(path): path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    output = tmp_path / "faces"
    write_celeba_folder(output, num=130, seed=5, size=40, progress=False)
    return output


def test_folder_round_trip(folder: Path) -> None:
    images, attributes = render_faces(130, seed=5, size=40)
    names = [f"{index:06d}.jpg" for index in range(1, 131)]

    lines = (folder / "list_attr_celeba.txt").read_text().splitlines()
    assert lines[0] == "130"
    assert tuple(lines[1].split()) == FACE_ATTRIBUTES
    rows = [line.split() for line in lines[2:]]
    assert [row[0] for row in rows] == names
    assert {value for row in rows for value in row[1:]} == {"-1", "1"}
    signs = np.array([[int(value) for value in row[1:]] for row in rows])
    assert np.array_equal(signs > 0, attributes == 1)

    parts = [line.split() for line in (folder / "list_eval_partition.txt").read_text().splitlines()]
    assert [name for name, _ in parts] == names
    assert [part for _, part in parts] == ["0"] * 104 + ["1"] * 13 + ["2"] * 13

    assert sorted(path.name for path in (folder / "img_align_celeba").iterdir()) == names
    for name, image in zip(names, images, strict=True):
        with Image.open(folder / "img_align_celeba" / name) as picture:
            assert picture.size == (40, 40) and picture.mode == "RGB" and picture.format == "JPEG"
            read = np.asarray(picture).astype(int)
        assert np.abs(read - image).mean() < 4

    assert json.loads((folder / "faces.json").read_text())["num"] == 130
    source = CelebA(folder, size=40)
    assert source.label_names == FACE_ATTRIBUTES
    assert np.array_equal(source.records(Role.PRIVATE).labels, attributes[:104])
    # Nothing temporary is left.
    assert {path.name for path in folder.iterdir()} == {
        "img_align_celeba",
        "list_attr_celeba.txt",
        "list_eval_partition.txt",
        "faces.json",
    }


def test_a_kill_at_the_very_end_leaves_a_finished_folder(folder: Path) -> None:
    (folder / "faces.json.begun").write_text("{}")
    before = _stamps(folder / "img_align_celeba")
    write_celeba_folder(folder, num=130, seed=5, size=40, progress=False)
    assert not (folder / "faces.json.begun").exists()
    assert _stamps(folder / "img_align_celeba") == before


def test_writing_again_does_nothing(folder: Path) -> None:
    before = _stamps(folder)
    write_celeba_folder(folder, num=130, seed=5, size=40, progress=False)
    assert _stamps(folder) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num": 131}, "Expected faces of num=131 in {folder}, got num=130"),
        ({"seed": 6}, "Expected faces of seed=6 in {folder}, got seed=5"),
        (
            {"size": 32, "public_fraction": 0.2},
            "Expected faces of size=32, public_fraction=0.2 in {folder}, got size=40, public_fraction=0.1",
        ),
    ],
)
def test_other_parameters_are_refused(folder: Path, change: dict[str, float], message: str) -> None:
    before = _stamps(folder)
    asked: dict[str, float] = {"num": 130, "seed": 5, "size": 40, **change}
    with pytest.raises(FolderDiffersError) as caught:
        write_celeba_folder(folder, progress=False, **asked)  # type: ignore[arg-type]
    assert str(caught.value) == message.format(folder=folder)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, FileExistsError)
    assert _stamps(folder) == before


def test_half_written_folder_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, saved = Image.Image.save, []

    def failing_save(self: Image.Image, path: Path, **options: Any) -> None:
        saved.append(path)
        if len(saved) > 20:
            raise KeyboardInterrupt
        save(self, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", failing_save)
        with pytest.raises(KeyboardInterrupt):
            write_celeba_folder(tmp_path, num=30, progress=False)
    assert not (tmp_path / "list_attr_celeba.txt").exists()
    assert not (tmp_path / "faces.json").exists()

    # As where the kill came between the tables and faces.json.
    (tmp_path / "list_attr_celeba.txt").write_text("30\n")

    # With other parameters even: nothing finished is lost, and nothing of the first attempt stays.
    write_celeba_folder(tmp_path, num=12, seed=1, progress=False)
    assert len(list((tmp_path / "img_align_celeba").iterdir())) == 12
    assert json.loads((tmp_path / "faces.json").read_text())["seed"] == 1


@pytest.mark.parametrize(
    "name", ["img_align_celeba", "list_attr_celeba.txt", "list_eval_partition.txt"]
)
def test_a_true_celeba_is_not_overwritten(tmp_path: Path, name: str) -> None:
    if name.endswith(".txt"):
        (tmp_path / name).write_text("202599\n")
    else:
        (tmp_path / name).mkdir()
        (tmp_path / name / "000001.jpg").write_bytes(b"a photograph")
    before = _stamps(tmp_path)
    with pytest.raises(FolderDiffersError, match=name):
        write_celeba_folder(tmp_path, num=3, progress=False)
    assert _stamps(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num": -1}, "Expected num >= 1, got num=-1"),
        ({"num": 0}, "Expected num >= 1, got num=0"),
        ({"size": 8}, "Expected 32 <= size <= 64, got size=8"),
        (
            {"private_fraction": 1.5},
            "Expected 0 <= private_fraction <= 1, got private_fraction=1.5",
        ),
        ({"public_fraction": -0.1}, "Expected 0 <= public_fraction <= 1, got public_fraction=-0.1"),
        (
            {"private_fraction": 0.8, "public_fraction": 0.3},
            "Expected private_fraction + public_fraction <= 1, got private_fraction=0.8, public_fraction=0.3",
        ),
    ],
)
def test_bad_folder_requests(tmp_path: Path, change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        write_celeba_folder(tmp_path / "new", progress=False, **{"num": 3, **change})  # type: ignore[arg-type]
    assert str(caught.value) == message
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("private", "public", "counts"),
    [(0.7, 0.3, [7, 3, 0]), (0.0, 1.0, [0, 10, 0]), (0.5, 0.25, [5, 3, 2]), (0.0, 0.0, [0, 0, 10])],
)
def test_partition(tmp_path: Path, private: float, public: float, counts: list[int]) -> None:
    write_celeba_folder(
        tmp_path, num=10, private_fraction=private, public_fraction=public, progress=False
    )
    lines = (tmp_path / "list_eval_partition.txt").read_text().splitlines()
    parts = [int(line.split()[1]) for line in lines]
    assert parts == sorted(parts)
    assert [parts.count(part) for part in range(3)] == counts


def test_too_few_faces_for_a_run_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for num, said in (("2", True), ("10", False)):
        assert cli.main(["faces", "--output", str(tmp_path / num), "--num", num]) == 0
        assert ("None of 2 faces is public" in capsys.readouterr().out) == said


def test_faces_drawn_anew_leave_the_ledger(tmp_path: Path) -> None:
    """A folder that was left half drawn, and one that is finished, keep what was spent on them."""
    folder = tmp_path / "faces"
    write_celeba_folder(folder, num=4, progress=False)
    ledger = Ledger(folder / "ledger.sqlite").path.read_bytes()
    write_celeba_folder(folder, num=4, progress=False)
    (folder / "faces.json").rename(folder / "faces.json.begun")
    (folder / "list_attr_celeba.txt").unlink()
    write_celeba_folder(folder, num=4, progress=False)
    assert (folder / "list_attr_celeba.txt").is_file()
    assert (folder / "ledger.sqlite").read_bytes() == ledger
