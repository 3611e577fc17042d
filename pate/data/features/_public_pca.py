"""Principal components of the public samples."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh

from pate._progress import stage_bar
from pate._validation import Float32Array, FloatArray, require, require_count
from pate.data._records import FeatureMap, Features, blocks_of, map_by_rows

# larger matrices are decomposed by iteration, in a fraction of the time, which Ctrl-C can end
_DIRECT = 4096
_fitted: dict[tuple[bytes, int], Float32Array] = {}  # the last components, by digest and number
# public samples that take less are held in memory while the map is fitted
_HELD_BYTES = 1 << 28


class PublicPCA(FeatureMap):
    """Whitened principal components of the public samples: few features, for weak teachers.

    It is fitted on public samples block by block. Only the matrix of their covariances is held:
    ``F`` features take ``8 F^2`` bytes, 1.2 GB for pictures of 64 pixels. Fewer samples than
    features are all held instead, which takes less: their inner products have the same eigenvalues.

    Args:
        num_components: number of components, less than the numbers of features and of public
            samples.
    """

    by_rows = True

    def __init__(self, num_components: int) -> None:
        require_count(1, num_components=num_components)
        self.num_components = num_components
        self._mean: Float32Array | None = None
        self._weights: Float32Array = np.empty(0, dtype=np.float32)

    def fit(self, public: Features) -> PublicPCA:
        """Fit on public features ``[N, ...]``, flattened."""
        if self._mean is None:
            num, width = public.shape[0], prod(public.shape[1:])
            limit = min(num, width)
            require(
                self.num_components < limit,
                f"num_components < {limit}, for {num} public samples of {width} features",
                num_components=self.num_components,
            )
            with stage_bar(
                None, f"components of {num} public samples", unit="sample", shown=limit > _DIRECT
            ):
                self._mean, moments = _centred(public) if num < width else _moments(public)
                # the stages of one process fit the same samples again and again
                digest = hashlib.blake2b(
                    np.ascontiguousarray(moments).data, digest_size=32
                ).digest()
                key = (digest, self.num_components)
                if key not in _fitted:
                    _fitted.clear()
                    whitening = _whitening_of_few if num < width else _whitening
                    _fitted[key] = whitening(moments, self.num_components)
            self._weights = _fitted[key]
        return self

    def transform(self, features: Features) -> Float32Array:
        """Map features ``[N, ...]`` to ``[N, num_components]``, each row by itself."""
        assert self._mean is not None, "fit comes before transform"
        mean, weights = self._mean, self._weights
        return map_by_rows(
            features, len(weights.T), lambda row: np.subtract(row, mean, out=row) @ weights
        )

    @property
    def module_arguments(self) -> dict[str, int]:
        """The arguments of the torch module that maps as this map does."""
        return {"num_components": self._weights.shape[1]}

    def state(self, shape: Sequence[int]) -> dict[str, NDArray[Any]]:
        """Return what was fitted on records of ``shape``, by the names in a student's file."""
        assert self._mean is not None, "fit comes before state"
        return {"mean": self._mean, "weights": self._weights}

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Return the fitted map that `state` described."""
        made = cls(state["weights"].shape[1])
        made._mean, made._weights = state["mean"], state["weights"]
        return made


def _whitening(covariance: FloatArray, num_components: int) -> Float32Array:
    """Return the scaled components ``[F, num_components]``, widest first."""
    values, vectors = _widest(covariance, num_components)
    return (vectors / np.sqrt(np.maximum(values, 1e-12))).astype(np.float32)


def _whitening_of_few(centred: FloatArray, num_components: int) -> Float32Array:
    """Return scaled components ``[F, num_components]`` of fewer samples ``[N, F]`` than features.

    Where samples are copies of each other there may be fewer directions: further components are 0.
    """
    values, vectors = _widest(centred @ centred.T / (len(centred) - 1), num_components)
    varies = values > 1e-9 * values[0]
    scales = np.where(varies, values, 1) * np.sqrt(len(centred) - 1)
    return np.asarray(centred.T @ vectors / scales * varies, dtype=np.float32)


def _widest(matrix: FloatArray, number: int) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues ``[number]`` of a symmetric ``matrix``, and their vectors."""
    if len(matrix) > _DIRECT:
        # the first vector is drawn unless it is given
        values, vectors = eigsh(matrix, k=number, v0=np.ones(len(matrix)), tol=1e-6)
    else:
        values, vectors = np.linalg.eigh(matrix)
    top = np.argsort(values)[::-1][:number]
    return values[top], vectors[:, top]


def _centred(public: Features) -> tuple[Float32Array, FloatArray]:
    """Return the mean ``[F]`` of features ``[N, ...]``, and differences from it, ``[N, F]``."""
    num, width = public.shape[0], prod(public.shape[1:])
    values = np.empty((num, width))
    for index in blocks_of(public, range(num), block_bytes=_HELD_BYTES):
        values[index] = public[index].reshape(len(index), width)
    mean = values.mean(axis=0).astype(np.float32)
    return mean, values - mean


def _moments(public: Features) -> tuple[Float32Array, FloatArray]:
    """Return mean ``[F]`` and covariances ``[F, F]`` of features ``[N, ...]``, flattened."""
    num, width = public.shape[0], prod(public.shape[1:])
    blocks = list(blocks_of(public, range(num), block_bytes=_HELD_BYTES))
    if len(blocks) == 1:
        flat = public[blocks[0]].reshape(num, width)
        mean: Float32Array = flat.mean(axis=0)
        return mean, np.cov(flat - mean, rowvar=False)
    total = np.zeros(width)
    for index in blocks:
        total += public[index].reshape(len(index), width).sum(axis=0, dtype=np.float64)
    mean = (total / num).astype(np.float32)
    products = np.zeros((width, width))
    for index in blocks:
        centered = (public[index].reshape(len(index), width) - mean).astype(np.float64)
        products += centered.T @ centered
    return mean, products / (num - 1)
