"""Deterministic transforms of pictures: resizing, cropping, colors, normalization."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pate._validation import Float32Array, IntArray, require
from pate.data._records import FeatureMap, Features

if TYPE_CHECKING:
    from torch import nn

_TRIALS = 8


class PictureTransforms(FeatureMap):
    """Transforms of each picture by itself, the same for teachers and student, whenever it is read.

    Nothing is fitted, and nothing may be drawn: random transforms belong into ``augment`` of
    teachers and student.

    Args:
        transforms: for example of ``torchvision.transforms.v2``, applied one after the other to
            float32 pictures ``[channels, height, width]`` in [0, 1].
    """

    def __init__(self, transforms: list[nn.Module]) -> None:
        require(transforms, "at least one transform", transforms=transforms)
        self.transforms = transforms
        self._tried = False

    def fit(self, public: Features) -> PictureTransforms:
        """Try the transforms on the first public picture.

        Raises ``ValueError`` if two trials differ.
        """
        if not self._tried:
            first, *others = [self._try(public, seed) for seed in range(_TRIALS)]
            same = all(np.array_equal(first, other) for other in others)
            names = [type(transform).__name__ for transform in self.transforms]
            require(
                same,
                "transforms that draw nothing; those that do are for `augment`",
                transforms=names,
            )
            self._tried = True
        return self

    def transform(self, features: Features) -> Features:
        """Return the features ``[N, ...]`` that are transformed when they are read."""
        return _Transformed(features, self.transforms)

    def _try(self, public: Features, seed: int) -> Float32Array:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self.transform(public)[np.array([0])]


class _Transformed(Features):
    def __init__(self, features: Features, transforms: Sequence[nn.Module]) -> None:
        self._features, self._transforms = features, transforms

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return (self._features.shape[0], *self._read(np.array([0])).shape[1:])

    def __getitem__(self, index: Any, /) -> Float32Array:
        index = np.asarray(index)
        if index.size == 0:
            return np.empty((*index.shape, *self.shape[1:]), dtype=np.float32)
        return self._read(index.ravel()).reshape(*index.shape, *self.shape[1:])

    def select(self, rows: IntArray) -> _Transformed:
        return _Transformed(self._features.select(rows), self._transforms)

    def _read(self, rows: IntArray) -> Float32Array:
        import torch

        pictures = list(torch.from_numpy(self._features[rows]))
        with torch.no_grad():
            for transform in self._transforms:
                pictures = [transform(picture) for picture in pictures]
        return np.stack([picture.numpy() for picture in pictures]).astype(np.float32)
