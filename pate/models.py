"""Networks, as plain modules. In a configuration they are named ``pate.models.Linear`` and so on.

Every class takes the shape of one sample's features and the number of labels first; other arguments
are its own. A ``Backbone`` has no labels. In the checkout the folder ``models`` has the same names.
"""

from pate._core.package import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from pate._networks.models import (
        MLP as MLP,
        Backbone as Backbone,
        ConvNet as ConvNet,
        Linear as Linear,
        ResNet50 as ResNet50,
        SmallCNN as SmallCNN,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
