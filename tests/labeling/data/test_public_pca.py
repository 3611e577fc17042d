from pathlib import Path

import numpy as np
import pytest

from pate.data import ArrayFeatures, Arrays, PublicPCA, Role
from tests.conftest import Write, make_arrays


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
