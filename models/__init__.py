"""The networks of `pate.models`, by the short names that a configuration in the checkout may use: ``models.Linear``."""

from pate.models import (
    MLP,
    EfficientNetLite0Features,
    Factory,
    Linear,
    ResNet8,
    ResNet50,
    ResNet50Features,
    SmallCNN,
)

__all__ = [
    "MLP",
    "EfficientNetLite0Features",
    "Factory",
    "Linear",
    "ResNet8",
    "ResNet50",
    "ResNet50Features",
    "SmallCNN",
]
