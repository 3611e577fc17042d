"""Sources of records: the records of three roles, their partition over teachers, and the rendered faces."""

import warnings
from typing import Any

from pate.data.arrays import Arrays, CelebAAttributes
from pate.data.celeba import CelebA
from pate.data.features import FeatureMap, FrozenBackbone, PublicPCA
from pate.data.partition import assign_teachers, partition_records
from pate.data.records import ArrayFeatures, Features, Records, Role
from pate.data.source import DataSource

__all__ = [
    "ArrayFeatures",
    "Arrays",
    "CelebA",
    "CelebAAttributes",
    "DataSource",
    "FeatureMap",
    "Features",
    "FrozenBackbone",
    "PublicPCA",
    "Records",
    "Role",
    "assign_teachers",
    "partition_records",
]


def __getattr__(name: str) -> Any:
    if name == "DataModule":
        warnings.warn("pate.data.DataModule is now pate.data.DataSource", DeprecationWarning, stacklevel=2)
        return DataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
