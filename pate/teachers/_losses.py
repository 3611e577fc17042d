"""Losses entry by entry, so that teachers share no weight, threshold or mean."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from pate._settings import RecordsInitArgs
from pate._validation import require


class EntryLoss(RecordsInitArgs, ABC):
    """A loss that treats each entry of a batch by itself."""

    @abstractmethod
    def __call__(self, logits: Tensor, labels: Tensor, positive_weights: Tensor) -> Tensor:
        """Return losses ``[..., C]`` of ``logits [..., C]`` against ``labels [..., C]`` in {0, 1}.

        ``positive_weights`` (broadcast against the labels) multiply the losses of positive labels.
        """


class BinaryCrossEntropy(EntryLoss):
    """Cross-entropy of each label."""

    def __call__(self, logits: Tensor, labels: Tensor, positive_weights: Tensor) -> Tensor:
        """Return the losses, of the shape of ``labels``."""
        return binary_cross_entropy_with_logits(
            logits, labels, reduction="none", pos_weight=positive_weights
        )


class AsymmetricLoss(EntryLoss):
    """Cross-entropy with less weight on well-predicted labels, and on negatives in particular.

    With p the predicted probability, a positive label costs ``-(1 - p)^gamma_positive log p``; a
    negative one, with ``q = max(p - margin, 0)``, costs ``-q^gamma_negative log(1 - q)`` (Ridnik et
    al. 2021).

    Args:
        gamma_positive: exponent of positive labels, at least 0.
        gamma_negative: exponent of negative labels, at least 0.
        margin: probability up to which a negative label costs nothing, in [0, 1).
    """

    def __init__(
        self, gamma_positive: float = 0.0, gamma_negative: float = 4.0, margin: float = 0.05
    ) -> None:
        require(gamma_positive >= 0, "gamma_positive >= 0", gamma_positive=gamma_positive)
        require(gamma_negative >= 0, "gamma_negative >= 0", gamma_negative=gamma_negative)
        require(0 <= margin < 1, "0 <= margin < 1", margin=margin)
        self.gamma_positive, self.gamma_negative, self.margin = (
            gamma_positive,
            gamma_negative,
            margin,
        )

    def __call__(self, logits: Tensor, labels: Tensor, positive_weights: Tensor) -> Tensor:
        """Return the losses, of the shape of ``labels``."""
        unlikely = torch.sigmoid(-logits)
        positive = -_power(unlikely, self.gamma_positive) * logsigmoid(logits)
        if self.margin:
            # log(1 - q) is finite: the margin keeps q away from 1
            shifted = (1 - unlikely - self.margin).clamp(min=0)
            negative = -_power(shifted, self.gamma_negative) * torch.log1p(-shifted)
        else:
            negative = -_power(1 - unlikely, self.gamma_negative) * logsigmoid(-logits)
        return torch.where(labels > 0.5, positive_weights * positive, negative)


class FocalLoss(AsymmetricLoss):
    """Cross-entropy times ``(1 - p)^gamma``, p the right answer's probability (Lin et al. 2017).

    Args:
        gamma: the exponent, at least 0; 0 is cross-entropy.
    """

    def __init__(self, gamma: float = 2.0) -> None:
        require(gamma >= 0, "gamma >= 0", gamma=gamma)
        super().__init__(gamma_positive=gamma, gamma_negative=gamma, margin=0.0)


def _power(base: Tensor, exponent: float) -> Tensor:
    # the gradient of base^0 at base = 0 is 0 * inf
    return base**exponent if exponent else torch.ones_like(base)
