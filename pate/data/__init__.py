"""Sources of records: data modules, their partition over teachers, and the rendered faces."""

from pate.data.arrays import Arrays, CelebAAttributes
from pate.data.celeba import CelebA
from pate.data.features import FeatureMap, FrozenBackbone, PublicPCA
from pate.data.module import DataModule, Records, Role
from pate.data.partition import assign_teachers, partition_records

__all__ = [
    "Arrays",
    "CelebA",
    "CelebAAttributes",
    "DataModule",
    "FeatureMap",
    "FrozenBackbone",
    "PublicPCA",
    "Records",
    "Role",
    "assign_teachers",
    "partition_records",
]
