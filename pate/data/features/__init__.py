"""Public maps of features, fitted only on public samples: they reveal no private record."""

from pate.data._records import FeatureMap as FeatureMap
from pate.data.features._numeric import (
    AutoFeatures as AutoFeatures,
    ChainedFeatures as ChainedFeatures,
    PublicPCA as PublicPCA,
    PublicScaling as PublicScaling,
    RandomFeatures as RandomFeatures,
)
from pate.data.features._patches import PatchFeatures as PatchFeatures
from pate.data.features._sentences import SentenceFeatures as SentenceFeatures
from pate.data.features._torch_maps import (
    FrozenBackbone as FrozenBackbone,
    PictureTransforms as PictureTransforms,
)
