"""Transforms of pictures that teachers and student see alike."""

from pathlib import Path

import numpy as np
import pytest
from torchvision.transforms import v2

from pate.data import ArrayFeatures, DataSource, PictureTable, PictureTransforms
from tests.labeling.data.test_picture_table import TestPictureTable as PicturesContract


class TestPictureTransforms(PicturesContract):
    """A source seen through transforms."""

    def open(self, folder: Path) -> DataSource:
        transforms = [v2.CenterCrop(6), v2.Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])]
        return PictureTable(folder, size=8, features=PictureTransforms(transforms))


def test_each_picture_is_transformed_when_it_is_read() -> None:
    values = np.random.default_rng(0).random((5, 3, 8, 8), dtype=np.float32)
    seen = PictureTransforms([v2.CenterCrop(4), v2.Grayscale()]).fit(ArrayFeatures(values))
    mapped = seen.transform(ArrayFeatures(values))
    assert mapped.shape == (5, 1, 4, 4)
    index = np.array([[4, 0], [1, 1]])
    assert mapped[index].shape == (2, 2, 1, 4, 4) and mapped[index].dtype == np.float32
    grey = np.tensordot([0.2989, 0.587, 0.114], values[4, :, 2:6, 2:6], axes=1)
    assert np.allclose(mapped[index][0, 0, 0], grey, atol=1e-5)
    assert (mapped.select(np.array([4, 2]))[np.array([0])] == mapped[np.array([4])]).all()
    assert mapped[np.zeros((0, 3), dtype=np.int64)].shape == (0, 3, 1, 4, 4)


def test_what_draws_is_refused() -> None:
    values = ArrayFeatures(np.random.default_rng(0).random((2, 3, 8, 8), dtype=np.float32))
    with pytest.raises(
        ValueError, match=r"transforms that draw nothing.*got transforms=\['RandomHorizontalFlip'\]"
    ):
        PictureTransforms([v2.RandomHorizontalFlip()]).fit(values)
    with pytest.raises(ValueError, match="at least one transform"):
        PictureTransforms([])
