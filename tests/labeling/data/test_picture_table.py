"""A folder of pictures with a CSV file of their labels."""

import csv
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from pate._core.files.reading import digest
from pate._labeling.data.pictures import ImageFiles, read_image
from pate.data import DataSource, PictureTable, PublicPCA, Role
from pate.testing import SourceContract


def write_pictures(
    folder: Path, *, num: int = 24, columns: tuple[str, ...] = ("split", "group")
) -> None:
    """Write small pictures, some of them in a folder below, and their table."""
    generator = np.random.default_rng(0)
    (folder / "more").mkdir(parents=True)
    rows = []
    for i in range(num):
        name = f"more/p{i:02}.png" if i % 4 == 0 else f"p{i:02}.jpg"
        Image.fromarray(generator.integers(0, 256, size=(20, 24, 3), dtype=np.uint8)).save(
            folder / name
        )
        row = {
            "file": name,
            "hat": i % 2,
            "split": [*Role][i % 3].value,
            "beard": i // 2 % 2,
            "group": f"n{i // 3}",
        }
        rows.append(
            {key: value for key, value in row.items() if key in ("file", "hat", "beard", *columns)}
        )
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


class TestPictureTable(SourceContract):
    """With roles and persons of its own."""

    columns: tuple[str, ...] = ("split", "group")

    def write(self, folder: Path) -> None:
        write_pictures(folder, columns=self.columns)

    def open(self, folder: Path) -> DataSource:
        public = None if "split" in self.columns else 0.3
        return PictureTable(folder, size=8, public_fraction=public, test_fraction=0.3)

    def remove(self, folder: Path, row: int) -> None:
        name = str(self.open(folder).load(Role.PRIVATE).ids[row])
        lines = (folder / "labels.csv").read_text().splitlines()
        (folder / "labels.csv").write_text(
            "\n".join(line for line in lines if not line.startswith(f"{name},"))
        )
        (folder / name).unlink()

    def alter(self, folder: Path, role: Role) -> None:
        picture = folder / str(self.open(folder).load(role).ids[-1])
        Image.fromarray(255 - np.asarray(Image.open(picture))).save(picture)


class TestPictureTableSplitByHash(TestPictureTable):
    """Where a hash of the file's name says who has which role."""

    columns = ()


class TestPictureTableSplitByPerson(TestPictureTable):
    """Where a hash of the person does."""

    columns = ("group",)

    def test_no_person_has_two_roles(self, folder: Path) -> None:
        groups = [self.open(folder).load(role).groups for role in Role]
        persons = [set(each.tolist()) for each in groups if each is not None]
        assert len(persons) == 3 and sum(map(len, persons)) == len(set.union(*persons)) == 8


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    write_pictures(tmp_path / "pictures")
    return tmp_path / "pictures"


def retitle(folder: Path, old: str, new: str) -> None:
    """Change the first occurrence of a word in the table."""
    table = folder / "labels.csv"
    text = table.read_text()
    assert old in text
    table.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("alias", ["./p01.jpg", "more//../p01.jpg"])
def test_one_picture_has_one_path(pictures: Path, alias: str) -> None:
    retitle(pictures, "p01.jpg", alias)
    assert "p01.jpg" in PictureTable(pictures, size=8).load(Role.PUBLIC).ids
    retitle(pictures, "p03.jpg", "p01.jpg")  # a private record
    with pytest.raises(
        ValueError,
        match=r"each `file` once in .*labels\.csv, got line=3, value='p01\.jpg', further",
    ):
        PictureTable(pictures, size=8).load(Role.TEST)


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_one_picture_has_one_file(pictures: Path, link: Callable[[Path, Path], None]) -> None:
    """Also one of another role, and one that a file system finds in upper and lower case alike."""
    (pictures / "p03.jpg").unlink()
    link(pictures / "p03.jpg", pictures / "p01.jpg")
    with pytest.raises(
        ValueError, match=r"a file of its own for each picture, got one_file=.*p01\.jpg.*p03\.jpg"
    ):
        PictureTable(pictures, size=8).load(Role.TEST)


def test_no_kind_of_file_in_place_of_a_private_picture_fails_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket has a short name
    Path("loop").symlink_to("loop")
    Path("folder").mkdir()
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        paths = [Path(name) for name in ("loop", "folder", "pipe", "socket", "missing", "folder/x")]
        assert not ImageFiles(paths, 8, private=True)[np.arange(6)].any()
        for path in paths:
            with pytest.raises(ValueError, match=f"a readable picture, got {path} "):
                ImageFiles([path], 8)[[0]]


