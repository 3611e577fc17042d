"""The mean of the teachers' weights, each clipped: for linear teachers, whose weights can be averaged."""

from __future__ import annotations

import math

import numpy as np

from pate._typing import FloatArray, IntArray
from pate._validation import expect, expect_positive
from pate.accounting._events import ComposedEvent, Event, GaussianEvent
from pate.accounting._relation import NeighboringRelation

# the histogram of norms is released with this many times the noise of the weights
_NORM_NOISE = 2.0
NORMS: FloatArray = np.array([2.0**power for power in range(-4, 11)])
"""Public bounds of the histogram of norms: few, because the noise of all bins below a bound adds up."""


def averaging_event(noise_multiplier: float) -> Event:
    """Return what `averaged` costs: a histogram of norms, and a mean of clipped weights."""
    relation = NeighboringRelation.REPLACE_RECORD
    histogram = GaussianEvent(noise_multiplier=_NORM_NOISE * noise_multiplier, neighboring_relation=relation)
    mean = GaussianEvent(noise_multiplier=noise_multiplier, neighboring_relation=relation)
    return ComposedEvent(events=(histogram, mean))


def averaged(weights: FloatArray, noise_multiplier: float, *, generator: np.random.Generator) -> FloatArray:
    """Return the mean ``[...]`` of the teachers' weights ``[T, ...]``, clipped to about their median norm, with noise.

    One altered unit alters the weights of one teacher in any way, and the number of teachers is a public constant. That
    teacher leaves one bin of the histogram of norms for another, a distance of ``sqrt(2)``, and its clipped weights
    move by at most twice the clip, the mean by that over T.

    Weights that are not finite count as zeros, a public rule.
    """
    expect_positive(noise_multiplier=noise_multiplier)
    expect(weights.ndim >= 2 and len(weights) > 0, "weights of at least one teacher", shape=weights.shape)
    flat = weights.reshape(len(weights), -1).astype(np.float64)
    flat = np.where(np.isfinite(flat).all(axis=1, keepdims=True), flat, 0.0)
    lengths = np.linalg.norm(flat, axis=1)
    spread = math.sqrt(2) * _NORM_NOISE * noise_multiplier
    clip = noised_median(histogram_of(lengths), spread, generator=generator)
    clipped = flat * np.minimum(1, clip / np.maximum(lengths, 1e-300))[:, None]
    noise = generator.normal(scale=2 * clip * noise_multiplier, size=flat.shape[1])
    mean: FloatArray = ((clipped.sum(axis=0) + noise) / len(flat)).reshape(weights.shape[1:])
    return mean


def histogram_of(lengths: FloatArray) -> IntArray:
    """Return how many of the ``lengths`` ``[T]`` fall between two public bounds; the first and last bins are open."""
    return np.bincount(np.searchsorted(NORMS, lengths), minlength=len(NORMS) + 1)


def noised_median(histogram: IntArray, noise_std: float, *, generator: np.random.Generator) -> float:
    """Return the lowest public bound with half of the noisy counts below it, or the highest of all."""
    noisy = histogram + generator.normal(scale=noise_std, size=histogram.shape)
    below = np.cumsum(noisy)
    enough = np.append(2 * below[: len(NORMS) - 1] >= below[-1], True)
    return float(NORMS[int(np.argmax(enough))])
