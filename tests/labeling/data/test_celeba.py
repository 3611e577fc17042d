import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pate.data import CelebA, DataSource, Role
from pate.testing import SourceContract
from tests.conftest import ATTRIBUTES, write_faces


class TestCelebA(SourceContract):
    """Twelve pictures, two of each person."""

    def write(self, folder: Path) -> None:
        write_faces(folder, num=12, private=6, public=3)
        (folder / "identity_CelebA.txt").write_text(
            "".join(f"{i:06d}.jpg {i // 2}\n" for i in range(1, 13))
        )

    def open(self, folder: Path) -> DataSource:
        return CelebA(folder, size=16)

    def remove(self, folder: Path, row: int) -> None:
        picture = str(self.open(folder).load(Role.PRIVATE).ids[row])
        for name in ("list_attr_celeba.txt", "list_eval_partition.txt", "identity_CelebA.txt"):
            lines = (folder / name).read_text().splitlines()
            (folder / name).write_text(
                "\n".join(line for line in lines if not line.startswith(picture)) + "\n"
            )
        (folder / "img_align_celeba" / picture).unlink()

    def alter(self, folder: Path, role: Role) -> None:
        picture = folder / "img_align_celeba" / str(self.open(folder).load(role).ids[-1])
        Image.fromarray(255 - np.asarray(Image.open(picture))).save(picture)


@pytest.fixture
def folder(faces: Path, tmp_path: Path) -> Path:
    """A copy of the faces that a test may damage."""
    shutil.copytree(faces, tmp_path / "faces")
    return tmp_path / "faces"


def test_reads_what_was_written(faces: Path) -> None:
    data = CelebA(faces, size=32)
    records = data.records(Role.PRIVATE)
    assert data.label_names == ATTRIBUTES and data.input_shape == (3, 32, 32)
    assert records.labels.shape == (180, 5)
    read = records.features[np.arange(180)]
    assert read.dtype == np.float32 and read.max() <= 1
    # the last label is seen in the last six rows
    assert ((read[:, :, 26:].mean(axis=(1, 2, 3)) > 0.48) == records.labels[:, -1]).all()


@pytest.mark.parametrize("role", [Role.PUBLIC, Role.TEST])
def test_unreadable_picture(folder: Path, role: Role) -> None:
    """Of private ones see `tests/labeling/stages/test_extreme_records.py`."""
    name = str(CelebA(folder).load(role).ids[0])
    (folder / "img_align_celeba" / name).write_bytes(b"no picture")
    with pytest.raises(ValueError, match=name):
        CelebA(folder).records(role).features[np.array([0])]
    (folder / "img_align_celeba" / name).unlink()
    with pytest.raises(ValueError, match=rf"missing=\['.*{name}'\]"):
        CelebA(folder).records(role)


def test_a_picture_is_one_record_of_one_role(folder: Path) -> None:
    """Whether it is named twice, or two names lead to it."""
    for name in ("list_eval_partition.txt", "list_attr_celeba.txt"):
        table = folder / name
        before = table.read_text()
        table.write_text(
            before
            + next(line for line in before.splitlines() if line.startswith("000001.jpg"))
            + "\n"
        )
        with pytest.raises(ValueError, match=rf"{name}.*twice=.*000001\.jpg"):
            CelebA(folder).load(Role.PUBLIC)
        table.write_text(before)
    pictures = folder / "img_align_celeba"
    public = pictures / str(CelebA(folder).load(Role.PUBLIC).ids[0])
    public.unlink()
    public.symlink_to("000001.jpg")
    with pytest.raises(
        ValueError, match=rf"a file of its own for each picture, .*000001\.jpg.*{public.name}"
    ):
        CelebA(folder).load(Role.PUBLIC)
