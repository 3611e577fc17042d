"""Public maps of features, one after the other."""

from __future__ import annotations

from pate._validation import Float32Array, require
from pate.data._records import FeatureMap, Features, as_features


class ChainedFeatures(FeatureMap):
    """Public maps, each applied to the features of the one before.

    For example, `FrozenBackbone` describes pictures, and `PublicScaling` brings its features to the
    scale that linear answers need.

    Args:
        maps: the maps, at least one.
    """

    def __init__(self, maps: list[FeatureMap]) -> None:
        require(maps, "at least one map", maps=maps)
        self.maps = maps
        self.shapes: list[tuple[int, ...]] = []

    def fit(self, public: Features) -> ChainedFeatures:
        """Fit each map on public features ``[N, ...]`` as the maps before return them."""
        for part in self.maps[len(self.shapes) :]:
            self.shapes.append(tuple(public.shape[1:]))
            public = as_features(part.fit(public).transform(public))
        return self

    @property
    def version(self) -> int:
        """The sum of those of all maps."""
        return sum(part.version for part in self.maps)

    @property
    def widths(self) -> tuple[int, ...]:
        """Those of the last map."""
        return self.maps[-1].widths

    def transform(self, features: Features) -> Features | Float32Array:
        """Map features ``[N, ...]`` by all maps."""
        for part in self.maps:
            features = as_features(part.transform(features))
        return features
