"""Patches of pictures: fitted on public ones, each picture by itself, the same in torch."""

from pathlib import Path

import numpy as np
import pytest

from pate._labeling.data.feature_maps import needs_torch, restore_map, save_map
from pate.data import ArrayFeatures, Arrays, ChainedFeatures, PatchFeatures, PublicScaling, Role
from tests.conftest import Write

GRAY, COLOR, LAST = (12, 11), (3, 12, 12), (12, 12, 3)


def pictures(num: int, shape: tuple[int, ...], seed: int = 0) -> ArrayFeatures:
    return ArrayFeatures(np.random.default_rng(seed).random((num, *shape), dtype=np.float32))


def small(**changes: int) -> PatchFeatures:
    return PatchFeatures(**{"num_centers": 8, "pool": 2} | changes)


def test_a_picture_is_described_as_the_definition_says() -> None:
    raw = pictures(60, COLOR)
    mapping = small().fit(raw)
    floor, filters, offsets = (mapping.state(COLOR)[n] for n in ("floor", "filters", "offsets"))
    expected = np.zeros((8, 2, 2))
    for row in range(9):
        for column in range(9):
            patch = raw.values[7, :, row : row + 4, column : column + 4].ravel()
            likeness = filters @ (patch - patch.mean()) / np.sqrt(patch.var() + floor) - offsets
            expected[:, row * 2 // 9, column * 2 // 9] += np.maximum(likeness, 0)
    found = mapping.transform(raw)
    assert found.shape == (60, 32) and found.dtype == np.float32
    assert np.allclose(found[7], expected.ravel(), atol=1e-4) and expected.std() > 0.1


def test_whitened_patches_are_compared_with_centers_of_length_one() -> None:
    """Likenesses to centers that do not matter have about variance 1, whatever the pictures."""
    raw = pictures(300, GRAY).values
    smooth = raw[:, 1:, 1:] + raw[:, :-1, 1:] + raw[:, 1:, :-1] + raw[:, :-1, :-1]
    mapping = small(num_centers=40, pool=1).fit(ArrayFeatures(smooth))
    state = mapping.state(smooth.shape[1:])
    patches = smooth.reshape(300, -1)[:, state["index"]]
    patches = patches - patches.mean(axis=1, keepdims=True)
    patches /= np.sqrt((patches**2).mean(axis=1, keepdims=True) + state["floor"])
    likeness = state["filters"] @ patches - state["offsets"][:, None]
    assert np.allclose(likeness.mean(axis=(0, 2)), -0.5, atol=0.05)
    assert np.all(np.abs(likeness.std(axis=(0, 2)) - 0.9) < 0.2)


@pytest.mark.parametrize("shape", [GRAY, COLOR, LAST])
def test_units_of_pixels_do_not_matter(shape: tuple[int, ...]) -> None:
    raw = pictures(60, shape)
    bytes_ = ArrayFeatures(raw.values * 255 + 1000)
    first, second = (small().fit(each).transform(each) for each in (raw, bytes_))
    assert np.allclose(first, second, atol=0.05) and first.std() > 0.5


def test_channels_may_be_the_first_axis_or_the_last() -> None:
    last = pictures(60, LAST)
    first = ArrayFeatures(np.ascontiguousarray(np.moveaxis(last.values, 3, 1)))
    assert np.allclose(small().fit(last).transform(last), small().fit(first).transform(first))


def test_it_is_fitted_on_public_pictures_and_a_seed_alone(write_arrays: Write) -> None:
    raw = pictures(600, GRAY).values
    changed = raw.copy()
    changed[:400] *= 10
    mapped = [
        np.asarray(
            Arrays(write_arrays(f"{seed}{scale[0, 0, 0]}.npz", X=scale), features=small(seed=seed))
            .records(Role.PUBLIC)
            .features
        )
        for scale, seed in ((raw, 0), (changed, 0), (raw, 1))
    ]
    assert np.array_equal(mapped[0], mapped[1]) and not np.allclose(mapped[1], mapped[2])


@pytest.mark.parametrize("shape", [GRAY, COLOR])
def test_a_picture_is_mapped_by_itself(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = pictures(300, shape).values
    mapping = small(num_centers=33).fit(ArrayFeatures(raw[:100]))
    whole = mapping.transform(ArrayFeatures(raw))
    monkeypatch.setattr("pate._labeling.data.records._BLOCK_BYTES", 1000)
    without = mapping.transform(ArrayFeatures(np.delete(raw, 70, axis=0)))
    assert np.array_equal(without, np.delete(whole, 70, axis=0))
    raw[70] *= -5
    changed = mapping.transform(ArrayFeatures(raw)) != whole
    assert np.flatnonzero(changed.any(axis=1)).tolist() == [70]


@pytest.mark.parametrize("shape", [GRAY, COLOR, LAST])
def test_it_leaves_as_arrays(shape: tuple[int, ...]) -> None:
    raw = pictures(80, shape)
    mapping = ChainedFeatures([small(), PublicScaling()]).fit(raw)
    expected = np.asarray(mapping.transform(raw))
    saved = save_map(mapping, shape)
    assert not needs_torch(saved.settings)
    light = restore_map(saved.settings, saved.state, shape)
    assert np.array_equal(np.asarray(light.transform(raw)), expected)


@pytest.mark.parametrize(
    ("shape", "size", "places"), [((8, 8), 3, 36), ((14, 14), 5, 100), ((3, 24, 24), 8, 81)]
)
def test_patches_and_strides_follow_from_the_size(
    shape: tuple[int, ...], size: int, places: int
) -> None:
    index = small().fit(pictures(40, shape)).state(shape)["index"]
    assert index.shape == (size**2 * (3 if len(shape) == 3 else 1), places)


def test_bad_settings_and_pictures(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="num_centers >= 1, got num_centers=0"):
        small(num_centers=0)
    with pytest.raises(ValueError, match=r"pictures, as features for patches, got shape=\(9,\)"):
        small().fit(pictures(4, (9,)))
    with pytest.raises(ValueError, match=r"pictures of 3 pixels along a side at least"):
        small().fit(pictures(4, (2, 9)))
    with pytest.raises(ValueError, match=r"at most 8 regions along a side.*got pool=9"):
        small(pool=9).fit(pictures(4, (11, 11)))
    with pytest.raises(ValueError, match="num_centers <= 36, the number of public patches"):
        small(num_centers=37).fit(pictures(1, (8, 8)))
    with pytest.raises(ValueError, match="public pictures that differ"):
        small().fit(ArrayFeatures(np.ones((9, *GRAY), dtype=np.float32)))
