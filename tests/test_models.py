from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

import models


@pytest.mark.parametrize("network", [models.Linear, models.MLP, models.SmallCNN, models.ResNet50])
def test_logits_for_pictures(network: Callable[[Sequence[int], int], nn.Module]) -> None:
    module = network((3, 32, 32), 7)
    logits = module(torch.rand(2, 3, 32, 32))
    assert logits.shape == (2, 7)
    assert torch.isfinite(logits).all()


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
