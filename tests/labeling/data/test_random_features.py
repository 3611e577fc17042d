"""Random features of a Gaussian kernel, by public samples alone."""

import numpy as np
import pytest

from pate.data import ArrayFeatures, Arrays, AutoFeatures, PublicScaling, Role
from tests.conftest import Write, make_arrays


def test_frequencies_go_by_the_median_distance_of_scaled_rows() -> None:
    rows = np.random.default_rng(0).standard_normal((400, 5)).astype(np.float32)
    scaled = PublicScaling().fit(ArrayFeatures(rows)).transform(ArrayFeatures(rows))
    mapping = AutoFeatures(20_000).fit(ArrayFeatures(rows))
    squares = ((scaled[:, None].astype(np.float64) - scaled) ** 2).sum(axis=2)
    # the median distance of all pairs is about the one between two halves
    bandwidth = np.median(np.sqrt(squares[np.triu_indices(400, 1)]))
    _, alone, _ = mapping.widths
    assert mapping._frequencies[:, alone:].std() * bandwidth == pytest.approx(1, abs=0.1)


def test_a_tenth_of_waves_at_most_goes_along_single_columns_that_can_bend() -> None:
    """As many along each, by its deviation, in whatever order columns stand."""
    rows = np.random.default_rng(0).standard_normal((400, 5)) * [1, 10, 1, 1, 3]
    rows[:, 2] = rows[:, 2] > 0  # a straight line through two values has no bend
    for order in (np.arange(5), np.arange(5)[::-1]):
        features = ArrayFeatures(rows[:, order].astype(np.float32))
        mapping = AutoFeatures(130).fit(features)
        assert mapping.widths == (5, 12, 118)
        alone = mapping._frequencies[:, :12]
        assert (np.count_nonzero(alone, axis=1) == np.where(order == 2, 0, 3)).all()
        turns = alone * PublicScaling().fit(features).transform(features).std(axis=0)[:, None]
        assert (turns[alone != 0] > 1).all() and (turns < 2).all()
    assert AutoFeatures(39).fit(features).widths == (5, 39)  # fewer than ten a column


@pytest.mark.filterwarnings("error")
def test_samples_that_hardly_differ_have_features() -> None:
    rows = ArrayFeatures(np.array([[0], [1e-42], [1]], dtype=np.float32))
    assert np.isfinite(AutoFeatures().fit(rows).transform(rows)).all()


def test_it_is_fitted_on_public_features_and_a_seed_alone(write_arrays: Write) -> None:
    changed = make_arrays()["X"].copy()
    changed[:400] *= 10
    first, second, third = (
        Arrays(write_arrays(f"{name}.npz", X=features), features=AutoFeatures(seed=seed))
        for name, features, seed in (
            ("first", make_arrays()["X"], 0),
            ("second", changed, 0),
            ("third", changed, 1),
        )
    )
    mapped = [np.asarray(source.records(Role.PUBLIC).features) for source in (first, second, third)]
    assert first.input_shape == (6 + 50,)  # half of 100 public samples
    assert np.array_equal(mapped[0], mapped[1]) and not np.allclose(mapped[1], mapped[2])


@pytest.mark.parametrize("size", [1, 60])
def test_a_row_is_mapped_by_itself(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.random.default_rng(0).standard_normal((1500, size)).astype(np.float32)
    mapping = AutoFeatures(num_features=33).fit(ArrayFeatures(features[:500]))
    whole = mapping.transform(ArrayFeatures(features))
    monkeypatch.setattr("pate._labeling.data.records._BLOCK_BYTES", 1000)
    assert np.array_equal(mapping.transform(ArrayFeatures(features[:600])), whole[:600])
    assert np.array_equal(
        mapping.transform(ArrayFeatures(np.delete(features, 700, axis=0))),
        np.delete(whole, 700, axis=0),
    )


def test_rows_of_any_numbers_leave_their_neighbors_as_they_are() -> None:
    """A lost row is NaN where it bends, and no other row is."""
    features = np.random.default_rng(1).standard_normal((300, 6)).astype(np.float32)
    mapping = AutoFeatures(num_features=13).fit(ArrayFeatures(features[:200]))
    whole = mapping.transform(ArrayFeatures(features))
    features[100, 2], features[201], features[250] = np.nan, 1e30, -np.inf
    others = np.delete(np.arange(300), [100, 201, 250])
    changed = mapping.transform(ArrayFeatures(features))
    np.testing.assert_array_equal(changed[others], whole[others])
    assert np.isnan(changed[100, -13:]).all() and np.isfinite(changed[[201, 250]]).all()


def test_waves_are_those_of_plain_products() -> None:
    """But for the grids, whose steps are far below the last digit of the features."""
    features = np.random.default_rng(2).standard_normal((300, 20)).astype(np.float32)
    mapping = AutoFeatures(num_features=30).fit(ArrayFeatures(features))
    scaled = PublicScaling().fit(ArrayFeatures(features)).transform(ArrayFeatures(features))
    angles = scaled.astype(np.float64) @ mapping._frequencies + mapping._phases
    waves = np.sqrt(2 / 30) * np.cos(angles) - scaled.astype(np.float64) @ mapping._straight
    mapped = mapping.transform(ArrayFeatures(features))
    np.testing.assert_array_equal(mapped[:, :20], scaled)
    np.testing.assert_allclose(mapped[:, 20:], waves, atol=3e-6)
