"""Drawn faces: attributes that can be seen, and a folder that never covers other data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pate.accounting import Ledger
from pate.data import CelebA, Role
from scripts.faces.__main__ import main
from scripts.faces.canvas import FACE_ATTRIBUTES, Canvas, Dice, Traits
from scripts.faces.drawing import render_faces, write_celeba_folder


def stamps(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in files}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    output = tmp_path / "faces"
    main(["--output", str(output), "--num", "20", "--seed", "5", "--size", "40"])
    return output


def test_folder_round_trip(folder: Path) -> None:
    images, attributes = render_faces(20, seed=5, size=40)
    names = [f"{index:06d}.jpg" for index in range(1, 21)]
    parts = [line.split() for line in (folder / "list_eval_partition.txt").read_text().splitlines()]
    assert parts == [
        [name, role] for name, role in zip(names, "0" * 16 + "1" * 2 + "2" * 2, strict=True)
    ]
    for name, image in zip(names, images, strict=True):
        read = np.asarray(Image.open(folder / "img_align_celeba" / name)).astype(int)
        assert np.abs(read - image).mean() < 4
    source = CelebA(folder, size=40)
    assert source.label_names == FACE_ATTRIBUTES
    assert np.array_equal(source.records(Role.PRIVATE).labels, attributes[:16])
    assert not list(folder.glob("*.begun"))


def test_what_is_finished_is_left_and_other_faces_are_refused(folder: Path) -> None:
    Ledger(folder / "ledger.sqlite")
    before = stamps(folder)
    write_celeba_folder(folder, num=20, seed=5, size=40, progress=False)
    changes: list[dict[str, Any]] = [{"num": 21}, {"seed": 6}, {"public_fraction": 0.2}]
    for change in changes:
        with pytest.raises(ValueError, match=r"^Expected faces of .* in "):
            write_celeba_folder(folder, **{"num": 20, "seed": 5, "size": 40} | change)
    assert stamps(folder) == before


def test_a_half_written_folder_is_drawn_anew_and_keeps_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert not (tmp_path / "faces.json").exists()
    (tmp_path / "list_attr_celeba.txt").write_text("30\n")  # a kill before faces.json
    ledger = Ledger(tmp_path / "ledger.sqlite").path.read_bytes()
    write_celeba_folder(tmp_path, num=12, seed=1, progress=False)
    assert len(list((tmp_path / "img_align_celeba").iterdir())) == 12
    assert json.loads((tmp_path / "faces.json").read_text())["seed"] == 1
    assert (tmp_path / "ledger.sqlite").read_bytes() == ledger


@pytest.mark.parametrize("name", ["img_align_celeba/000001.jpg", "list_attr_celeba.txt"])
def test_a_true_celeba_is_not_overwritten(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"a photograph")
    before = stamps(tmp_path)
    with pytest.raises(SystemExit):
        main(["--output", str(tmp_path), "--num", "3"])
    assert name.split("/")[0] in capsys.readouterr().err and stamps(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [
        {"num": 0},
        {"num": 10**12},
        {"seed": -1},
        {"size": 8},
        {"public_fraction": -0.1},
        {"private_fraction": 0.8, "public_fraction": 0.3},
    ],
)
def test_bad_requests_write_nothing(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^Expected "):
        write_celeba_folder(tmp_path / "new", progress=False, **{"num": 3, **change})
    assert not (tmp_path / "new").exists()


def test_a_face_depends_on_its_seed_and_its_place_alone() -> None:
    images, attributes = render_faces(203, seed=3)
    for num, start in ((1, 0), (99, 1), (3, 199)):
        again = render_faces(num, seed=3, start=start)
        assert np.array_equal(again[0], images[start : start + num])
        assert np.array_equal(again[1], attributes[start : start + num])
    assert len({image.tobytes() for image in images}) == len(images)
    assert not np.array_equal(render_faces(3, seed=9)[0], images[:3])


def test_windows_cut_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    windowed = render_faces(100, seed=8)[0]
    monkeypatch.setattr(Canvas, "_span", lambda self, low, high: slice(0, self.size))
    difference = np.abs(windowed.astype(int) - render_faces(100, seed=8)[0])
    assert difference.max() <= 3 and (difference > 0).mean() < 1e-4


def test_attributes_go_together_as_on_people() -> None:
    attributes = Traits(Dice(np.random.default_rng(3), 5200)).attributes().astype(int)
    column = dict(zip(FACE_ATTRIBUTES, attributes.T, strict=True))
    assert all(0.08 <= values.mean() <= 0.85 for values in column.values())
    colors = sum(column[f"{color}_Hair"] for color in ("Black", "Blond", "Brown", "Gray"))
    assert np.array_equal(colors, 1 - column["Bald"])
    for one, other, sign in (
        ("Beard", "Male", 1),
        ("Heavy_Makeup", "Male", -1),
        ("Gray_Hair", "Young", -1),
        ("Mouth_Slightly_Open", "Smiling", 1),
    ):
        assert sign * np.corrcoef(column[one], column[other])[0, 1] > 0.08


@pytest.mark.slow
def test_attributes_are_visible() -> None:
    """Least squares on pixels tells each attribute, and nothing of shuffled ones."""
    images, attributes = render_faces(5200, seed=3)
    shuffled = attributes[np.random.default_rng(0).permutation(len(attributes))]
    labels = np.concatenate((attributes, shuffled), axis=1)
    pixels = images.reshape(len(images), -1).astype(np.float32) / 255
    known, truth = pixels[:4000] - pixels[:4000].mean(axis=0), labels[:4000]
    rate = truth.mean(axis=0)
    targets = np.where(truth == 1, 1 / rate, -1 / (1 - rate)).astype(np.float32)
    gram = known.T @ known + 20 * np.eye(known.shape[1], dtype=np.float32)
    weights = np.linalg.solve(gram, known.T @ targets)
    said = (pixels[4000:] - pixels[:4000].mean(axis=0)) @ weights > 0
    asked = labels[4000:] == 1
    right = [(said[yes, j].mean() + 1 - said[~yes, j].mean()) / 2 for j, yes in enumerate(asked.T)]
    seen, chance = np.split(np.array(right), 2)
    assert seen.min() > 0.65 and 0.78 < seen.mean() < 0.97
    assert abs(chance.mean() - 0.5) < 0.03 and chance.max() < 0.62
