from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.data import ArrayFeatures, Arrays, DataSource, DrawnPublic, PublicScaling, Role
from pate.testing import SourceContract
from tests.conftest import make_arrays
from tests.labeling.data.test_arrays import ArraysContract


def drawn(folder: Path, bounds: Any = None, samples: str = "samples.npz") -> DrawnPublic:
    return DrawnPublic(Arrays(folder / "data.npz"), samples=folder / samples, bounds=bounds)


class TestDrawnPublic(ArraysContract):
    def write(self, folder: Path) -> None:
        super().write(folder)
        source = drawn(folder)
        records = source.rehearsal().load(Role.PUBLIC)
        np.savez(folder / "samples.npz", X=np.asarray(records.features), ids=records.ids)

    def open(self, folder: Path) -> DataSource:
        return drawn(folder)

    def alter(self, folder: Path, role: Role) -> None:
        if role is not Role.PUBLIC:
            super().alter(folder, role)
            return
        arrays = dict(np.load(folder / "samples.npz"))
        arrays["X"][-1] += 1
        np.savez(folder / "samples.npz", **arrays)


del ArraysContract
assert issubclass(TestDrawnPublic, SourceContract)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "data.npz", **make_arrays(60))  # type: ignore[arg-type]
    return tmp_path


@pytest.mark.parametrize("bounds", [None, [-1, 1], [[0.0] * 4, [9.0] * 4], [5.0, 6.0]])
def test_features_of_drawn_rows_are_mapped_back_to_them(folder: Path, bounds: Any) -> None:
    source = drawn(folder, bounds)
    width = source.load(Role.PRIVATE).features.shape[1]
    if bounds is not None and isinstance(bounds[0], list):
        source = drawn(folder, [[0.0] * width, [9.0] * width])
    rows = np.random.default_rng(0).uniform(0, 0.4, size=(50, width))
    rows[0] *= 10
    mapped = source.scaling.transform(ArrayFeatures(source.unscaled(rows))) / np.sqrt(2)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    assert mapped == pytest.approx(rows * np.minimum(1, 0.97 / lengths), abs=1e-5)


def test_narrow_rows_are_read_by_random_features_of_drawn_samples(folder: Path) -> None:
    source = drawn(folder)
    rehearsal = source.rehearsal()
    rows = rehearsal.records(Role.PUBLIC).features
    width = source.load(Role.PRIVATE).features.shape[1]
    assert rehearsal.feature_map.widths == (width, 600) and rows.shape == (1200, width + 600)
    # the map that is fitted to made-up samples is another
    assert source.feature_map is not rehearsal.feature_map
    assert source.rehearsal().feature_map is not source.feature_map


def test_without_bounds_only_the_direction_of_a_row_counts(folder: Path) -> None:
    source = drawn(folder)
    rows = np.asarray(source.load(Role.PRIVATE).features)
    one, other = (
        source.scaling.transform(ArrayFeatures((rows * k).astype(np.float32))) for k in (1, 100)
    )
    assert one == pytest.approx(other, abs=1e-5)
    assert np.linalg.norm(one, axis=1) == pytest.approx(np.sqrt(2), abs=1e-3)


def test_within_bounds_lengths_count(folder: Path) -> None:
    source = drawn(folder, [-5, 5])
    rows = np.asarray(source.load(Role.PRIVATE).features)
    one, other = (
        source.scaling.transform(ArrayFeatures((rows / k).astype(np.float32))) for k in (1, 10)
    )
    assert np.linalg.norm(other, axis=1).max() < np.linalg.norm(one, axis=1).min()


def test_missing_samples_are_named_with_the_way_to_draw_them(folder: Path) -> None:
    expected = "Expected public samples, which `pate run` or Pipeline.draw_public_samples draws"
    with pytest.raises(ValueError, match=expected):
        drawn(folder).load(Role.PUBLIC)


def test_a_source_with_a_map_of_its_own_is_refused(folder: Path) -> None:
    source = Arrays(folder / "data.npz", features=PublicScaling())
    with pytest.raises(ValueError, match="Expected a source without `features` in DrawnPublic"):
        DrawnPublic(source, samples=folder / "samples.npz")


@pytest.mark.parametrize("bounds", [[1, 1], [0, float("inf")], [[0, 1], [1]], [0]])
def test_wrong_bounds_are_refused(folder: Path, bounds: Any) -> None:
    with pytest.raises(ValueError, match="Expected bounds"):
        _ = drawn(folder, bounds).scaling
