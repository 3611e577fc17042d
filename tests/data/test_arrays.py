from pathlib import Path

import numpy as np
import pytest

from pate.data import Arrays, CelebA, CelebAAttributes, DataModule, PublicPCA, Records, Role
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
    groups = [set(data.records(role).groups.tolist()) for role in Role]
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
    ],
)
def test_bad_arrays(write_arrays: Write, changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Arrays(write_arrays(**changes)).records(Role.PUBLIC)


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no arrays")
    np.savez(tmp_path / "half.npz", X=np.zeros((2, 2)))
    for name, message in (("none", "exists"), ("text", "plain arrays"), ("half", "missing=\\['Y'\\]")):
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
    data = CelebAAttributes(tmp_path / "table.npz", labels=["x", "v"])
    records = data.records(Role.PRIVATE)
    assert (records.labels == (table[:30][:, [2, 0]] == 1)).all()
    assert np.array_equal(np.asarray(records.features), table[:30][:, [1, 3, 4]])
    assert len(np.unique(records.groups)) == 10
    with pytest.raises(ValueError, match="attributes left as features"):
        CelebAAttributes(tmp_path / "table.npz", labels=list("vwxyz")).records(Role.TEST)


def test_the_ledger_lies_beside_the_data(write_arrays: Write) -> None:
    path = write_arrays("faces.v1.npz")
    beside = path.parent / "faces.v1.ledger.sqlite"
    assert Arrays(path).ledger_path == CelebAAttributes(path, labels=["a"]).ledger_path == beside
    assert CelebA(path.parent).ledger_path == path.parent / "ledger.sqlite"
    assert Unplaced().ledger_path is None


class Unplaced(DataModule):
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
