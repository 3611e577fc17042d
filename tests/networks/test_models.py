from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import models
from pate._networks.data.torch_maps import load_weights

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
def test_layers_without_weights_are_those_with_them() -> None:
    first = models.ResNet50((3, 32, 32), 7, norm="batch")
    assert any("running_mean" in name for name in first.state_dict())
    assert first.settings_without_weights == {"weights": None, "norm": "batch"}
    with pytest.raises(
        ValueError, match="norm='batch', the norm of these weights, got norm='group'"
    ):
        models.ResNet50((3, 32, 32), 7, weights="DEFAULT", norm="group")


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


@pytest.mark.slow
def test_weights_of_a_file_by_name_or_in_order(tmp_path: Path) -> None:
    """Files of timm and torchvision have a last layer more, and other names."""
    whole = models.ResNet50((3, 32, 32), 7, norm="batch")
    torch.save(whole.body.state_dict(), tmp_path / "whole.pt")
    backbone = models.Backbone((3, 32, 32), "torchvision.resnet50")
    load_weights(backbone.body, tmp_path / "whole.pt")
    assert torch.equal(backbone.state_dict()["body.conv1.weight"], whole.body.conv1.weight)
    other = models.Backbone((3, 32, 32), "torchvision.resnet50")
    save_file(whole.body.state_dict(), tmp_path / "whole.safetensors")
    load_weights(other, tmp_path / "whole.safetensors")  # its names begin with `body.`
    assert all(
        torch.equal(one, two)
        for one, two in zip(
            backbone.state_dict().values(), other.state_dict().values(), strict=True
        )
    )
    with pytest.raises(ValueError, match=r"^Expected weights of Linear in .*whole.pt, got"):
        load_weights(torch.nn.Linear(2, 2), tmp_path / "whole.pt")
    with pytest.raises(ValueError, match="a file of weights, got weights="):
        load_weights(other, tmp_path / "none.pt")
