"""Networks, as plain modules. In a configuration they are named ``pate.models.Linear`` and so on.

Every class takes the shape of one sample's features and the number of labels first; other arguments
are its own. Backbones, such as ``ResNet50Features``, have no labels. In the checkout the folder
``models`` has the same names.
"""

from pate.models._efficientnet import EfficientNetLite0Features
from pate.models._factory import Factory
from pate.models._networks import MLP, Linear, ResNet8, ResNet50, ResNet50Features, SmallCNN

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
