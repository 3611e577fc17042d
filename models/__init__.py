"""The networks of `pate.models`, by short names for configurations: ``models.Linear``."""

from pate.models import MLP, Backbone, ConvNet, Linear, ResNet50, SmallCNN

__all__ = [
    "MLP",
    "Backbone",
    "ConvNet",
    "Linear",
    "ResNet50",
    "SmallCNN",
]
