"""Sources of records: the records of three roles, their partition over teachers, and the rendered faces."""

from pate.data._arrays import Arrays as Arrays
from pate.data._arrays import CelebAAttributes as CelebAAttributes
from pate.data._celeba import CelebA as CelebA
from pate.data._datasets import HuggingFace as HuggingFace
from pate.data._datasets import Keys as Keys
from pate.data._datasets import LightningData as LightningData
from pate.data._datasets import TorchDatasets as TorchDatasets
from pate.data._number_table import NumberTable as NumberTable
from pate.data._picture_table import PictureTable as PictureTable
from pate.data._python_file import PythonFile as PythonFile
from pate.data._records import ArrayFeatures as ArrayFeatures
from pate.data._records import Features as Features
from pate.data._records import Records as Records
from pate.data._records import Role as Role
from pate.data._source import DataSource as DataSource
from pate.data._text_table import TextTable as TextTable
from pate.data.features import FeatureMap as FeatureMap
from pate.data.features import FrozenBackbone as FrozenBackbone
from pate.data.features import PictureTransforms as PictureTransforms
from pate.data.features import PublicPCA as PublicPCA
from pate.data.features import PublicScaling as PublicScaling
