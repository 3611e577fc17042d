from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

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


@pytest.mark.parametrize("groups", [0, 8])
def test_pooling_before_relu_changes_nothing(groups: int) -> None:
    network = models.SmallCNN((3, 16, 16), 4, groups=groups).double()
    layers = list(network)
    for place, layer in enumerate(layers[:-1]):
        if isinstance(layer, nn.MaxPool2d):
            layers[place : place + 2] = layers[place + 1], layer
    usual = nn.Sequential(*layers)
    assert [type(layer) for layer in usual] != [type(layer) for layer in network]
    pictures = torch.rand(5, 3, 16, 16, dtype=torch.float64)
    gradients = []
    for module in (network, usual):
        logits = module(pictures)
        gradients.append(torch.autograd.grad(logits.square().sum(), list(network.parameters())))
    assert torch.equal(network(pictures), usual(pictures))
    for here, there in zip(*gradients, strict=True):
        assert torch.allclose(here, there, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_a_backbone_of_torchvision() -> None:
    network = models.Backbone((3, 32, 32), "torchvision.resnet18").eval()
    pictures = torch.rand(2, 3, 32, 32)
    assert network(pictures).shape == (2, 512)
    assert network.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    # a student that is carried away asks for no weights, whatever they were
    bare: dict[str, Any] = network.settings_without_weights
    again = models.Backbone((3, 32, 32), "torchvision.resnet18", **bare)
    again.load_state_dict(network.state_dict())
    assert torch.equal(again.eval()(pictures), network(pictures))
