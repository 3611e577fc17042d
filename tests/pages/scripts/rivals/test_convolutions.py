"""A network by descent on noised gradients: each record's is clipped, and the noise is paid for."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scripts.rivals import convolutions
from scripts.rivals.convolutions import NetworkDescent, descend_network

pytestmark = pytest.mark.slow

SHOWN = torch.eye(4).reshape(4, 1, 2, 2)
FIRST = 0.9  # the share of the first step in the average


@pytest.fixture
def linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear layer of zeros in place of the network."""

    def layer(shape: tuple[int, ...], num_labels: int) -> nn.Sequential:
        made = nn.Linear(4, num_labels)
        nn.init.zeros_(made.weight)
        nn.init.zeros_(made.bias)
        return nn.Sequential(nn.Flatten(), made)

    monkeypatch.setattr(convolutions, "network_of", layer)


def records(num: int) -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(1)
    pictures = torch.rand((num, 1, 2, 2), generator=drawn)
    return pictures, (torch.rand((num, 3), generator=drawn) < 0.5).float()


def learned(
    pictures: Tensor, labels: Tensor, settings: NetworkDescent, noise: float, seed: int = 0
) -> np.ndarray:
    """The weights ``[5, C]`` that a linear network learned, the bias last."""
    pytest.importorskip("opacus")
    generator = np.random.default_rng(seed)
    logits = descend_network(pictures, labels, settings, noise, generator=generator)
    bias = logits(0 * SHOWN[:1])
    return np.concatenate((logits(SHOWN) - bias, bias))


def clipped_mean(pictures: Tensor, labels: Tensor, clip: float) -> np.ndarray:
    """The mean of the clipped gradients at weights of zero, over the clip."""
    total = np.zeros((5, 3))
    for x, y in zip(pictures.flatten(1).numpy(), labels.numpy(), strict=True):
        slope = np.outer([*x, 1.0], 0.5 - y)
        total += slope * min(1.0, clip / float(np.linalg.norm(slope)))
    return total / clip / len(pictures)


@pytest.mark.usefixtures("linear")
@pytest.mark.parametrize("clip", [0.05, 10.0])
def test_one_step_follows_the_clipped_gradients(clip: float) -> None:
    pictures, labels = records(20)
    settings = NetworkDescent(num_steps=1, sampling_rate=1.0, clip=clip, speed=0.1)
    found = learned(pictures, labels, settings, 0.0)
    step = -FIRST * settings.speed * clipped_mean(pictures, labels, clip * math.sqrt(3))
    assert found == pytest.approx(step, rel=1e-4, abs=1e-7)
    other = -FIRST * settings.speed * clipped_mean(pictures, labels, 2.0)
    assert found != pytest.approx(other, rel=1e-2)


@pytest.mark.usefixtures("linear")
def test_noise_has_the_law_that_is_paid_for() -> None:
    """Pictures of zeros have no gradient but that of the bias: what else moves is noise."""
    pictures, labels = records(5000)
    settings = NetworkDescent(num_steps=1, sampling_rate=0.5)
    drawn = [learned(0 * pictures, labels, settings, 2.0, seed)[:-1] for seed in range(100)]
    # the count is noisy by 40 in 5000
    spread = float(np.std(drawn)) / (FIRST * settings.speed * 2.0 / (0.5 * 5000))
    assert spread == pytest.approx(1, abs=5 / math.sqrt(2 * 1200))
    assert spread != pytest.approx(1.2, abs=5 / math.sqrt(2 * 1200))
