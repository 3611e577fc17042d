"""Random streams, and the laws of noise."""

from __future__ import annotations

import secrets
from typing import Literal, assert_never, get_args

import numpy as np
from randomgen import ChaCha
from scipy.special import log_expit, log_ndtr

from pate._validation import FloatArray, require, require_count

Noise = Literal["gumbel", "exponential", "laplace", "logistic", "half_logistic"]
"""Laws of noise with log-Lipschitz survival: its logarithm changes by at most 1 per unit."""
ChoiceNoise = Literal["gumbel", "exponential"]
"""Noise of a choice among too many outcomes to list: exponential mechanism or permute-and-flip."""

KEY_BITS = 256


def draw_key() -> int:
    """Return a key of `KEY_BITS` from the operating system's entropy: no two releases share one."""
    return secrets.randbits(KEY_BITS)


def private_generator(key: int | None = None) -> np.random.Generator:
    """Return a generator of ChaCha20 (RFC 8439) with a ``key``, or a newly drawn one if None."""
    return np.random.Generator(ChaCha(key=draw_key() if key is None else key, rounds=20))


def seeded_generator(seed: int, *, release: int = 0) -> np.random.Generator:
    """Return a repeatable generator for tests and teaching.

    Releases with its noise are NOT private.

    ``release`` numbers the releases made with one seed, so that no two of them share a stream.

    >>> seeded_generator(3).integers(10, size=4)
    array([6, 0, 2, 1])
    """
    require_count(0, seed=seed, release=release)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, release])))


def require_generator(generator: object) -> None:
    """Raise ``ValueError`` unless ``generator`` is one, such as a seed in its place."""
    require(
        isinstance(generator, np.random.Generator),
        "a generator such as pate.private_generator()",
        generator=generator,
    )


def require_noise(kind: object = Noise, **noises: str) -> None:
    """Raise ``ValueError`` unless each of ``noises`` is one of the names of ``kind``."""
    for name, noise in noises.items():
        require(noise in get_args(kind), f"a noise among {get_args(kind)}", **{name: noise})


def log_survival(values: FloatArray, noise: Noise | Literal["gaussian"]) -> FloatArray:
    """Return the logarithm of the probability that noise of scale 1 exceeds ``values``."""
    if noise == "gaussian":
        return np.asarray(log_ndtr(-values), dtype=np.float64)
    if noise == "gumbel":
        with np.errstate(
            divide="ignore"
        ):  # far below the mode, where exp(-z) overflows, the chance is 1
            return np.log(-np.expm1(-np.exp(-np.maximum(values, -700.0))))
    if noise == "exponential":
        return 0.0 - np.maximum(values, 0.0)
    if noise == "laplace":
        tail = np.exp(-np.abs(values)) / 2
        return np.where(values > 0, -np.abs(values) - np.log(2), np.log1p(-tail))
    if noise == "half_logistic":
        return np.asarray(np.minimum(np.log(2) + log_expit(-values), 0.0))
    if noise == "logistic":
        return np.asarray(log_expit(-values), dtype=np.float64)
    assert_never(noise)


def quantile(tail: FloatArray, noise: Noise) -> FloatArray:
    """Return the values that noise of scale 1 exceeds with probability ``tail``."""
    if noise == "gumbel":
        return np.asarray(-np.log(-np.log1p(-tail)))
    if noise == "exponential":
        return np.asarray(-np.log(tail))
    if noise == "laplace":
        return np.where(tail < 0.5, -np.log(2 * tail), np.log(2 * np.maximum(1 - tail, 1e-300)))
    if noise == "half_logistic":
        return np.asarray(np.log(2 - tail) - np.log(tail))
    if noise == "logistic":
        return np.asarray(np.log1p(-np.minimum(tail, 1 - 1e-16)) - np.log(tail))
    assert_never(noise)
