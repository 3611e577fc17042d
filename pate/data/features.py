"""Public maps of features: fitted on public samples alone, so that they tell nothing of private records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pate.validation import expect, expect_count

if TYPE_CHECKING:
    from pate.data.module import Features

FloatArray = NDArray[np.float32]

_ROWS = 4096


class FeatureMap(ABC):
    """A map of features fitted on the public samples."""

    @abstractmethod
    def fit(self, public: Features) -> FeatureMap:
        """Fit on public features ``[N, ...]`` (once; later calls change nothing) and return the map."""

    @abstractmethod
    def transform(self, features: Features) -> Features:
        """Map features ``[N, ...]``."""


class PublicPCA(FeatureMap):
    """Whitened principal components of the public samples: a short description that weak teachers can learn from.

    Args:
        num_components: how many components are kept.
    """

    def __init__(self, num_components: int) -> None:
        expect_count(1, num_components=num_components)
        self.num_components = num_components
        self._mean: FloatArray | None = None
        self._weights: FloatArray = np.empty(0, dtype=np.float32)

    def fit(self, public: Features) -> PublicPCA:
        """Fit on public features ``[N, ...]``, flattened."""
        if self._mean is None:
            flat = public[np.arange(public.shape[0])].reshape(public.shape[0], -1)
            limit = min(flat.shape)
            expect(self.num_components < limit, f"num_components < {limit}", num_components=self.num_components)
            self._mean = flat.mean(axis=0)
            values, vectors = np.linalg.eigh(np.cov(flat - self._mean, rowvar=False))
            top = np.argsort(values)[::-1][: self.num_components]
            self._weights = (vectors[:, top] / np.sqrt(np.maximum(values[top], 1e-12))).astype(np.float32)
        return self

    def transform(self, features: Features) -> FloatArray:
        """Map features ``[N, ...]`` to ``[N, num_components]``, each row by itself."""
        assert self._mean is not None, "fit comes before transform"
        mapped = np.empty((features.shape[0], self.num_components), dtype=np.float32)
        for start in range(0, len(mapped), _ROWS):
            index = np.arange(start, min(start + _ROWS, len(mapped)))
            flat = features[index].reshape(len(index), -1)
            mapped[index] = (flat - self._mean) @ self._weights
        return mapped
