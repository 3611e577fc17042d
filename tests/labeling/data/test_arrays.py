import pickle
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from pate._labeling.data.records import as_text
from pate.data import (
    ArrayFeatures,
    Arrays,
    DataSource,
    PublicPCA,
    Role,
)
from pate.testing import SourceContract
from tests.conftest import Write, make_arrays


def without(arrays: dict[str, np.ndarray], row: int) -> dict[str, np.ndarray]:
    """Remove a record; arrays that are no rows of records stay."""
    num = len(arrays["ids"])
    return {
        name: np.delete(array, row, axis=0) if len(array) == num else array
        for name, array in arrays.items()
    }


class ArraysContract(SourceContract):
    """An ``.npz`` of 60 records, the first with the longest id of all."""

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = make_arrays(60) | {"group": np.repeat(np.arange(20), 3)}
        arrays["ids"] = arrays["ids"].astype("<U40")
        arrays["ids"][0] = "the longest id of all, of a private one"
        return arrays

    def write(self, folder: Path) -> None:
        np.savez(folder / "data.npz", **self.arrays())  # type: ignore[arg-type]

    def open(self, folder: Path) -> DataSource:
        return Arrays(folder / "data.npz")

    def place(self, folder: Path, role: Role, row: int) -> int:
        """Return where record ``row`` of a role is in the file."""
        ids = dict(np.load(folder / "data.npz"))["ids"].tolist()
        return int(ids.index(self.open(folder).load(role).ids[row]))

    def remove(self, folder: Path, row: int) -> None:
        arrays = dict(np.load(folder / "data.npz"))
        np.savez(folder / "data.npz", **without(arrays, self.place(folder, Role.PRIVATE, row)))  # type: ignore[arg-type]

    def alter(self, folder: Path, role: Role) -> None:
        arrays = dict(np.load(folder / "data.npz"))
        arrays["X"][self.place(folder, role, -1)] += 1
        np.savez(folder / "data.npz", **arrays)


class TestArrays(ArraysContract):
    """With a split of its own."""


class TestArraysSplitByHash(ArraysContract):
    """Where a hash of the group says who has which role."""

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = super().arrays()
        del arrays["split"]
        return arrays

    def open(self, folder: Path) -> DataSource:
        return Arrays(folder / "data.npz", public_fraction=0.3, test_fraction=0.3)


class TestArraysMapped(ArraysContract):
    """Through a feature map."""

    def open(self, folder: Path) -> DataSource:
        return Arrays(folder / "data.npz", features=PublicPCA(num_components=3))


def test_roles_labels_and_names(write_arrays: Write) -> None:
    data = Arrays(write_arrays(), labels=["c", "a"])
    assert data.label_names == ("c", "a")
    assert data.input_shape == (6,)
    sizes = {role: len(data.records(role)) for role in Role}
    assert sizes == {Role.PRIVATE: 400, Role.PUBLIC: 100, Role.TEST: 100}
    arrays = make_arrays()
    assert (data.records(Role.TEST).labels == arrays["Y"][500:][:, [2, 0]]).all()


def test_without_a_split_a_hash_of_the_group_decides(tmp_path: Path) -> None:
    arrays = make_arrays() | {"group": np.repeat(np.arange(120), 5)}
    del arrays["split"]
    np.savez(tmp_path / "d.npz", **arrays)  # type: ignore[arg-type]
    data = Arrays(tmp_path / "d.npz", public_fraction=0.3, test_fraction=0.2)
    groups = [set(as_text(data.records(role).groups).tolist()) for role in Role]  # type: ignore[arg-type]
    assert sum(map(len, groups)) == 120
    assert not (groups[0] & groups[1] or groups[0] & groups[2] or groups[1] & groups[2])
    assert 0.15 < len(data.records(Role.PUBLIC)) / 600 < 0.45


@pytest.mark.parametrize(("first", "second"), [(0, 399), (0, 499), (400, 599)])
def test_an_id_belongs_to_one_record_of_all_roles(
    write_arrays: Write, first: int, second: int
) -> None:
    ids = make_arrays()["ids"]
    ids[second] = ids[first]
    with pytest.raises(
        ValueError, match=rf"ids of data\.npz that occur once, got twice=\['{ids[first]}'\]"
    ):
        Arrays(write_arrays(ids=ids)).load(Role.PUBLIC)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_that_stays_in_its_file_has_the_bits_of_one_that_was_read(
    dtype: str, order: Literal["C", "F"], tmp_path: Path
) -> None:
    arrays = make_arrays(60)
    arrays["X"] = np.asarray(np.abs(arrays["X"]).reshape(60, 3, 2), dtype=dtype, order=order)
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    np.savez_compressed(tmp_path / "b.npz", **arrays)  # type: ignore[arg-type]
    stored, read = Arrays(tmp_path / "a.npz"), Arrays(tmp_path / "b.npz")
    for role in Role:
        lazy, whole = stored.load(role).features, read.load(role).features
        assert not isinstance(lazy, ArrayFeatures) and isinstance(whole, ArrayFeatures)
        for index in (np.arange(lazy.shape[0]), np.array([[4, 1], [1, 0]]), slice(2, 5), 3):
            np.testing.assert_array_equal(lazy[index], whole[index], strict=True)
        assert isinstance(pickle.loads(pickle.dumps(lazy)), ArrayFeatures)
        chunk = lazy.select(np.array([5, 2]))
        assert isinstance(chunk, ArrayFeatures)
        np.testing.assert_array_equal(chunk.values, whole.values[[5, 2]], strict=True)
        assert stored.fingerprint(role) == read.fingerprint(role)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("X", np.full((600, 6), np.nan), "finite features"),
        ("X", np.zeros((600, 0), np.float32), r"with a column at least, got shape=\[\d+, 0\]"),
        ("Y", np.full((600, 4), 2), r"labels among \(0, 1\)"),
        ("Y", np.ones((10, 4), dtype=np.int8), "10 rows"),
        ("label_names", np.array(list("abac")), r"label names of data\.npz that occur once"),
        ("split", np.full(600, 7), "split in 0"),
        ("split", np.zeros(600, dtype=int), "at least one public record"),
        ("split", np.arange(600).reshape(600, 1) % 3, r"split of shape \[N\]"),
        ("ids", np.arange(600) / 2, r"ids that are texts or integers, got types=\['float'\]"),
        ("ids", np.arange(599), "600 rows in every array"),
        ("group", np.arange(599), "600 rows in every array"),
        # a misspelled name, where a hash would decide what is private
        ("splits", np.zeros(600), r"data\.npz among X, Y, .*, got splits; did you mean split\?"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    name: str, array: np.ndarray, message: str, write_arrays: Write
) -> None:
    with pytest.raises(ValueError, match=message):
        Arrays(write_arrays(**{name: array})).records(Role.PUBLIC)
