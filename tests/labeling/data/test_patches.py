"""Patches of pictures: fitted on public ones, each picture by itself, the same in torch."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from PIL import Image

from pate._core.settings import decode
from pate._labeling.data.pictures import ImageFiles
from pate._labeling.runs.run import describe_data, public_digest
from pate.data import ArrayFeatures, Arrays, ChainedFeatures, DataSource, PatchFeatures, Role
from tests.conftest import Write

GRAY, COLOR, LAST = (12, 11), (3, 12, 12), (12, 12, 3)


def pictures(num: int, shape: tuple[int, ...], seed: int = 0) -> ArrayFeatures:
    return ArrayFeatures(np.random.default_rng(seed).random((num, *shape), dtype=np.float32))


def small(**changes: Any) -> PatchFeatures:
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


def test_features_are_kept_once_and_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, paths = pictures(12, LAST).values, [tmp_path / f"{name}.png" for name in range(12)]
    for picture, path in zip(raw, paths, strict=True):
        Image.fromarray((picture * 255).astype(np.uint8)).save(path)
    files, folder = ImageFiles(paths, 12, keep=False), tmp_path / "kept"
    alone = small().fit(files).transform(files)
    monkeypatch.setattr("pate._labeling.data.pictures._SHARE", 5)
    mapping = PatchFeatures(8, 2, cache=folder).fit(files)
    with parallel_config("threading"):  # a process would take seconds to begin
        assert np.array_equal(mapping.transform(files), alone)
        assert folder.stat().st_mode & 0o777 == 0o700
        with monkeypatch.context() as unread:
            unread.setattr(ImageFiles, "picture", lambda *_: 1 / 0)
            assert np.array_equal(mapping.transform(files), alone)
            with pytest.raises(ZeroDivisionError):  # by another map
                PatchFeatures(8, 2, cache=folder).fit(pictures(20, COLOR)).transform(files)
        paths[5].write_bytes(paths[6].read_bytes())
        again = mapping.transform(ImageFiles(paths, 12))
    assert np.array_equal(again, alone[[0, 1, 2, 3, 4, 6, *range(6, 12)]])


def test_kept_features_are_of_no_other_files(tmp_path: Path) -> None:
    """Archives and copies give files of one size and time, and an edit may keep both."""
    raw, mapping = pictures(3, LAST).values, small(cache=tmp_path / "kept").fit(pictures(9, COLOR))
    paths = [tmp_path / f"{name}/face.bmp" for name in "abc"]
    for picture, path in zip(raw, paths, strict=True):
        path.parent.mkdir()
        Image.fromarray((picture * 255).astype(np.uint8)).save(path)
        os.utime(path, (1e9, 1e9))
    with parallel_config("threading"):
        first, other = (mapping.transform(ImageFiles([path], 12)) for path in paths[:2])
        shutil.copy2(paths[2], paths[0])
        edited = mapping.transform(ImageFiles(paths[:1], 12))
    assert not (np.array_equal(first, other) or np.array_equal(first, edited))


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the kernel would kill the process when it writes to the mapped file."""
    raw, asked = pictures(9, COLOR), []

    def full(_: int, start: int, size: int) -> None:
        asked.append((start, size))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(OSError, match="No space left"):
            small(cache=tmp_path / "kept").fit(raw).transform(raw)
    assert asked == [(0, 128 + 9 * 32 * 4)]  # with the header
    assert small(cache=tmp_path / "kept").fit(raw).transform(raw).any()


def test_features_of_a_role_are_kept_in_one_file(write_arrays: Write, tmp_path: Path) -> None:
    raw = write_arrays("any.npz", X=pictures(600, GRAY).values)
    source = Arrays(raw, features=small(cache=tmp_path / "kept"))
    features = source.records(Role.PRIVATE).features
    assert [features[[row]].shape for row in range(5)] == 5 * [(1, 32)]
    assert len([*(tmp_path / "kept").iterdir()]) == 1


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


def test_the_folder_of_features_is_the_same_from_any_place(write_arrays: Write) -> None:
    chain = ChainedFeatures([small(cache=Path("kept"))])
    source = Arrays(write_arrays("any.npz", X=pictures(600, GRAY).values), features=chain)
    settings = describe_data(source)
    (part,) = settings["init_args"]["features"]["init_args"]["maps"]
    assert part["init_args"]["cache"] == str(Path("kept").absolute())
    assert public_digest(decode(DataSource, settings)) == public_digest(source)
