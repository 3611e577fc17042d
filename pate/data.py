"""Sources of records in three roles, their partition over teachers, and rendered faces."""

from pate._core.package import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from pate._core.validation import UNKNOWN as UNKNOWN
    from pate._labeling.data.feature_maps import (
        AutoFeatures as AutoFeatures,
        ChainedFeatures as ChainedFeatures,
        PublicPCA as PublicPCA,
        PublicScaling as PublicScaling,
    )
    from pate._labeling.data.pictures import (
        CelebA as CelebA,
        PatchFeatures as PatchFeatures,
        PictureTable as PictureTable,
    )
    from pate._labeling.data.records import (
        ArrayFeatures as ArrayFeatures,
        FeatureMap as FeatureMap,
        Features as Features,
        Records as Records,
        Role as Role,
    )
    from pate._labeling.data.sentences import SentenceFeatures as SentenceFeatures
    from pate._labeling.data.source import (
        Arrays as Arrays,
        DataSource as DataSource,
    )
    from pate._labeling.data.tables import (
        ColumnEncoding as ColumnEncoding,
        NumberTable as NumberTable,
        TextTable as TextTable,
    )
    from pate._networks.datasets import (
        FrozenBackbone as FrozenBackbone,
        Keys as Keys,
        TorchDatasets as TorchDatasets,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
