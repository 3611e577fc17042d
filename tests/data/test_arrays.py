from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.data import Arrays, CelebA, CelebAAttributes, DataSource, PublicPCA, Records, Role
from pate.data.checks import as_text
from tests.conftest import Write, make_arrays


def test_roles_labels_and_names(write_arrays: Write) -> None:
    data = Arrays(write_arrays(), labels=["c", "a"])
    assert data.label_names == ("c", "a")
    assert data.input_shape == (6,)
    sizes = {role: len(data.records(role)) for role in Role}
    assert sizes == {Role.PRIVATE: 400, Role.PUBLIC: 100, Role.TEST: 100}
    arrays = make_arrays()
    assert (data.records(Role.TEST).labels == arrays["Y"][500:][:, [2, 0]]).all()


def test_signed_labels_are_told_apart(write_arrays: Write) -> None:
    signed = make_arrays()["Y"].astype(np.int8) * 2 - 1
    data = Arrays(write_arrays(Y=signed))
    assert (data.records(Role.PUBLIC).labels == make_arrays()["Y"][400:500]).all()


def test_without_a_split_a_hash_of_the_group_decides(tmp_path: Path) -> None:
    arrays = make_arrays() | {"group": np.repeat(np.arange(120), 5)}
    del arrays["split"]
    np.savez(tmp_path / "d.npz", **arrays)  # type: ignore[arg-type]
    data = Arrays(tmp_path / "d.npz", public_fraction=0.3, test_fraction=0.2)
    groups = [set(as_text(data.records(role).groups).tolist()) for role in Role]  # type: ignore[arg-type]
    assert sum(map(len, groups)) == 120
    assert not (groups[0] & groups[1] or groups[0] & groups[2] or groups[1] & groups[2])
    assert 0.15 < len(data.records(Role.PUBLIC)) / 600 < 0.45


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": np.full((600, 6), np.nan)}, "finite features"),
        ({"Y": np.full((600, 4), 2)}, r"labels among \(0, 1\)"),
        ({"Y": np.empty((600, 0), dtype=np.int8)}, "labels of shape"),
        ({"Y": np.ones((10, 4), dtype=np.int8)}, "10 rows"),
        ({"label_names": np.array(["a"])}, "4 label_names"),
        ({"split": np.full(600, 7)}, "split in 0"),
        ({"split": np.zeros(600, dtype=int)}, "at least one public record"),
        ({"ids": np.full(600, "same")}, "ids that are unique"),
        ({"ids": np.arange(599)}, "600 rows in every array"),
        ({"group": np.arange(599)}, "600 rows in every array"),
    ],
)
def test_bad_arrays(write_arrays: Write, changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Arrays(write_arrays(**changes)).records(Role.PUBLIC)


def test_row_numbers_are_no_ids(tmp_path: Path) -> None:
    arrays = make_arrays()
    del arrays["ids"]
    np.savez(tmp_path / "d.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"own ids in d\.npz, given once .* ids=np\.arange\(len\(X\)\)") as raised:
        Arrays(tmp_path / "d.npz").records(Role.PUBLIC)
    assert "\n" not in str(raised.value)


def without(arrays: dict[str, np.ndarray], row: int) -> dict[str, np.ndarray]:
    """Remove a record; arrays that are no rows of records stay."""
    num = len(arrays["ids"])
    return {name: np.delete(array, row, axis=0) if len(array) == num else array for name, array in arrays.items()}


def same(first: Records, second: Records) -> bool:
    names = ("labels", "ids", "groups", "features")
    pairs = [[np.asarray(getattr(records, name)) for records in (first, second)] for name in names]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("split", [True, False])
def test_public_and_test_records_do_not_know_who_else_is_there(split: bool, tmp_path: Path) -> None:
    """Neither their ids, nor their order, nor how wide their ids are."""
    arrays = make_arrays() | {"group": np.repeat(np.arange(200), 3)}
    arrays["ids"] = arrays["ids"].astype("<U40")
    arrays["ids"][0] = "the longest id of all, of a private one"
    if not split:
        del arrays["split"]
    found = []
    for name, content in (("a", arrays), ("b", without(arrays, 0))):
        np.savez(tmp_path / f"{name}.npz", **content)  # type: ignore[arg-type]
        data = Arrays(tmp_path / f"{name}.npz", features=PublicPCA(num_components=3))
        found.append({role: data.records(role) for role in Role})
    whole, less = found
    assert whole[Role.PRIVATE].ids[0] == arrays["ids"][0]
    for role in (Role.PUBLIC, Role.TEST):
        assert same(whole[role], less[role])
    assert set(less[Role.PRIVATE].ids) == set(whole[Role.PRIVATE].ids[1:])


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no arrays")
    np.savez(tmp_path / "half.npz", X=np.zeros((2, 2)))
    for name, message in (("none", "missing="), ("text", "plain arrays"), ("half", "missing=\\['Y'\\]")):
        with pytest.raises(ValueError, match=message):
            Arrays(tmp_path / f"{name}.npz").records(Role.PRIVATE)


def test_unknown_label(write_arrays: Write) -> None:
    with pytest.raises(ValueError, match=r"unknown=\['z'\]"):
        _ = Arrays(write_arrays(), labels=["a", "z"]).label_names


def test_path_with_a_variable(
    write_arrays: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_arrays()
    monkeypatch.setenv("HERE_IS", str(tmp_path))
    assert Arrays(Path("$HERE_IS/data.npz")).num_labels == 4
    with pytest.raises(ValueError, match="environment variables"):
        Arrays(Path("$NOT_SET_ANYWHERE/data.npz"))


def test_attribute_table(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    table = generator.integers(0, 2, size=(90, 5)) * 2 - 1
    np.savez(
        tmp_path / "table.npz",
        attr=table.astype(np.int8),
        partition=np.repeat([0, 1, 2], 30),
        identity=np.arange(90) // 3,
        attr_names=np.array(list("vwxyz")),
    )
    with pytest.raises(ValueError, match=r"the official 202599 rows in table\.npz, .* or ids of its own.* got rows=90"):
        CelebAAttributes(tmp_path / "table.npz", labels=["x", "v"]).records(Role.PRIVATE)
    arrays = {**np.load(tmp_path / "table.npz"), "ids": np.char.mod("%03d.png", np.arange(90))}
    np.savez(tmp_path / "table.npz", **arrays)
    data = CelebAAttributes(tmp_path / "table.npz", labels=["x", "v"])
    records = data.records(Role.PRIVATE)
    assert (records.labels == (table[:30][:, [2, 0]] == 1)).all()
    assert np.array_equal(np.asarray(records.features), table[:30][:, [1, 3, 4]])
    assert records.groups is not None and len(np.unique(records.groups)) == 10
    np.savez(tmp_path / "less.npz", **without(arrays, 4))  # type: ignore[arg-type]
    less = CelebAAttributes(tmp_path / "less.npz", labels=["x", "v"])
    assert less.records(Role.PRIVATE).ids.tolist() == [name for name in records.ids.tolist() if name != "004.png"]
    for role in (Role.PUBLIC, Role.TEST):
        assert same(data.records(role), less.records(role))
    with pytest.raises(ValueError, match="attributes left as features"):
        CelebAAttributes(tmp_path / "table.npz", labels=list("vwxyz")).records(Role.TEST)


def test_the_ledger_lies_beside_the_data(write_arrays: Write) -> None:
    path = write_arrays("faces.v1.npz")
    beside = path.parent / "faces.v1.ledger.sqlite"
    assert Arrays(path).ledger_path == CelebAAttributes(path, labels=["a"]).ledger_path == beside
    assert CelebA(path.parent).ledger_path == path.parent / "ledger.sqlite"
    assert Unplaced().ledger_path is None


class Unplaced(DataSource):
    """A source that has no place on disk."""

    label_names = ("a",)

    def load(self, role: Role) -> Records:
        raise NotImplementedError


def test_pca_is_fitted_on_public_features_alone(write_arrays: Write, tmp_path: Path) -> None:
    first = Arrays(write_arrays(), features=PublicPCA(num_components=3))
    changed = make_arrays()["X"].copy()
    changed[:400] *= 10
    second = Arrays(write_arrays("other.npz", X=changed), features=PublicPCA(num_components=3))
    assert first.input_shape == (3,)
    mapped = np.asarray(first.records(Role.PUBLIC).features)
    assert np.array_equal(mapped, np.asarray(second.records(Role.PUBLIC).features))
    assert np.allclose(mapped.std(axis=0), 1, atol=0.05)
    assert not np.allclose(first.records(Role.PRIVATE).features[0], second.records(Role.PRIVATE).features[0])
    with pytest.raises(ValueError, match="num_components < 6"):
        Arrays(write_arrays(), features=PublicPCA(num_components=6)).records(Role.PUBLIC)


@pytest.mark.parametrize("size", [7, 60])
def test_a_record_s_components_depend_on_that_record_alone(size: int) -> None:
    """Products of many rows round a row by where it stands: all that follow a removed record stand elsewhere."""
    features = np.random.default_rng(0).standard_normal((4097, size)).astype(np.float32)
    mapping = PublicPCA(num_components=6).fit(features[:500])
    whole = mapping.transform(features)
    for row in (0, 2000, 4096):
        assert np.array_equal(np.delete(whole, row, axis=0), mapping.transform(np.delete(features, row, axis=0)))
    altered = features.copy()
    altered[2000] *= 1e6
    assert np.flatnonzero((mapping.transform(altered) != whole).any(axis=1)).tolist() == [2000]
    expected = (features - features[:500].mean(axis=0)) @ mapping._weights
    np.testing.assert_allclose(whole, expected, rtol=0, atol=1e-4)


def test_the_official_table_carries_the_images_numbers(tmp_path: Path) -> None:
    official = np.repeat([0, 1, 2], [162_770, 19_867, 19_962])
    table = np.zeros((len(official), 2), dtype=np.int8)
    arrays: dict[str, Any] = {"attr": table, "identity": official, "attr_names": np.array(["a", "b"])}
    np.savez(tmp_path / "table.npz", partition=official, **arrays)
    found = CelebAAttributes(tmp_path / "table.npz", labels=["a"]).records(Role.PUBLIC)
    assert found.ids[[0, -1]].tolist() == ["162771.jpg", "182637.jpg"]
    np.savez(tmp_path / "table.npz", partition=np.roll(official, 1), **arrays)
    with pytest.raises(ValueError, match="the official 202599 rows"):
        CelebAAttributes(tmp_path / "table.npz", labels=["a"]).records(Role.PUBLIC)
