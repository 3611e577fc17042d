"""Assumptions of published epsilons of DP-SGD: how batches are drawn, and who a neighbor is.

A step releases the sum of clipped gradients with normal noise of ``s`` clips. Published figures
take each record into a step with probability q, independently (Poisson sampling), and neighbors
that have one record more or less. Batches that are cut from a shuffled list, each record once in
each epoch, are another mechanism: without any gain from sampling an epoch costs a Gaussian
mechanism of noise multiplier s, or s / 2 if a record is altered.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pate._core.accounting.cost import conversion_overhead, smallest_where
from pate._core.validation import (
    FloatArray,
    require_count,
    require_in_open_unit_interval,
    require_positive,
)
from pate.accounting import gaussian_epsilon
from scripts.rivals.sampled_curve import sampled_gaussian_rdp

ORDERS: FloatArray = np.concatenate(
    (np.arange(1.25, 16, 0.25), np.arange(16, 64, 2.0), np.geomspace(64, 512, 12))
)


@dataclass(frozen=True, kw_only=True)
class Training:
    """A published training with DP-SGD.

    Args:
        num_records: number of private records.
        batch_size: records of a step, on average.
        epochs: number of passes.
        delta: the delta of its epsilons.
    """

    num_records: int
    batch_size: int
    epochs: int
    delta: float

    def __post_init__(self) -> None:
        require_count(
            1, num_records=self.num_records, batch_size=self.batch_size, epochs=self.epochs
        )
        require_in_open_unit_interval(delta=self.delta)

    @property
    def rate(self) -> float:
        """The share of the records that a step takes."""
        return self.batch_size / self.num_records

    @property
    def num_steps(self) -> int:
        """The number of steps."""
        return self.epochs * int(self.num_records / self.batch_size)


def poisson_added_rdp(orders: FloatArray, noise_multiplier: float, rate: float) -> FloatArray:
    """Return the Renyi curve ``[K]`` of a step with Poisson sampling, if a record is added or removed.

    The divergence of ``(1 - q) N(0, s^2) + q N(1, s^2)`` from ``N(0, s^2)``, the larger direction
    (Mironov, Talwar & Zhang (2019), Theorem 5), by the trapezoidal rule.
    """
    require_positive(noise_multiplier=noise_multiplier, rate=rate)
    shift, curve = 1 / noise_multiplier, np.empty(len(orders))
    for i, order in enumerate(orders.tolist()):
        width = 0.1 / (max(1.0, shift) * math.sqrt(order))
        points = np.arange(-12 - shift, order * shift + 12, width)
        log_ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + shift * points - shift**2 / 2)
        exponents = order * log_ratio - points**2 / 2
        top = float(exponents.max())
        total = top + math.log(
            float(np.exp(exponents - top).sum()) * width / math.sqrt(2 * math.pi)
        )
        curve[i] = max(0.0, total) / (order - 1)
    return curve


def poisson_epsilon(
    training: Training, noise_multiplier: float, *, altered: bool, classic: bool = False
) -> float:
    """Return epsilon of all steps with Poisson sampling; a neighbor has an ``altered`` record, or one more or less."""
    curve = (sampled_gaussian_rdp if altered else poisson_added_rdp)(
        ORDERS, noise_multiplier, training.rate
    )
    overhead = conversion_overhead(ORDERS, training.delta, "classic" if classic else "optimal")
    return float(np.maximum(training.num_steps * curve + overhead, 0).min())


def shuffled_epsilon(training: Training, noise_multiplier: float, *, altered: bool) -> float:
    """Return epsilon of shuffled batches, without any gain from sampling: one Gaussian mechanism an epoch."""
    mu = math.sqrt(training.epochs) / noise_multiplier * (2 if altered else 1)
    return gaussian_epsilon(training.delta, mu)


def noise_for(training: Training, epsilon: float) -> float:
    """Return the noise multiplier at which Poisson sampling costs ``epsilon``, a record more or less, to 1e-4."""
    require_positive(epsilon=epsilon)

    def holds(noise: float) -> bool:
        return poisson_epsilon(training, noise, altered=False) <= epsilon

    return _smallest(holds)


def _smallest(holds: Callable[[float], bool]) -> float:
    high = 0.5
    while not holds(high):
        high *= 2
    return smallest_where(holds, high / 2, high, tolerance=1e-4)
