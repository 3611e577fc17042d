"""Archives are read with care: what is not wanted is not inflated, and what cannot be true is not
believed."""

import fcntl
import io
import tracemalloc
from pathlib import Path
from typing import IO
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest

from pate._core.files.reading import read_arrays
from pate._core.files.writing import atomic_write, cell, write_text


def peak_of_reading(path: Path, *, unread: tuple[str, ...]) -> int:
    tracemalloc.start()
    try:
        read_arrays(path, ("a",), ("b",), unread=unread)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_arrays_that_are_not_wanted_are_not_inflated(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez_compressed(path, a=np.arange(3), c=np.zeros(1 << 24, dtype=np.uint8))
    assert path.stat().st_size < 1 << 16
    assert peak_of_reading(path, unread=("c",)) < 1 << 19
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"among a, b, got c$"):
        read_arrays(path, ("a",), ("b",))
    refused = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused < 1 << 19
    # the measure sees what is inflated
    np.savez_compressed(path, a=np.arange(3), b=np.zeros(1 << 24, dtype=np.uint8))
    assert peak_of_reading(path, unread=()) > 1 << 24


def npy(header: bytes, content: bytes = b"\0" * 24, version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + content


HEADERS = {
    "many_rows": npy(b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,)}\n"),
    "few_rows": npy(b"{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}\n"),
    "negative": npy(b"{'descr': '<i8', 'fortran_order': False, 'shape': (-3,)}\n"),
    "no_type": npy(b"{'descr': '<q99', 'fortran_order': False, 'shape': (3,)}\n"),
    "no_shape": npy(b"{'descr': '<i8', 'fortran_order': False}\n"),
    "no_python": npy(b"{'descr': '<i8', 'fortran_order': False, 'shape': (3,\n"),
    "no_text": npy(b"\xff\xfe\n"),
    "deep": npy(b"(" * 5000 + b"\n"),
    "objects": npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (3,)}\n"),
    "complex": npy(b"{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}\n"),
    "columns": npy(
        b"{'descr': [('a', '<i4'), ('b', '<i4')], 'fortran_order': False, 'shape': (3,)}\n"
    ),
    "no_letters": npy(
        b"{'descr': '<U2', 'fortran_order': False, 'shape': (3,)}\n", content=b"\0\0\x11\0" * 6
    ),
    "version": npy(
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}\n", version=b"\x09\x00"
    ),
    "cut": npy(b"{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}\n")[:40],
    "empty": b"",
    "no_magic": b"GIF89a" * 9,
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_cannot_be_true_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", HEADERS[name])
    with pytest.raises(ValueError) as raised:
        read_arrays(path, ("a",))
    text = str(raised.value)
    assert (
        text.startswith(f"Expected an .npz file of plain arrays in {path}, got a")
        and "\n" not in text
    ), text


def test_arrays_of_all_kinds_come_back(tmp_path: Path) -> None:
    arrays = {
        "a": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "b": np.array(["x", "yz"]),
        "c": np.array(7),
        "d": np.zeros((0, 4), dtype=np.uint8),
        "e": np.array([True]),
        "f": np.array(["", ""]),
    }
    np.savez(tmp_path / "arrays.npz", **arrays)  # type: ignore[arg-type]
    read = read_arrays(tmp_path / "arrays.npz", tuple(arrays))
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)
    # in the second version of the format, whose headers may be longer
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, arrays["a"], version=(2, 0))
    with ZipFile(tmp_path / "longer.npz", "w") as archive:
        archive.writestr("a.npy", buffer.getvalue())
    np.testing.assert_array_equal(read_arrays(tmp_path / "longer.npz", ("a",))["a"], arrays["a"])


@pytest.mark.parametrize("text", ["=cmd|'/C calc'!A1", "@SUM(A1)", "+x", "-x", "\t=1", "=1"])
def test_a_cell_is_never_a_formula(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "r0001", "-3", "+1.5e3", "a=b", "000001.jpg"])
def test_other_cells_stay_as_they_are(text: str) -> None:
    assert cell(text) == text


def test_drafts_of_killed_commands_go_when_the_file_is_written(tmp_path: Path) -> None:
    answers, left = tmp_path / "answers.csv", tmp_path / f".answers.csv.{'0123456789abcdef'}"
    others = {tmp_path / f".answers.csv.npz.{'0' * 16}", tmp_path / ".answers.csv.mine"}
    for path in (left, *others):
        path.write_text("half")
    with atomic_write(answers, "w") as slow:
        assert not left.exists()
        # another command writes the same file meanwhile: neither takes the other's draft
        write_text(answers, "quick")
        slow.write("slow")
    assert answers.read_text() == "slow" and set(tmp_path.iterdir()) == {answers, *others}


def test_a_draft_that_is_deleted_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[Path] = []
    flock = fcntl.flock

    def slow(file: IO[bytes], operation: int) -> None:
        (draft,) = tmp_path.glob(".*")
        if not locked:
            draft.unlink()
        locked.append(draft)
        flock(file, operation)

    monkeypatch.setattr("fcntl.flock", slow)
    write_text(tmp_path / "answers.csv", "whole")
    assert len(locked) == 2 and (tmp_path / "answers.csv").read_text() == "whole"
