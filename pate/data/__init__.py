"""Sources of records: the records of three roles, their partition over teachers, and the rendered faces."""

from pate.data.arrays import Arrays as Arrays
from pate.data.arrays import CelebAAttributes as CelebAAttributes
from pate.data.celeba import CelebA as CelebA
from pate.data.datasets import HuggingFace as HuggingFace
from pate.data.datasets import Keys as Keys
from pate.data.datasets import LightningData as LightningData
from pate.data.datasets import TorchDatasets as TorchDatasets
from pate.data.features import FeatureMap as FeatureMap
from pate.data.features import FrozenBackbone as FrozenBackbone
from pate.data.features import PictureTransforms as PictureTransforms
from pate.data.features import PublicPCA as PublicPCA
from pate.data.picture_table import PictureTable as PictureTable
from pate.data.python_file import PythonFile as PythonFile
from pate.data.records import ArrayFeatures as ArrayFeatures
from pate.data.records import Features as Features
from pate.data.records import Records as Records
from pate.data.records import Role as Role
from pate.data.source import DataSource as DataSource
