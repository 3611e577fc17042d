"""The networks of `pate.models`, by the short names that a configuration in the checkout may use: ``models.Linear``."""

from pate.models import MLP, Backbone, ConvNet, Factory, Linear, ResNet8, ResNet50, SmallCNN

__all__ = [
    "MLP",
    "Backbone",
    "ConvNet",
    "Factory",
    "Linear",
    "ResNet8",
    "ResNet50",
    "SmallCNN",
]
