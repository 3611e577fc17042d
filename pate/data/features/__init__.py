"""Public maps of features: fitted on public samples alone, so that they reveal nothing about private records."""

from pate.data.features.backbone import FrozenBackbone
from pate.data.features.base import FeatureMap
from pate.data.features.public_pca import PublicPCA

__all__ = ["FeatureMap", "FrozenBackbone", "PublicPCA"]
