"""Networks, as plain modules. In a configuration they are named ``pate.models.Linear`` and so on.

Every class takes the shape of one sample's features and the number of labels first; other arguments
are its own. A ``Backbone`` has no labels. In the checkout the folder
``models`` has the same names.
"""

from typing import NoReturn

from pate._lazy import no_attribute
from pate.models._factory import Factory
from pate.models._networks import MLP, Backbone, ConvNet, Linear, ResNet8, ResNet50, SmallCNN

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


def __getattr__(name: str) -> NoReturn:
    raise no_attribute(__name__, name)
