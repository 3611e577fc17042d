"""Principal components of the public samples."""

from __future__ import annotations

import hashlib

import numpy as np

from pate.data.records import FeatureMap, Features
from pate.typing import Float32Array
from pate.validation import expect, expect_count

_ROWS = 4096
_fitted: dict[tuple[bytes, tuple[int, ...], int], tuple[Float32Array, Float32Array]] = {}  # the last, by what it is of


class PublicPCA(FeatureMap):
    """Whitened principal components of the public samples: a short description that weak teachers can learn from.

    All public samples are held in memory while it is fitted.

    Args:
        num_components: number of components, less than the numbers of features and of public samples.
    """

    def __init__(self, num_components: int) -> None:
        expect_count(1, num_components=num_components)
        self.num_components = num_components
        self._mean: Float32Array | None = None
        self._weights: Float32Array = np.empty(0, dtype=np.float32)

    def fit(self, public: Features) -> PublicPCA:
        """Fit on public features ``[N, ...]``, flattened."""
        if self._mean is None:
            flat = public[np.arange(public.shape[0])].reshape(public.shape[0], -1)
            limit = min(flat.shape)
            expect(self.num_components < limit, f"num_components < {limit}", num_components=self.num_components)
            # the stages of one process fit the same samples again and again
            digest = hashlib.blake2b(np.ascontiguousarray(flat).data, digest_size=32).digest()
            key = (digest, flat.shape, self.num_components)
            if key not in _fitted:
                _fitted.clear()
                _fitted[key] = _whitening(flat, self.num_components)
            self._mean, self._weights = _fitted[key]
        return self

    def transform(self, features: Features) -> Float32Array:
        """Map features ``[N, ...]`` to ``[N, num_components]``, each row by itself."""
        assert self._mean is not None, "fit comes before transform"
        mapped = np.empty((features.shape[0], self.num_components), dtype=np.float32)
        # in a product of many rows, rounding depends on a row's position and on their number, so that a record that
        # comes or goes would affect its neighbors: one row at a time, always from the same place in memory
        row = np.empty_like(self._mean)
        for start in range(0, len(mapped), _ROWS):
            index = np.arange(start, min(start + _ROWS, len(mapped)))
            for place, values in zip(index, features[index].reshape(len(index), -1), strict=True):
                np.subtract(values, self._mean, out=row)
                mapped[place] = row @ self._weights
        return mapped


def _whitening(flat: Float32Array, num_components: int) -> tuple[Float32Array, Float32Array]:
    """Return the mean ``[F]`` and the scaled components ``[F, num_components]``, widest first."""
    mean = flat.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(flat - mean, rowvar=False))
    top = np.argsort(values)[::-1][:num_components]
    return mean, (vectors[:, top] / np.sqrt(np.maximum(values[top], 1e-12))).astype(np.float32)
