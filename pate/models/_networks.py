"""Linear and MLP heads, a small CNN, a small ResNet, and torchvision's ResNet-50."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Literal

import torch
from torch import Tensor, nn


class Linear(nn.Sequential):
    """One linear layer on flattened features."""

    def __init__(self, input_shape: Sequence[int], num_labels: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(prod(input_shape), num_labels))


class MLP(nn.Sequential):
    """Hidden layers of ReLUs, with dropout, on flattened features."""

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


class ResNet8(nn.Sequential):
    """Eight layers with GroupNorm: a convolution, three residual blocks, one linear layer.

    The second and the third block double the width.

    Args:
        input_shape: ``(channels, height, width)``.
        num_labels: number of labels.
        width: channels of the first block, a multiple of ``groups``.
        groups: groups of each GroupNorm.
    """

    def __init__(
        self, input_shape: Sequence[int], num_labels: int, width: int = 16, groups: int = 8
    ) -> None:
        super().__init__(
            nn.Conv2d(input_shape[0], width, 3, padding=1, bias=False),
            nn.GroupNorm(groups, width),
            nn.ReLU(),
            _Block(width, width, 1, groups),
            _Block(width, 2 * width, 2, groups),
            _Block(2 * width, 4 * width, 2, groups),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, num_labels),
        )


class _Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int, groups: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.GroupNorm(groups, after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.GroupNorm(groups, after),
        )
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, pictures: Tensor) -> Tensor:
        return torch.relu(self.body(pictures) + self.shortcut(pictures))


class ResNet50(nn.Module):
    """torchvision's ResNet-50 for pictures in [0, 1].

    Args:
        input_shape: ``(3, size, size)``.
        num_labels: number of labels.
        weights: torchvision's name of pretrained weights (``DEFAULT``, ``IMAGENET1K_V2`` ...) or a
            file of a state dictionary; None for random weights.
        norm: ``group`` or ``batch``; None for BatchNorm where weights are given, which are of it,
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
        if weights is not None and norm != "batch":
            raise ValueError(f"Expected norm='batch', of which the weights are, got norm={norm!r}")
        self.settings_without_weights = {"weights": None, "norm": norm}
        if weights is not None and not weights.endswith((".pt", ".pth")):
            self.body = vision.resnet50(weights=weights)
        elif norm == "group":
            self.body = vision.resnet50(norm_layer=lambda width: nn.GroupNorm(32, width))
        else:
            self.body = vision.resnet50()
        if weights is not None and weights.endswith((".pt", ".pth")):
            self.body.load_state_dict(torch.load(weights, weights_only=True))
        self.body.fc = nn.Linear(self.body.fc.in_features, num_labels)
        colors = {"mean": [0.485, 0.456, 0.406], "scale": [0.229, 0.224, 0.225]}
        for name, values in colors.items():
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return logits ``[B, C]`` of pictures ``[B, 3, size, size]``."""
        return self.body((pictures - self.mean) / self.scale)
