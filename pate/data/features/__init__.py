"""Public maps of features, fitted only on public samples: they reveal no private record."""

from pate.data._records import FeatureMap as FeatureMap
from pate.data.features._backbone import FrozenBackbone as FrozenBackbone
from pate.data.features._chained import ChainedFeatures as ChainedFeatures
from pate.data.features._picture_transforms import PictureTransforms as PictureTransforms
from pate.data.features._public_pca import PublicPCA as PublicPCA
from pate.data.features._public_scaling import PublicScaling as PublicScaling
from pate.data.features._random_features import (
    AutoFeatures as AutoFeatures,
    RandomFeatures as RandomFeatures,
)
from pate.data.features._sentences import SentenceFeatures as SentenceFeatures
