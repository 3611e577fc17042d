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
from scripts.faces.canvas import FACE_ATTRIBUTES
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


def test_a_face_depends_on_its_seed_and_its_place_alone() -> None:
    images, attributes = render_faces(203, seed=3)
    for num, start in ((1, 0), (99, 1), (3, 199)):
        again = render_faces(num, seed=3, start=start)
        assert np.array_equal(again[0], images[start : start + num])
        assert np.array_equal(again[1], attributes[start : start + num])
    assert len({image.tobytes() for image in images}) == len(images)
    assert not np.array_equal(render_faces(3, seed=9)[0], images[:3])
