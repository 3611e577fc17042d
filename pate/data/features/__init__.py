"""Public maps of features: fitted on public samples alone, so that they reveal nothing about private records."""

from pate.data.features.backbone import FrozenBackbone as FrozenBackbone
from pate.data.features.picture_transforms import PictureTransforms as PictureTransforms
from pate.data.features.public_pca import PublicPCA as PublicPCA
from pate.data.records import FeatureMap as FeatureMap
