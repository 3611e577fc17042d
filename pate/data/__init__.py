"""Sources of records in three roles, their partition over teachers, and rendered faces."""

from pate._validation import UNKNOWN as UNKNOWN
from pate.data._arrays import (
    Arrays as Arrays,
    CelebAAttributes as CelebAAttributes,
    DrawnPublic as DrawnPublic,
)
from pate.data._datasets import (
    HuggingFace as HuggingFace,
    Keys as Keys,
    LightningData as LightningData,
    TorchDatasets as TorchDatasets,
)
from pate.data._pictures import CelebA as CelebA, PictureTable as PictureTable
from pate.data._records import (
    ArrayFeatures as ArrayFeatures,
    Features as Features,
    Records as Records,
    Role as Role,
)
from pate.data._source import DataSource as DataSource, PythonFile as PythonFile
from pate.data._tables import (
    ColumnEncoding as ColumnEncoding,
    NumberTable as NumberTable,
    TextTable as TextTable,
)
from pate.data.features import (
    AutoFeatures as AutoFeatures,
    ChainedFeatures as ChainedFeatures,
    FeatureMap as FeatureMap,
    FrozenBackbone as FrozenBackbone,
    PatchFeatures as PatchFeatures,
    PictureTransforms as PictureTransforms,
    PublicPCA as PublicPCA,
    PublicScaling as PublicScaling,
    RandomFeatures as RandomFeatures,
    SentenceFeatures as SentenceFeatures,
)
