from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import nn

import models

NETWORKS = [
    models.Linear,
    models.MLP,
    models.SmallCNN,
    partial(models.SmallCNN, groups=0, channels_last=True),
    models.ConvNet,
    models.ResNet8,
    pytest.param(models.ResNet50, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("network", NETWORKS)
def test_logits_for_pictures(network: Callable[[Sequence[int], int], nn.Module]) -> None:
    module = network((3, 32, 32), 7)
    logits = module(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, 7)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize(
    ("shape", "last"), [((8, 8), 4), ((1, 14, 14), 16), ((3, 32, 32), 64), ((3, 64, 40), 40)]
)
def test_convolutions_follow_the_size_of_pictures(shape: tuple[int, ...], last: int) -> None:
    network = models.ConvNet(shape, 7)
    assert network(torch.rand(2, *shape)).shape == (2, 7)
    assert network[-1].in_features == 64 * last
