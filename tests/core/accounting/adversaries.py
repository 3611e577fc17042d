"""Adversaries who are played out, in every way or in a good one: what they reach is no bound."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

FloatArray = NDArray[np.float64]


def choices(eta: float, losses: FloatArray) -> FloatArray:
    """Laws ``[M, 2 sides, 2 outcomes]`` of randomised response with losses ``t`` and ``t -
    eta``."""
    q = np.expm1(losses - eta) / (np.exp(losses - eta) - np.exp(losses))
    p = q * np.exp(losses)
    return np.stack([np.stack([p, 1 - p], 1), np.stack([q, 1 - q], 1)], 1)


def bits(mu: float, thresholds: FloatArray) -> FloatArray:
    """Laws of the bits of one Gaussian and of another ``mu`` away, in both directions."""
    a, b = (
        np.concatenate([thresholds, thresholds + mu]),
        np.concatenate([thresholds + mu, thresholds]),
    )
    return np.stack([np.stack([ndtr(a), ndtr(-a)], 1), np.stack([ndtr(b), ndtr(-b)], 1)], 1)


def enumerated(gamma: FloatArray, rounds: Sequence[FloatArray]) -> FloatArray:
    """The best of all adaptive strategies that choose among ``rounds[i]`` ``[M, 2, 2]``, by its
    definition."""
    if not rounds:
        return np.maximum(0.0, 1 - gamma)
    p, q = rounds[0][:, 0], rounds[0][:, 1]
    later = enumerated(gamma[..., None, None] * (q / p), rounds[1:])
    best: FloatArray = (later * p).sum(-1).max(-1)
    return best


def attack(
    rounds: Sequence[FloatArray], count: int, epsilon: float | FloatArray, step: float = 0.002
) -> FloatArray:
    """A strategy that is good at ``epsilon``, played out: below the optimum, up to roundings.

    It sees every choice and every bit, which StableTopK does not show: it is an attack on their
    curves alone.

    Values and slopes at nodes; in between, the better of two tangents, which lie below a convex
    function.
    """
    nodes = np.arange(round(-4 / step), round((float(np.max(epsilon)) + 5) / step) + 1)
    gamma = np.exp(nodes * step)
    value, slope = np.maximum(0, 1 - gamma), np.where(gamma < 1, -gamma, 0.0)  # slope times gamma
    for _ in range(count):
        for laws in reversed(rounds):
            place = np.log(laws[:, 1] / laws[:, 0]) / step
            cell = np.floor(place).astype(int)
            ends = np.expm1((place - cell) * step), np.expm1((place - cell - 1) * step)
            far = int(np.abs(cell).max()) + 2
            below = np.exp((nodes[0] - np.arange(far, 0, -1)) * step)
            values = np.concatenate([1 - below, value, np.zeros(far)])
            slopes = np.concatenate([-below, slope, np.zeros(far)])
            value, slope = np.full(nodes.size, -1.0), np.zeros(nodes.size)
            for m in range(len(laws)):
                reached, rising = np.zeros(nodes.size), np.zeros(nodes.size)
                for o in (0, 1):
                    start = cell[m, o] + far
                    left, right = (
                        slice(start, start + nodes.size),
                        slice(start + 1, start + 1 + nodes.size),
                    )
                    tangents = [
                        values[s] + slopes[s] * end[m, o]
                        for s, end in zip((left, right), ends, strict=True)
                    ]
                    turns = [
                        slopes[s] * (1 + end[m, o])
                        for s, end in zip((left, right), ends, strict=True)
                    ]
                    reached += laws[m, 0, o] * np.maximum(*tangents)
                    rising += laws[m, 0, o] * np.where(tangents[0] >= tangents[1], *turns)
                value, slope = np.maximum(value, reached), np.where(reached > value, rising, slope)
    return np.interp(epsilon, nodes * step, value, right=0.0)
