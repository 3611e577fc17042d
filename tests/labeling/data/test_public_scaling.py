"""Columns in comparable units, rows of about unit length, and nothing of a private record in
either."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pate._labeling.data.records import as_features
from pate.data import ArrayFeatures, Arrays, DataSource, PublicPCA, PublicScaling, Records, Role
from tests.conftest import Write, make_arrays


def scaled(features: np.ndarray, public: slice = slice(None)) -> np.ndarray:
    """Return features ``[N, F]`` scaled by those of ``public`` rows."""
    mapping = PublicScaling().fit(ArrayFeatures(features[public]))
    return mapping.transform(ArrayFeatures(features))


def mixed(rows: int = 500) -> np.ndarray:
    """Return a table of a rare word, a frequent one, a year, an income, a constant and a tiny
    measurement."""
    generator = np.random.default_rng(1)
    return np.column_stack(
        (
            generator.random(rows) < 0.02,
            generator.random(rows) < 0.6,
            generator.normal(2000, 10, rows),
            np.exp(generator.normal(10, 2, rows)),
            np.full(rows, 1e5),
            generator.normal(0, 1e-6, rows),
        )
    ).astype(np.float32)


class FittedOnAll(Arrays):
    """The fault that is looked for: private rows among those by which the columns are scaled."""

    def records(self, role: Role) -> Records:
        features = [self.load(each).features for each in Role]
        everybody = np.concatenate([each[np.arange(each.shape[0])] for each in features])
        mapping = PublicScaling().fit(ArrayFeatures(everybody))
        records = self.load(role)
        return replace(records, features=as_features(mapping.transform(records.features)))


def require_no_trace(source: type[Arrays], folder: Path) -> None:
    """Fail unless a private record, gone or extreme, leaves all others as they were, bit for
    bit."""

    def read(name: str, arrays: dict[str, np.ndarray]) -> DataSource:
        np.savez(folder / name, **arrays)  # type: ignore[arg-type]
        return source(folder / name, features=None if source is FittedOnAll else PublicScaling())

    arrays = make_arrays()
    extreme = arrays | {"X": arrays["X"].copy()}
    extreme["X"][7] = 3e38
    before, altered = read("before.npz", arrays), read("altered.npz", extreme)
    gone = read(
        "gone.npz",
        {n: a if n == "label_names" else np.delete(a, 7, axis=0) for n, a in arrays.items()},
    )
    for role in Role:
        expected = np.asarray(before.records(role).features)
        others = np.delete(expected, 7, axis=0) if role is Role.PRIVATE else expected
        found = np.asarray(altered.records(role).features)
        assert np.isfinite(found).all() and np.linalg.norm(found, axis=1).max() < 1.4143
        assert np.array_equal(
            np.delete(found, 7, axis=0) if role is Role.PRIVATE else found, others
        )
        assert np.array_equal(np.asarray(gone.records(role).features), others)


def test_a_private_record_leaves_no_trace(tmp_path: Path) -> None:
    require_no_trace(Arrays, tmp_path)


def test_scaling_that_is_fitted_on_private_rows_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        require_no_trace(FittedOnAll, tmp_path)


@pytest.mark.parametrize("size", [1, 60])
def test_a_row_is_mapped_by_itself(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.random.default_rng(0).standard_normal((4097, size)).astype(np.float32)
    whole = scaled(features, slice(500))
    monkeypatch.setattr("pate._labeling.data.records._BLOCK_BYTES", 1000)
    assert np.array_equal(scaled(features[:600], slice(500)), whole[:600])
    assert np.array_equal(
        scaled(np.delete(features, 2000, axis=0), slice(500)), np.delete(whole, 2000, axis=0)
    )


def test_columns_of_all_units_say_about_as_much() -> None:
    """A rare word is measured by its size, not by how often it occurs; wild values and constants do
    no harm."""
    mapping = PublicScaling().fit(ArrayFeatures(mixed()))
    departures = mapping._departures(mixed())
    present = departures[:, 0] != 0
    assert 0 < present.mean() < 0.05 and np.allclose(departures[present, 0], 1)
    assert set(departures[:, 1]) == {0, -1} and not departures[:, 4].any()
    assert np.allclose(np.median(np.abs(departures[:, [2, 3, 5]]), axis=0), 1, atol=0.02)
    assert np.abs(departures).max() == 10
    lengths = np.linalg.norm(scaled(mixed()), axis=1)
    assert np.isclose(np.median(lengths), 1, atol=0.02) and lengths.max() < 1.4143


def test_pca_is_fitted_on_public_features_alone(write_arrays: Write, tmp_path: Path) -> None:
    first = Arrays(write_arrays(), features=PublicPCA(num_components=3))
    changed = make_arrays()["X"].copy()
    changed[:400] *= 10
    second = Arrays(write_arrays("other.npz", X=changed), features=PublicPCA(num_components=3))
    assert first.input_shape == (3,)
    mapped = np.asarray(first.records(Role.PUBLIC).features)
    assert np.array_equal(mapped, np.asarray(second.records(Role.PUBLIC).features))
    assert np.allclose(mapped.std(axis=0), 1, atol=0.05)
    assert not np.allclose(
        first.records(Role.PRIVATE).features[0], second.records(Role.PRIVATE).features[0]
    )
    with pytest.raises(ValueError, match="num_components < 6"):
        Arrays(write_arrays(), features=PublicPCA(num_components=6)).records(Role.PUBLIC)


@pytest.mark.parametrize("size", [7, 60])
def test_a_record_s_components_depend_on_that_record_alone(size: int) -> None:
    """Products of many rows round a row by where it stands: all that follow a removed record stand
    elsewhere."""
    features = np.random.default_rng(0).standard_normal((4097, size)).astype(np.float32)
    mapping = PublicPCA(num_components=6).fit(ArrayFeatures(features[:500]))
    whole = mapping.transform(ArrayFeatures(features))
    for row in (0, 2000, 4096):
        assert np.array_equal(
            np.delete(whole, row, axis=0),
            mapping.transform(ArrayFeatures(np.delete(features, row, axis=0))),
        )
    altered = features.copy()
    altered[2000] *= 1e6
    assert np.flatnonzero(
        (mapping.transform(ArrayFeatures(altered)) != whole).any(axis=1)
    ).tolist() == [2000]
    expected = (features - features[:500].mean(axis=0)) @ mapping._weights
    np.testing.assert_allclose(whole, expected, rtol=0, atol=1e-4)
