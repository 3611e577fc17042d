"""Random streams and noise, all in float64: float32 exponentials are exactly zero now and then."""

from __future__ import annotations

import secrets
from typing import Literal, get_args

import numpy as np

from pate.typing import FloatArray
from pate.validation import expect, expect_count

Noise = Literal["gumbel", "exponential", "laplace", "logistic", "half_logistic"]
"""Noise laws F whose survival function is log-Lipschitz: ``log(1 - F)`` changes by at most 1 per unit."""


def draw_seed() -> tuple[int, int]:
    """Return 128 bits of key and 256 bits of counter from the operating system's entropy.

    Philox is counter-based: the probability that generators of two such seeds share a position of a stream is
    negligible.
    """
    return secrets.randbits(128), secrets.randbits(256)


def private_generator(seed: tuple[int, int] | None = None) -> np.random.Generator:
    """Return the generator of a key and a counter that `draw_seed` drew; newly drawn ones if None."""
    key, counter = draw_seed() if seed is None else seed
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def seeded_generator(seed: int, *, release: int = 0) -> np.random.Generator:
    """Return a repeatable generator for tests and teaching. Releases with its noise are NOT private.

    ``release`` numbers the releases made with one seed, so that no two of them share a stream.
    """
    expect_count(0, seed=seed, release=release)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, release])))


def gumbel(generator: np.random.Generator, size: int | tuple[int, ...]) -> FloatArray:
    """Draw standard Gumbel noise, float64.

    It is minus the logarithm of exponential noise, drawn twice as fast as by numpy's own method.
    """
    draws = generator.standard_exponential(size)
    np.maximum(draws, np.finfo(np.float64).tiny, out=draws)  # the ziggurat may return an exact 0 once in 2^53
    np.log(draws, out=draws)
    return np.negative(draws, out=draws)


def expect_noise(kind: object = Noise, **noises: str) -> None:
    """Raise ``ValueError`` unless each of ``noises`` is one of the names of ``kind``."""
    for name, noise in noises.items():
        expect(noise in get_args(kind), f"a noise among {get_args(kind)}", **{name: noise})


def draw(noise: Noise, generator: np.random.Generator, size: int | tuple[int, ...]) -> FloatArray:
    """Draw noise of scale 1 by name, float64. Raises ``ValueError`` on an unknown name."""
    expect_noise(noise=noise)
    if noise == "gumbel":
        return gumbel(generator, size)
    if noise == "exponential":
        return generator.standard_exponential(size)
    if noise == "laplace":
        return generator.standard_exponential(size) - generator.standard_exponential(size)
    # the logarithm of a ratio of exponentials is logistic
    logistic = gumbel(generator, size) - gumbel(generator, size)
    return logistic if noise == "logistic" else np.abs(logistic)
