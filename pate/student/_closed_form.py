"""The closed-form student in a network's place: what it is when the network is linear."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pate._linear import LinearStudent, fit_linear

Batch = tuple[Tensor, Tensor, Tensor]


class Solution(NamedTuple):
    """A closed-form student as parameters of a linear layer.

    Attributes:
        weight: ``[C, F]``.
        bias: ``[C]``.
        departs: ``[C]``, whether the model may decide a label; the others rank by it alone.
        constants: ``[C]``, the logits of the constant answer; minus infinity where nothing was
            released.
    """

    weight: Tensor
    bias: Tensor
    departs: Tensor
    constants: Tensor


def linear_layer(network: nn.Module) -> nn.Linear | None:
    """Return the layer of a network that is one linear layer on flattened features, or None if it is anything else."""
    # a class of its own may do anything in its forward
    plain = type(network).forward is nn.Sequential.forward
    layers = [*network] if isinstance(network, nn.Sequential) and plain else [network]
    while (
        len(layers) > 1
        and isinstance(layers[0], nn.Flatten)
        and (layers[0].start_dim, layers[0].end_dim) == (1, -1)
    ):
        layers = layers[1:]
    last = layers[0] if len(layers) == 1 else None
    return last if type(last) is nn.Linear and last.bias is not None else None


def solve(samples: Batch, noise_std: float | None) -> Solution:
    """Return the student of `fit_linear`.

    Args:
        samples: all of them, ``(features [N, ...], targets [N, C], mask [N, C])``.
        noise_std: standard deviation of the noise in the targets; None if they have none.
    """
    features, targets, mask = (part.double().cpu().numpy() for part in samples)
    return as_layer(fit_linear(features, targets, mask > 0, noise_std=noise_std))


def as_layer(student: LinearStudent) -> Solution:
    """Return a linear student as parameters of a layer."""
    weight, bias = student.weights[:-1].T, student.weights[-1]
    return Solution(
        weight=torch.tensor(weight, dtype=torch.float32),
        bias=torch.tensor(np.where(np.isfinite(bias), bias, 0), dtype=torch.float32),
        departs=torch.tensor(student.departs),
        constants=torch.tensor(student.constants, dtype=torch.float32),
    )
