"""A public map of pictures: how much of each of a few kinds of patches is in each region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.cluster.vq import vq
from scipy.sparse import csr_array

from pate._core.validation import Float32Array, IntArray, require, require_count
from pate._labeling.data.records import FeatureMap, Features, map_by_rows

_SAMPLES, _PATCHES = 1000, 40_000  # public pictures and patches that the map is fitted on
_ROUNDS = 12  # of k-means
# a flat patch is not stretched to full contrast: parts of the mean variance of a patch
_FLAT = 0.3
_RIDGE = 0.1  # of whitening, beside a variance of at most 1 (Coates & Ng (2011))
_THRESHOLD = 0.5  # of likeness, whose standard deviation is about 1
_CHANNELS = 4  # at most, where they are the last axis
_SIDE = 16  # patches along a side, about
_ARRAYS = ("index", "regions", "floor", "filters", "offsets")


class PatchFeatures(FeatureMap):
    """Patches of pictures by their likeness to centers, pooled by regions (Coates & Ng (2011)).

    A linear student of pixels knows a stroke only at its place. Here each patch of a picture is
    brought to mean 0 and about variance 1, whitened, and compared with centers that k-means finds
    among patches of public pictures: its inner product with each center of length 1, as far as it
    exceeds a threshold. A patch has a third of the picture's side, at least 3 and at most 8 pixels,
    and there are about sixteen along a side. Likenesses are summed over the patches of a region, so
    ``pool x pool`` regions give ``num_centers pool^2`` features. Put `PublicScaling` behind it.

    Pictures are ``[height, width]``, ``[channels, height, width]`` or, with at most four channels,
    ``[height, width, channels]``, in any unit.

    >>> pictures = np.random.default_rng(0).random((30, 8, 8))
    >>> features = PatchFeatures(num_centers=5, pool=2).fit(ArrayFeatures(pictures))
    >>> features.transform(ArrayFeatures(pictures)).shape
    (30, 20)

    Args:
        num_centers: number of centers.
        pool: number of regions along a side.
        seed: seed of the public patches, and of those that k-means starts with.
    """

    by_rows = True

    def __init__(
        self,
        num_centers: int = 128,
        pool: int = 3,
        seed: int = 0,
    ) -> None:
        require_count(1, num_centers=num_centers, pool=pool)
        require_count(0, seed=seed)
        self.num_centers = num_centers
        self.pool = pool
        self.seed = seed
        self._state: dict[str, NDArray[Any]] = {}

    def fit(self, public: Features) -> PatchFeatures:
        """Fit on public pictures ``[N, ...]``.

        Raises ``ValueError`` unless they are pictures that differ, with enough patches.
        """
        if not self._state:
            index, regions = self._places(tuple(public.shape[1:]))
            # its stream is the same in all versions of numpy
            random = np.random.RandomState(self.seed)
            some = np.sort(random.permutation(public.shape[0])[:_SAMPLES])
            each = -(-_PATCHES // len(some))
            drawn = [random.permutation(index.shape[1])[:each] for _ in some]
            rows = public[some].reshape(len(some), -1)
            patches = np.hstack([row[index[:, at]] for row, at in zip(rows, drawn, strict=True)])
            require(
                self.num_centers <= patches.shape[1],
                f"num_centers <= {patches.shape[1]}, the number of public patches",
                num_centers=self.num_centers,
            )
            patches -= patches.mean(axis=0)
            floor = np.asarray(_FLAT * np.square(patches).mean(), dtype=np.float32)
            require(floor > 0, "public pictures that differ")
            patches /= np.sqrt(np.square(patches).mean(axis=0) + floor)
            values, vectors = np.linalg.eigh(np.cov(patches))
            whitening = vectors / np.sqrt(np.maximum(values, 0) + _RIDGE) @ vectors.T
            mean = patches.mean(axis=1, keepdims=True)
            points = (whitening @ (patches - mean)).T
            start = points[random.permutation(len(points))[: self.num_centers]]
            centers = _means(points, start)
            centers /= np.maximum(np.linalg.norm(centers, axis=1, keepdims=True), 1e-6)
            filters = centers @ whitening
            self._state = {
                "index": index,
                "regions": regions,
                "floor": floor,
                "filters": filters.astype(np.float32),
                "offsets": (filters @ mean)[:, 0].astype(np.float32) + np.float32(_THRESHOLD),
            }
        return self

    def transform(self, features: Features) -> Float32Array:
        """Map pictures ``[N, ...]`` to ``[N, num_centers pool^2]``, each by itself."""
        index, regions, floor, filters, offsets = self._fitted.values()
        thresholds = offsets[:, None]
        patches = np.empty(index.shape, dtype=np.float32)

        def pooled(row: Float32Array) -> Float32Array:
            # a mode that checks the range would copy
            np.take(row, index, out=patches, mode="clip")
            np.subtract(patches, patches.mean(axis=0), out=patches)
            likeness = filters @ patches
            likeness /= np.sqrt(np.square(patches).mean(axis=0) + floor)
            likeness -= thresholds
            np.maximum(likeness, 0, out=likeness)
            found: Float32Array = (likeness @ regions).ravel()
            return found

        return map_by_rows(features, len(filters) * regions.shape[1], pooled)

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what was fitted on records of ``shape``, by the names in a student's file."""
        index = self._fitted["index"]
        require(
            index.min() >= 0 and index.max() < prod(shape),
            f"patches of pictures of shape {tuple(shape)}",
            pixels=(int(index.min()), int(index.max())),
        )
        return dict(self._fitted)

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the fitted map that `state` described."""
        made = cls(num_centers=len(state["filters"]))
        made._state = {name: state[name] for name in _ARRAYS}
        (pixels, places), (centers, _) = state["index"].shape, state["filters"].shape
        shapes = (pixels, places), (places, state["regions"].shape[1]), (), (centers, pixels)
        found = tuple(made._state[name].shape for name in _ARRAYS)
        require(found == (*shapes, (centers,)), "arrays of patches that fit", shapes=found)
        return made

    @property
    def _fitted(self) -> dict[str, NDArray[Any]]:
        assert self._state, "fit comes before transform"
        return self._state

    def _places(self, shape: tuple[int, ...]) -> tuple[IntArray, Float32Array]:
        """Return the pixels ``[D, P]`` of each patch, and the regions ``[P, R]`` that it is in."""
        require(len(shape) in (2, 3), "pictures, as features for patches", shape=shape)
        pixels = np.arange(prod(shape)).reshape(shape)
        if len(shape) == 2:
            pixels = pixels[None]
        elif shape[2] <= _CHANNELS < shape[0]:
            pixels = np.moveaxis(pixels, 2, 0)
        side = min(pixels.shape[1:])
        size, stride = min(8, max(3, round(side / 3))), max(1, round(side / _SIDE))
        require(size <= side, f"pictures of {size} pixels along a side at least", shape=shape)
        windows = sliding_window_view(pixels, (size, size), axis=(1, 2))[:, ::stride, ::stride]
        _, height, width, *_ = windows.shape
        require(
            self.pool <= min(height, width),
            f"at most {min(height, width)} regions along a side, the number of patches there",
            pool=self.pool,
        )
        rows, columns = (np.arange(n) * self.pool // n for n in (height, width))
        region = (rows[:, None] * self.pool + columns).ravel()
        index = np.moveaxis(windows, (0, 3, 4), (0, 1, 2)).reshape(-1, height * width)
        return index, np.eye(self.pool**2, dtype=np.float32)[region]


def _means(points: NDArray[Any], centers: NDArray[Any]) -> NDArray[Any]:
    """Return the centers ``[K, D]`` of points ``[N, D]`` after rounds of k-means."""
    for _ in range(_ROUNDS):
        nearest, _ = vq(points, centers)
        one = np.ones(len(points))
        members = csr_array(
            (one, (nearest, np.arange(len(points)))), shape=(len(centers), len(points))
        )
        sizes = members.sum(axis=1)[:, None]
        # a center that no point is near stays
        centers = np.where(sizes > 0, members @ points / np.maximum(sizes, 1), centers)
    return centers
