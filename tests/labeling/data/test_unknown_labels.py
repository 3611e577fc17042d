"""Labels that are unknown, as each source reads them, where it may."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pate import cli
from pate._core.validation import require_label_names
from pate.data import (
    UNKNOWN,
    ArrayFeatures,
    Arrays,
    DataSource,
    NumberTable,
    PictureTable,
    Records,
    Role,
    TextTable,
)
from tests.conftest import make_arrays, recipe

ROLES = [role.value for role in Role]
GIVEN = np.array([[1, np.nan], [0, 1], [np.nan, np.nan], [1, 0], [np.nan, 0], [0, 1]])
EXPECTED = np.where(np.isnan(GIVEN), UNKNOWN, GIVEN).astype(np.uint8)
Make = Callable[[Path, np.ndarray, Any], DataSource]


def arrays(folder: Path, labels: np.ndarray, unknown: Any) -> DataSource:
    np.savez(
        folder / "mine.npz",
        X=np.arange(12.0).reshape(6, 2),
        Y=labels,
        ids=np.array(list("abcdef")),
        split=np.arange(6) % 3,
    )
    return Arrays(folder / "mine.npz", unknown_labels=unknown)


def write_table(folder: Path, labels: np.ndarray, head: str, values: list[str]) -> Path:
    """Write labels as other programs do: with a decimal point, and NaN as an empty cell."""
    cells = [["" if np.isnan(value) else str(float(value)) for value in row] for row in labels]
    lines = [f"{head},split,gout,asthma"] + [
        f"{values[i]},{ROLES[i % 3]},{','.join(row)}" for i, row in enumerate(cells)
    ]
    (folder / "mine.csv").write_text("\n".join(lines))
    return folder / "mine.csv"


def numbers(folder: Path, labels: np.ndarray, unknown: Any) -> DataSource:
    path = write_table(folder, labels, "id,age", [f"r{i}x,{i}" for i in range(6)])
    return NumberTable(path, labels=["gout", "asthma"], unknown_labels=unknown)


def texts(folder: Path, labels: np.ndarray, unknown: Any) -> DataSource:
    path = write_table(folder, labels, "id,text", [f"r{i}x,word{i}" for i in range(6)])
    return TextTable(path, num_features=8, unknown_labels=unknown)


def pictures(folder: Path, labels: np.ndarray, unknown: Any) -> DataSource:
    for i in range(6):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(folder / f"p{i}.png")
    write_table(folder, labels, "file", [f"p{i}.png" for i in range(6)])
    return PictureTable(folder, table="mine.csv", size=8, unknown_labels=unknown)


SOURCES = (arrays, numbers, texts, pictures)


@pytest.mark.parametrize("unknown", ["nan", -1])
@pytest.mark.parametrize("make", SOURCES)
def test_unknown_labels_are_read(make: Make, unknown: Any, tmp_path: Path) -> None:
    labels = GIVEN.copy()
    if unknown == -1:  # as in CheXpert: neither is known
        labels[0, 1] = -1
    source = make(tmp_path, labels, unknown)
    assert source.unknown_labels
    source.require_distinct()
    for number, role in enumerate(Role):
        records = source.records(role)
        assert records.labels.dtype == np.uint8
        assert records.labels.tolist() == EXPECTED[number::3].tolist()


@pytest.mark.parametrize("unknown", [None, "nan"])
@pytest.mark.parametrize("make", SOURCES)
def test_a_sign_that_is_not_declared_is_refused(make: Make, unknown: Any, tmp_path: Path) -> None:
    """By a line that names the field."""
    signed = np.where(np.isnan(GIVEN), -1, GIVEN)
    for labels in (GIVEN, signed) if unknown is None else (signed,):
        with pytest.raises(ValueError, match="`unknown_labels` is the sign of unknown ones"):
            make(tmp_path, labels, unknown).records(Role.PRIVATE)


def test_a_table_of_minus_one_and_one_may_have_empty_cells(tmp_path: Path) -> None:
    source = arrays(tmp_path, np.where(GIVEN == 0, -1, GIVEN), "nan")
    assert source.records(Role.PRIVATE).labels.tolist() == EXPECTED[::3].tolist()


def test_an_unknown_sign_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`unknown_labels` among nan, -1, or none"):
        arrays(tmp_path, GIVEN, "none").records(Role.PRIVATE)


class Mine(DataSource):
    label_names = ("gout",)

    def load(self, role: Role) -> Records:
        ids = np.array([f"{role.value} {i}" for i in range(2)])
        labels = np.array([[1], [UNKNOWN]], dtype=np.uint8)
        return Records(features=ArrayFeatures(np.ones((2, 3), np.float32)), labels=labels, ids=ids)


def test_a_source_of_ones_own_declares_them() -> None:
    assert Mine(unknown_labels=True).records(Role.PRIVATE).labels.tolist() == [[1], [UNKNOWN]]
    with pytest.raises(ValueError, match="labels 0 or 1, or a source with unknown_labels=True"):
        Mine().records(Role.PRIVATE)


NAMES = {
    "nul": "a\0b",
    "newline": "a\nb",
    "escape": "\x1b[2J",
    "none": "",
    "blank": "  ",
    "long": "a" * 100_000,
    "surrogate": "a\ud800",
    "separator": "a\u2028b",
    "control": "a\x9bb",
}


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert (
        len(error.splitlines()) == 1
        and len(error) < 1000
        and error.isascii()
        and error[:-1].isprintable()
    )
    return error


# every name where it is cheap, as a name of votes; here what is long, and what is no character
@pytest.mark.parametrize(
    "name",
    [
        name if key in ("long", "surrogate") else pytest.param(name, marks=pytest.mark.slow)
        for key, name in NAMES.items()
    ],
    ids=list(NAMES),
)
def test_a_sources_label_names(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label_names = np.array(["a", name, "c", "d"])
    np.savez(tmp_path / "data.npz", **(make_arrays() | {"label_names": label_names}))  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz")
    words = [f"--config={folder / part}.yaml" for part in ("data", "teachers")]
    assert "label names" in refused(
        ["teachers", "fit", *words, f"--run={tmp_path / 'run'}"], capsys
    )
    assert "label names" in refused(
        ["run", str(folder), f"--run={tmp_path / 'run'}", "--dry_run"], capsys
    )
    assert not (tmp_path / "run").exists() and not list(tmp_path.glob("*.sqlite"))


def test_names_of_all_languages_are_label_names() -> None:
    require_label_names(
        "label names", ["effusion", "Größe", "می‌خواهم", "👩‍⚕️", "two words", "a" * 300, "a\u00a0b"]
    )
