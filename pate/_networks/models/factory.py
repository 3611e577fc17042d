"""Networks of other packages by name, with settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jsonargparse._typehints import function_returns_subclass
from torch import Tensor, nn

from pate._core.settings import named_class
from pate._core.validation import require


class Factory(nn.Module):
    """A network that a function of another package makes, such as ``torchvision.models.resnet18``.

    The function is given ``num_classes``, the number of labels, and the settings.

    >>> network = Factory((3, 32, 32), 5, name="torchvision.models.resnet18")
    >>> sum(each.numel() for each in network.parameters())
    11179077

    Args:
        input_shape: shape of one sample's features. The function does not get it.
        num_labels: number of labels.
        name: path of the function, such as ``timm.create_model``.
        settings: further arguments of the function by name, such as ``{model_name: resnet18,
            in_chans: 1}``.

    Attributes:
        path_argument: the name of the argument with the path of the imported function.

    Raises:
        ValueError: if ``name`` cannot be imported, or names anything but a class of networks or a
            function that is annotated to return one.
    """

    path_argument = "name"

    def __init__(
        self,
        input_shape: Sequence[int],
        num_labels: int,
        name: str,
        settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        require(
            "." in name, "the path of a function, such as torchvision.models.resnet18", name=name
        )
        make = named_class(name)
        require(make is not None, "a function that can be imported", name=name)
        require(
            issubclass(make, nn.Module)
            if isinstance(make, type)
            else function_returns_subclass(make, nn.Module, None),
            "a class of networks, or a function annotated to return one",
            name=name,
        )
        self.body = make(num_classes=num_labels, **(settings or {}))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits ``[B, C]`` of features ``[B, ...]``."""
        return self.body(features)
