"""Networks, as plain modules. In a configuration they are named ``models.Linear`` and so on.

Every class takes the shape of one sample's features and the number of labels first; other arguments are its own.
Backbones, such as ``ResNet50Features``, have no labels.
"""

from models.networks import MLP, Linear, ResNet8, ResNet50, ResNet50Features, SmallCNN

__all__ = ["MLP", "Linear", "ResNet8", "ResNet50", "ResNet50Features", "SmallCNN"]
