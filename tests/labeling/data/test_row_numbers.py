"""Row numbers are no ids: removing one record would rename others."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.data import Arrays, DataSource, NumberTable, TextTable

ROWS = 30
SPLIT = np.repeat([0, 1, 2], ROWS // 3)
Open = Callable[..., DataSource]


def in_arrays(folder: Path, ids: Sequence[str | int], **options: Any) -> DataSource:
    columns = {
        "X": np.random.default_rng(0).normal(size=(ROWS, 3)),
        "Y": np.ones((ROWS, 1)),
        "ids": np.array(ids),
        "split": SPLIT,
    }
    np.savez(folder / "data.npz", **columns)  # type: ignore[arg-type, unused-ignore]
    return Arrays(folder / "data.npz", **options)


def in_lines(folder: Path, ids: list[str], head: str, value: str) -> Path:
    path = folder / "data.csv"
    rows = [
        f"{name},{split},{value},{row % 2}"
        for row, (name, split) in enumerate(zip(ids, SPLIT, strict=True))
    ]
    path.write_text("\n".join([f"id,split,{head},y", *rows]))
    return path


def in_numbers(folder: Path, ids: list[str], **options: Any) -> DataSource:
    return NumberTable(in_lines(folder, ids, "x", "1.5"), labels=["y"], **options)


def in_texts(folder: Path, ids: list[str], **options: Any) -> DataSource:
    return TextTable(in_lines(folder, ids, "text", "good"), **options)


SOURCES: list[Open] = [in_arrays, in_numbers, in_texts]
NUMBERED = {
    "from 0": [str(row) for row in range(ROWS)],
    "from 1": [str(row + 1) for row in range(ROWS)],
    "of a spreadsheet with a header": [str(row + 2) for row in range(ROWS)],
    "downwards": [str(row) for row in range(ROWS)][::-1],
    "floats": [f"{row}.0" for row in range(ROWS)],
    "padded": [f"{row:06d}" for row in range(ROWS)],
    "private ones by themselves": [*map(str, range(10)), *(f"p{row}" for row in range(20))],
    "private and test rows": [
        *map(str, range(10)),
        *(f"p{row}" for row in range(10)),
        *map(str, range(10, 20)),
    ],
}
NAMES = {
    "names": [f"r{row}" for row in range(ROWS)],
    "in another order": np.random.default_rng(0).permutation(ROWS).astype(str).tolist(),
    "with a gap": [str(row + (row > 4)) for row in range(ROWS)],
    "from 1000": [str(row + 1000) for row in range(ROWS)],
    "samples by themselves": [*(f"p{row}" for row in range(10)), *map(str, range(20))],
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("ids", NUMBERED.values(), ids=NUMBERED)
def test_row_numbers_are_refused_unless_they_are_permanent(
    source: Open, ids: list[str], tmp_path: Path
) -> None:
    if source is in_texts:
        pytest.importorskip("sklearn")
    with pytest.raises(ValueError, match="ids that stay when another record is removed") as raised:
        source(tmp_path, ids).require_distinct()
    assert "permanent_ids" in str(raised.value) and "\n" not in str(raised.value)
    # how many there are is private
    assert str(ROWS) not in str(raised.value) and str(ROWS // 3) not in str(raised.value)
    source(tmp_path, ids, permanent_ids=True).require_distinct()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("ids", NAMES.values(), ids=NAMES)
def test_ids_of_the_records_are_taken(source: Open, ids: list[str], tmp_path: Path) -> None:
    if source is in_texts:
        pytest.importorskip("sklearn")
    source(tmp_path, ids).require_distinct()


def test_integers_are_ids_like_texts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ids that stay"):
        in_arrays(tmp_path, np.arange(ROWS).tolist()).require_distinct()
    in_arrays(tmp_path, np.arange(500, 500 + ROWS).tolist()).require_distinct()


class Register(Arrays):
    """A source whose author says what its settings would."""

    permanent_ids = copies = unknown_labels = property(lambda source: True)


def test_a_property_of_a_source_goes_before_its_setting(tmp_path: Path) -> None:
    in_arrays(tmp_path, NUMBERED["from 0"])
    Register(tmp_path / "data.npz").require_distinct()
    with pytest.raises(ValueError, match=r"^Expected copies True or False, got copies=nan$"):
        in_arrays(tmp_path, NAMES["names"], copies=np.nan)
