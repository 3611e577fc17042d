"""`pate predict`: folders of pictures and archives, to tables and archives."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import models
import pate
from pate import cli
from pate._labeling.commands import stages
from pate._labeling.commands.stages import _read_table
from pate.data import CelebA, ColumnEncoding
from pate.student import InputFormat
from tests.conftest import make_arrays
from tests.networks.student.test_carried import carried, student_on


@pytest.fixture(scope="module")
def model(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student of pictures."""
    folder = tmp_path_factory.mktemp("carried")
    source = CelebA(faces, size=12)
    carried(folder, student_on(source, models.Linear), "pate.models.Linear", source)
    return folder / "model"


@pytest.fixture
def folder(faces: Path, tmp_path: Path) -> Path:
    """Ten pictures, one of them in a folder within, and a file that is none."""
    place = tmp_path / "pictures"
    (place / "within").mkdir(parents=True)
    for path in sorted((faces / "img_align_celeba").iterdir())[:10]:
        shutil.copy(path, place)
    shutil.move(place / "000003.jpg", place / "within" / "a, b.JPG")
    (place / "notes.txt").write_text("no picture")
    return place


def read(path: Path) -> tuple[list[str], dict[str, list[float]]]:
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    return head, {name: [float(value) for value in values] for name, *values in rows}


def test_a_folder_of_pictures(
    model: Path,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["predict", str(model), str(folder), "--batch_size=3"]) == 0
    assert capsys.readouterr().out == "10 samples, 5 labels: predictions.csv\n"
    student = pate.load_student(model)
    head, rows = read(tmp_path / "predictions.csv")
    assert head == ["id", *student.label_names]
    paths = stages.pictures_in(folder)
    assert (
        list(rows) == [path.relative_to(folder).as_posix() for path in paths]
        and "within/a, b.JPG" in rows
    )
    assert (np.array(list(rows.values())) == student.predict(paths)).all()
    again = ["predict", str(model), str(folder), "--probabilities=true"]
    assert cli.main(again) == 2 and read(tmp_path / "predictions.csv") == (head, rows)
    assert "or --overwrite, got output='predictions.csv'" in capsys.readouterr().err
    assert cli.main(["export", str(model), "--format=onnx", "--output=predictions.csv"]) == 2
    assert "or --overwrite, got output='predictions.csv'" in capsys.readouterr().err
    assert cli.main([*again, "--overwrite"]) == 0
    found = np.array(list(read(tmp_path / "predictions.csv")[1].values()))
    assert np.abs(found - student.predict_proba(paths)).max() < 2e-6


@pytest.mark.parametrize("place", [".", "public/student/model"])
def test_an_archive(
    place: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, arrays = finished / place, make_arrays()
    np.savez(tmp_path / "new.npz", X=arrays["X"][:300], ids=arrays["ids"][:300])
    output = tmp_path / "out.npz"
    assert (
        cli.main(["predict", str(model), str(tmp_path / "new.npz"), "--output", str(output)]) == 0
    )
    assert "300 samples, 4 labels" in capsys.readouterr().out
    with np.load(output) as found:
        assert found["ids"].tolist() == arrays["ids"][:300].tolist() and found[
            "label_names"
        ].tolist() == [*"abcd"]
        probabilities, labels = pate.load_student(model).answer(arrays["X"][:300])
        assert (found["probabilities"] == probabilities).all() and (found["labels"] == labels).all()
    np.savez(tmp_path / "bare.npz", X=arrays["X"][:3])
    assert (
        cli.main(
            ["predict", str(model), str(tmp_path / "bare.npz"), f"--output={tmp_path}/out.csv"]
        )
        == 0
    )
    assert list(read(tmp_path / "out.csv")[1]) == ["0", "1", "2"]


def damaged(folder: Path) -> None:
    (folder / "000002.jpg").write_bytes(b"no picture")
    whole = (folder / "000005.jpg").read_bytes()
    (folder / "000005.jpg").write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_or_left_out_by_name(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    damaged(folder)
    output = tmp_path / f"out{suffix}"
    words = [
        "predict",
        str(model),
        str(folder),
        f"--output={output}",
        "--unreadable=skip",
        "--batch_size=1",
    ]
    assert cli.main(words) == 0
    said = capsys.readouterr()
    assert "8 samples, 5 labels, 2 left out" in said.out
    assert [name for name in ("000002.jpg", "000005.jpg", "000007.jpg") if name in said.err] == [
        "000002.jpg",
        "000005.jpg",
    ]
    if suffix == ".csv":
        assert len(read(output)[1]) == 8


def test_columns_are_read_by_their_names(tmp_path: Path) -> None:
    encoding = ColumnEncoding(("age", "pressure"), identity="patient_no")
    taken = InputFormat("features", (2,), encoding)
    assert InputFormat.from_dict(taken.to_dict()) == taken
    (tmp_path / "new.csv").write_text("pressure,note,patient_no,age\n131.5,any,kim,54\n")
    samples, identity, ids, unknown = _read_table(tmp_path / "new.csv", taken.columns)
    assert np.asarray(samples).tolist() == [[54, 131.5]]
    assert (identity, ids, unknown) == ("patient_no", ["kim"], [])
    (tmp_path / "rows.csv").write_text("pressure,age\n131.5,54\n")
    assert _read_table(tmp_path / "rows.csv", taken.columns)[1:3] == ("id", ["0"])
    with pytest.raises(
        ValueError, match=r"^Expected a column `weight` in .*new.csv, between commas"
    ):
        _read_table(tmp_path / "new.csv", ColumnEncoding(("age", "weight")))


def test_raw_columns_are_encoded_as_in_training(tmp_path: Path) -> None:
    encoding = ColumnEncoding(("city", "age"), {"city": ("Bern", "Rome")}, {"age": 40.5})
    taken = InputFormat("features", (3,), encoding)
    assert InputFormat.from_dict(json.loads(json.dumps(taken.to_dict()))) == taken
    (tmp_path / "new.csv").write_text("id,age,city\nkim,NA,Rome\nlee,1,Oslo\nmia,2,\n")
    samples, _, ids, unknown = _read_table(tmp_path / "new.csv", taken.columns)
    assert np.asarray(samples).tolist() == [[0, 1, 40.5], [0, 0, 1], [0, 0, 2]]
    assert ids == ["kim", "lee", "mia"]
    assert unknown == ["1 values of `city` are no level of it, such as 'Oslo'"]
    frame = {"age": [np.nan, 1, 2], "city": np.array(["Rome", "Oslo", None], dtype=object)}
    assert np.asarray(taken.encoded(frame)).tolist() == np.asarray(samples).tolist()
    with pytest.raises(ValueError, match=r"with the columns of training, got missing=\['city'\]"):
        taken.encoded({"age": [1]})
    with pytest.raises(ValueError, match=r"^Expected columns of one length, got city=1, age=2"):
        taken.encoded({"age": [1, 2], "city": ["Rome"]})
    with pytest.raises(
        ValueError, match=r"^Expected texts in a list or an array, got samples='columns'"
    ):
        InputFormat("texts", (3,)).encoded(frame)
    (tmp_path / "new.csv").write_text("age\n1\n")
    with pytest.raises(ValueError, match=r"^Expected a column `city` in"):
        _read_table(tmp_path / "new.csv", encoding)