@pytest.mark.skipif(os.name == "nt", reason="the program is a shell script")
def test_a_picture_starts_no_program(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encapsulated PostScript is read by Ghostscript, whatever the file's name says."""
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    Image.fromarray(np.zeros((20, 24, 3), dtype=np.uint8)).save(pictures / "p01.jpg", "EPS")
    with pytest.raises(ValueError, match=r"a readable picture, got .*p01\.jpg"):
        read_image(pictures / "p01.jpg", 8)
    assert not (tmp_path / "started").exists()
    with pytest.raises(OSError), Image.open(pictures / "p01.jpg") as picture:
        picture.load()
    assert (tmp_path / "started").exists()


def test_private_pictures_are_read_where_they_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that trains a few teachers maps their pictures alone, to the same bits as all of
    them."""
    write_pictures(tmp_path / "pictures")
    read: list[str] = []
    picture = ImageFiles.picture

    def noted(files: ImageFiles, row: int) -> np.ndarray:
        read.append(Path(files.paths[row]).name)
        return picture(files, row)

    monkeypatch.setattr(ImageFiles, "picture", noted)
    source = PictureTable(tmp_path / "pictures", size=8, features=PublicPCA(num_components=2))
    public = len(source.load(Role.PUBLIC))
    records = source.records(Role.PRIVATE)
    assert records.features.shape == (8, 2)
    assert len(read) <= public + 1
    read.clear()
    some = records.features.select(np.array([5, 2]))
    assert sorted(read) == sorted(Path(str(records.ids[row])).name for row in (2, 5))
    assert (some[np.arange(2)] == np.asarray(records.features)[[5, 2]]).all()
    assert (records.features[np.array([[5], [2]])] == some[np.array([[0], [1]])]).all()


def test_the_name_of_a_picture_may_name_its_person(tmp_path: Path) -> None:
    """As in CheXpert, whose table has no column for it."""
    lines = ["Path,Sex,Age,gout,split"]
    for i in range(6):
        name = f"train/patient{i // 2:05}/study1/view{i}.png"
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 8), 40 * i).save(tmp_path / name)
        lines.append(f"{name},Male,{i},{i % 2},{[*Role][i // 2].value}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    settings: Any = {"names": {"file": "Path"}, "labels": ["gout"], "size": 8}
    source = PictureTable(tmp_path, group_pattern="patient[0-9]+", **settings)
    groups = source.load(Role.PUBLIC).groups
    assert groups is not None and groups.tolist() == ["patient00001"] * 2
    with pytest.raises(ValueError, match=r"`group_pattern`, in column `Path` .*value='train/pat"):
        PictureTable(tmp_path, group_pattern="subject", **settings).load(Role.PUBLIC)
    with pytest.raises(ValueError, match=r"a regular expression in `group_pattern`, got \("):
        PictureTable(tmp_path, group_pattern="(", **settings).load(Role.PUBLIC)


def test_pictures_of_the_same_bytes_stand_in_one_role(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read only where another one has as many bytes."""
    source = PictureTable(pictures, size=8)
    read: list[Path] = []

    def noted(path: Path) -> str:
        read.append(path)
        return digest(path)

    monkeypatch.setattr("pate._labeling.data.pictures.digest", noted)
    source.require_distinct()
    assert len(read) < 8
    private, public = (source.load(role).ids.tolist() for role in (Role.PRIVATE, Role.PUBLIC))
    for name, other in zip(private, public, strict=True):
        (pictures / other).write_bytes((pictures / name).read_bytes())
    with pytest.raises(ValueError, match=r"no private records: .*, got copies=\['p01.jpg', .*=8$"):
        source.require_distinct()
    PictureTable(pictures, size=8, copies=True).require_distinct()


def test_faults_of_a_table_are_said_with_their_lines(pictures: Path) -> None:
    """Also those that could move a record to another role."""
    path = pictures / "labels.csv"
    text = path.read_bytes().decode().replace("\r\n", "\n")
    damaged = {
        text.replace("p05.jpg,1", "p05.jpg,2"): r"0 or 1 in column `hat` .*line=7, value='2'",
        text.replace("p05.jpg,1", "p05.jpg,1,1"): r"5 values in each line .*line=7, values=6",
        text.replace("p05.jpg", "p06.jpg"): r"each `file` once .*line=7, value='p06\.jpg'",
        text.replace("p05.jpg", "p99.jpg"): r"a picture for every row .*missing=\['.*p99\.jpg'\]",
        text.replace(",test,", ",train,", 1): r"private, public or test .*line=4, value='train'",
        text.replace("n1\n", "\n", 1): r"column `group` of .*, got line=5, value=''",
        text.replace("file", "File", 1): r"a column `file` in .*; is it `File`\?",
        text.replace("beard", "hat"): "columns of .* with names that are unique",
        text.replace("p05.jpg", '"p05.jpg'): r"a CSV file, got .*labels\.csv",
        "file,hat\n": "lines below the headings",
        "file;hat,,\np01.jpg;1,,\n": "a column `file`",
        "file,hat,,\np01.jpg,1\n": "Expected split in",
        "file,split\np01.jpg,test\n": "a column of labels",
    }
    for content, message in damaged.items():
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            PictureTable(pictures).load(Role.TEST)
    path.write_text("file,hat,split\np01.jpg,1,public\n")
    with pytest.raises(ValueError, match=r"at least one private record in .*labels\.csv"):
        PictureTable(pictures).load(Role.PRIVATE)
    assert PictureTable(pictures, size=8).load(Role.TEST).features.shape == (0, 3, 8, 8)
