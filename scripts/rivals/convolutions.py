"""A small convolutional network by descent on clipped, noised gradients of Poisson samples (DP-SGD).

Its settings are those that the literature found to serve: GroupNorm, large samples, and an average
of the weights over steps (De et al. (2022)).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from pate._core.validation import FloatArray
from scripts.rivals.descent import COUNT_NOISE, Descent

_WIDTHS = (16, 32, 32)
_GROUPS = 4
_SMALL = 16  # pixels along a side
_ROWS = 500  # records whose gradients are held at once
_DECAY = 0.98  # of the average of weights over steps
_MOMENTUM = 0.9


@dataclass(frozen=True, kw_only=True)
class NetworkDescent(Descent):
    """Public settings of the descent of a network.

    Args:
        num_steps: number of steps.
        sampling_rate: the probability with which a step takes a record.
        clip: the largest norm of the gradient of a record, over the square root of the number of
            labels.
        speed: learning rate of descent with momentum, on gradients over the clip.
    """

    num_steps: int = 60
    sampling_rate: float = 0.1  # with 0.2 the noise on a mean is the same, to 0.4%
    clip: float = 0.1


def network_of(shape: tuple[int, ...], num_labels: int) -> nn.Sequential:
    """Return a network for pictures ``[channels, height, width]``: GroupNorm, one linear layer."""
    channels, *sides = shape
    layers: list[nn.Module] = []
    for place, (before, after) in enumerate(pairwise((channels, *_WIDTHS))):
        # the first layer keeps the size of small pictures
        stride = 2 if place or min(sides) > _SMALL else 1
        layers += [nn.Conv2d(before, after, 3, stride, padding=1)]
        layers += [nn.GroupNorm(_GROUPS, after), nn.ReLU()]
        sides = [-(-side // stride) for side in sides]
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(_WIDTHS[-1] * math.prod(sides), num_labels)
    )


def descend_network(
    pictures: Tensor,
    labels: Tensor,
    settings: NetworkDescent,
    noise_multiplier: float,
    *,
    generator: np.random.Generator,
) -> Callable[[Tensor], FloatArray]:
    """Return the logits ``[N, C]`` of a network, whose weights are averages over the steps.

    Args:
        pictures: ``[N, channels, height, width]``, of the private records.
        labels: ``[N, C]`` in {0, 1}.
        settings: the settings.
        noise_multiplier: standard deviation of the noise over the clip; 0 without privacy.
        generator: the source of randomness.
    """
    from opacus import GradSampleModule

    seed = int(generator.integers(2**62))
    noise = torch.Generator().manual_seed(seed)
    num, num_labels = labels.shape
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = network_of(tuple(pictures.shape[1:]), num_labels)
    clip = settings.clip * math.sqrt(num_labels)
    count = max(1.0, num + generator.normal(scale=COUNT_NOISE * noise_multiplier))
    module = GradSampleModule(network, loss_reduction="sum")
    weights: list[Any] = list(network.parameters())
    speeds = [torch.zeros_like(each) for each in weights]
    averages = [each.detach().clone() for each in weights]
    with warnings.catch_warnings():
        # the gradient of the pictures is not needed
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        for step in range(settings.num_steps):
            taken = torch.from_numpy(np.flatnonzero(generator.random(num) < settings.sampling_rate))
            totals = [torch.zeros_like(each) for each in weights]
            for rows in torch.split(taken, _ROWS):
                module.zero_grad()
                losses = binary_cross_entropy_with_logits(
                    module(pictures[rows]), labels[rows], reduction="sum"
                )
                losses.backward()  # type: ignore[no-untyped-call]
                gradients = [each.grad_sample for each in weights]
                squares = torch.stack([each.flatten(1).square().sum(dim=1) for each in gradients])
                scales = (clip / squares.sum(dim=0).sqrt()).clamp(max=1)
                for total, gradient in zip(totals, gradients, strict=True):
                    total += torch.einsum("n,n...->...", scales, gradient)
            # early steps count less, where an average would keep the first weights
            decay = min(_DECAY, (1 + step) / (10 + step))
            rate = settings.speed / (clip * settings.sampling_rate * count)
            for weight, speed, average, total in zip(
                weights, speeds, averages, totals, strict=True
            ):
                total += noise_multiplier * clip * torch.randn(total.shape, generator=noise)
                speed.mul_(_MOMENTUM).add_(total)
                with torch.no_grad():
                    weight.sub_(rate * speed)
                    average.mul_(decay).add_(weight, alpha=1 - decay)
    for weight, average in zip(weights, averages, strict=True):
        weight.data = average
    module.to_standard_module()

    def logits(shown: Tensor) -> FloatArray:
        with torch.no_grad():
            parts = [network(part) for part in torch.split(shown, _ROWS)]
        found: FloatArray = torch.cat(parts).numpy().astype(np.float64)
        return found

    return logits
