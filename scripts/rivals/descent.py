"""A linear head by descent on clipped, noised gradients of Poisson samples (DP-SGD)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pate._core.validation import FloatArray, require, require_count, require_positive
from pate.accounting import (
    DEFAULT_ORDERS,
    ComposedEvent,
    Event,
    GaussianEvent,
    NeighboringRelation,
    RenyiCurveEvent,
    RepeatedEvent,
)
from scripts.rivals.contributions import Contributions
from scripts.rivals.sampled_curve import sampled_gaussian_rdp

_ORDERS = DEFAULT_ORDERS[::6][DEFAULT_ORDERS[::6] < 1000]
# the count is released once, with this many times the noise of a step
COUNT_NOISE = 20.0
_RATES = np.geomspace(1e-3, 1e4, 141)
# variance of the logits that the weights of a head are taken to have before anything is learned
_LOGIT_VARIANCE = 4.0


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Public settings of the descent.

    Args:
        num_steps: number of steps.
        sampling_rate: the probability with which a step takes a unit.
        clip: the largest norm of the gradient of a unit, over the square root of the number of
            labels.
        speed: factor on the learning rate that follows from public figures.

    Raises:
        ValueError: on settings out of range.
    """

    num_steps: int = 200
    sampling_rate: float = 0.05
    clip: float = 0.25
    speed: float = 1.0

    def __post_init__(self) -> None:
        require_count(1, num_steps=self.num_steps)
        require_positive(sampling_rate=self.sampling_rate, clip=self.clip, speed=self.speed)
        require(self.sampling_rate <= 1, "sampling_rate <= 1", sampling_rate=self.sampling_rate)

    def event(self, noise_multiplier: float) -> Event:
        """Return the cost of all steps and a count of the units, for any change of a unit."""
        step = _step_event(noise_multiplier, self.sampling_rate)
        relation = NeighboringRelation.REPLACE_RECORD
        count = GaussianEvent(
            noise_multiplier=COUNT_NOISE * noise_multiplier, neighboring_relation=relation
        )
        return ComposedEvent(events=(RepeatedEvent(event=step, count=self.num_steps), count))


@lru_cache(maxsize=1024)
def _step_event(noise_multiplier: float, rate: float) -> Event:
    curve = sampled_gaussian_rdp(_ORDERS, noise_multiplier, rate)
    return RenyiCurveEvent(
        orders=tuple(_ORDERS.tolist()),
        rdp=tuple(curve.tolist()),
        neighboring_relation=NeighboringRelation.REPLACE_RECORD,
    )


def learning_rate(
    eigenvalues: FloatArray,
    *,
    settings: Descent,
    num_labels: int,
    noise_multiplier: float,
    count: float,
) -> float:
    """Return the learning rate of the least expected loss, only from public figures and the noise.

    The loss of a label is taken for quadratic, with a curvature of a quarter of each public second
    moment; weights to be learned for normal, of equal variance in all directions; the gradients of
    units for as long as the gradients of an untrained head, ``sqrt(C) / 2``. The remaining error of
    the weights after all steps, and their accumulated noise, are then geometric sums.

    Args:
        eigenvalues: ``[F]``, of the mean product of public features.
        settings: the settings of the descent.
        num_labels: number of labels.
        noise_multiplier: standard deviation of the noise over the clip.
        count: number of units, noisy.
    """
    curvature = np.maximum(eigenvalues, 0) / 4 * min(1.0, 2 * settings.clip)
    noise = (
        noise_multiplier * settings.clip * math.sqrt(num_labels) / (settings.sampling_rate * count)
    )
    variance = _LOGIT_VARIANCE / max(float(eigenvalues.sum()), 1e-12)
    stable = _RATES[_RATES * curvature.max() <= 1]
    kept = (1 - stable[:, None] * curvature) ** 2
    left = kept**settings.num_steps
    gathered = np.where(kept < 1, (1 - left) / np.maximum(1 - kept, 1e-300), settings.num_steps)
    expected = (curvature * (variance * left + (stable[:, None] * noise) ** 2 * gathered)).sum(
        axis=1
    )
    return float(stable[int(np.argmin(expected))])


def descend(
    private: Contributions,
    eigenvalues: FloatArray,
    settings: Descent,
    noise_multiplier: float,
    *,
    generator: np.random.Generator,
) -> FloatArray:
    """Return weights ``[F, C]`` of a logistic head, the mean over the second half of the steps.

    A unit's gradient is the gradient of the mean loss of its records, clipped. Which units a step
    takes comes from ``generator``, and the noise from a generator of torch that is seeded by it.

    Args:
        private: the records.
        eigenvalues: ``[F]``, of the mean product of public features.
        settings: the settings of the descent.
        noise_multiplier: standard deviation of the noise over the clip.
        generator: the source of randomness.
    """
    import torch
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from torch.nn.functional import binary_cross_entropy_with_logits

    units, num_labels = len(private.starts), private.labels.shape[1]
    count = max(1.0, units + generator.normal(scale=COUNT_NOISE * noise_multiplier))
    rate = settings.speed * learning_rate(
        eigenvalues,
        settings=settings,
        num_labels=num_labels,
        noise_multiplier=noise_multiplier,
        count=count,
    )
    # without the weights that a layer draws from the global random state
    head: torch.nn.Linear = torch.nn.utils.skip_init(  # type: ignore[no-untyped-call]
        torch.nn.Linear, private.features.shape[1], num_labels, bias=False
    )
    torch.nn.init.zeros_(head.weight)
    clip = settings.clip * math.sqrt(num_labels)
    module = GradSampleModuleFastGradientClipping(head, loss_reduction="sum", max_grad_norm=clip)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(head.parameters(), lr=rate),
        noise_multiplier=noise_multiplier,
        max_grad_norm=clip,
        expected_batch_size=settings.sampling_rate * count,
        generator=torch.Generator().manual_seed(int(generator.integers(2**62))),
    )
    features, labels = torch.from_numpy(private.features), torch.from_numpy(private.labels)
    shares = torch.from_numpy(private.shares).float()
    total, first = torch.zeros_like(head.weight), settings.num_steps // 2
    with warnings.catch_warnings():
        # the gradient of the features is not needed
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        for step in range(settings.num_steps):
            taken = np.flatnonzero(generator.random(units) < settings.sampling_rate)
            rows, real = (torch.from_numpy(array) for array in private.rows_of(taken))
            losses = binary_cross_entropy_with_logits(
                module(features[rows]), labels[rows], reduction="none"
            )
            losses = (losses.sum(dim=2) * shares[rows] * real).sum(dim=1)
            # this pass only measures the norms of the units' gradients
            losses.sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
            scales = module.get_clipping_coef()
            optimizer.zero_grad()
            module.disable_hooks()
            (scales * losses).sum().backward()
            module.enable_hooks()
            optimizer.step()
            if step >= first:
                total += head.weight.detach()
    weights: FloatArray = (total / (settings.num_steps - first)).numpy().T.astype(np.float64)
    return weights
