"""Networks, as plain modules. In a configuration they are named ``models.Linear`` and so on.

Every class takes the shape of one sample's features and the number of labels first; the rest are its own choices.
"""

from models.networks import MLP, Linear, ResNet50, SmallCNN

__all__ = ["MLP", "Linear", "ResNet50", "SmallCNN"]
