"""How a student answers: as its network does, on the side of the constant answer unless a label may depart from it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from pate._linear import LEAST, SHARPNESS

_WHITE = 255


def gated(logits: Tensor, departs: Tensor, constants: Tensor) -> Tensor:
    """Return the network's logits ``[B, C]``, bent to the constant answer's side where a label does not depart.

    The constant answer decides such a label and the network ranks it:
        `pate._linear.bend_to_one_side` in torch.

    Args:
        logits: ``[B, C]``, of the network.
        departs: ``[C]``, whether the network may decide a label.
        constants: ``[C]``, the logits of the constant answer; minus infinity where nothing was
            released.
    """
    sharp = SHARPNESS * logits
    bent = torch.where(
        constants > 0, softplus(sharp) / SHARPNESS + LEAST, -softplus(-sharp) / SHARPNESS
    )
    return torch.where(departs, logits, torch.where(constants == -torch.inf, constants, bent))


class Answers(nn.Module):
    """A student as one module from raw samples to answers: with its feature map, its gate and its cuts.

    Args:
        features: the map from raw samples to what the network sees; None if it sees the samples.
        network: from features ``[B, ...]`` to logits ``[B, C]``.
        cuts: ``[C]``; a label is given where its probability is above its cut.
    """

    cuts: Tensor
    departs: Tensor
    constant_logits: Tensor

    def __init__(
        self, features: nn.Module | None, network: nn.Module, *, cuts: Sequence[float]
    ) -> None:
        super().__init__()
        self.features = nn.Identity() if features is None else features
        self.network = network
        self.register_buffer("cuts", torch.tensor(cuts, dtype=torch.float32), persistent=False)
        self.register_buffer("departs", torch.ones(len(cuts), dtype=torch.bool))
        self.register_buffer("constant_logits", torch.zeros(len(cuts)))

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Return probabilities and labels, float32 and bool ``[B, C]``.

        Args:
            samples: float32 ``[B, ...]``, or pictures in uint8, whose white is 1.
        """
        if samples.dtype == torch.uint8:
            samples = samples.float() / _WHITE
        logits = gated(self.network(self.features(samples)), self.departs, self.constant_logits)
        probabilities = logits.sigmoid()
        return probabilities, probabilities > self.cuts
