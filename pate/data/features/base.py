"""The interface of a feature map."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pate.data.records import Features
from pate.typing import Float32Array


class FeatureMap(ABC):
    """A map of features fitted on the public samples alone, so that it reveals nothing about private records."""

    @abstractmethod
    def fit(self, public: Features) -> FeatureMap:
        """Fit on public features ``[N, ...]`` (once; later calls change nothing) and return the map."""

    @abstractmethod
    def transform(self, features: Features) -> Features | Float32Array:
        """Map features ``[N, ...]``, each record by itself."""
