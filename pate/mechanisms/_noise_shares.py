"""Gaussian noise in shares: each party adds one to its integers, and only the sum is revealed.

A share is a normal number rounded to a grid (`_exact_normal`), in steps of the grid, so that sums
are exact modulo 2^64 and can be masked. The sum of n shares of deviation s is the rounded normal of
deviation ``s sqrt(n)`` but for a probability of `failure`: the proof is in docs/privacy.md, "Noise
in shares".
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate._validation import FloatArray, require, require_count, require_positive
from pate.mechanisms._exact_normal import rounded_normal

UInt64Array = NDArray[np.uint64]

# a share has 2^30 steps of its grid in a standard deviation, or up to twice as many
_FINE_BITS = 30
_COARSE_BITS = 20  # as released counts have
_ROOM = 2.0**62  # of steps, which the noise of 2^20 silos does not fill


def share_sigma(sigma: float, num_honest: int) -> float:
    """Return the standard deviation of a share, of which ``num_honest`` make noise of ``sigma``."""
    require_positive(sigma=sigma)
    require_count(1, num_honest=num_honest)
    return sigma / math.sqrt(num_honest)


def share_grid(sigma: float) -> float:
    """Return the grid of shares: a power of two between ``sigma / 2^31`` and ``sigma / 2^30``."""
    return 2.0 ** (math.floor(math.log2(sigma)) - _FINE_BITS)


def failure(num_shares: int) -> float:
    """Return a bound on the probability that a sum of shares is none of the rounded normal law."""
    # (n - 1) / (24 * 2^60), plus a bound that is too small to matter
    return num_shares * 2.0 ** -(2 * _FINE_BITS + 4)


def require_room(num_teachers: int, *, sigma: float) -> None:
    """Raise ``ValueError`` unless counts of so many teachers are multiples of the grid in range."""
    grid = share_grid(sigma)
    limits = (
        f"shares of noise between {num_teachers * 2**-30:.2g} and 2^30 votes"
        f" for {num_teachers} teachers"
    )
    require(grid <= 1 and num_teachers / grid < _ROOM, limits, share_sigma=sigma)


def summand(counts: ArrayLike, sigma: float, generator: np.random.Generator) -> UInt64Array:
    """Return integer ``counts`` with a share of noise, in steps of `share_grid`, modulo 2^64.

    Args:
        counts: integers of at least 0.
        sigma: standard deviation of the share, in votes.
        generator: source of the noise.
    """
    whole, grid = np.asarray(counts), share_grid(sigma)
    require(whole.dtype.kind in "iu", "integer counts", dtype=str(whole.dtype))
    require_room(int(whole.max(initial=0)), sigma=sigma)
    noise = rounded_normal(np.zeros(whole.shape), sigma / grid, generator).astype(np.int64)
    return whole.astype(np.uint64) * np.uint64(1 / grid) + noise.view(np.uint64)


def decode(total: UInt64Array, sigma: float, num_shares: int) -> FloatArray:
    """Return noisy counts from a sum of ``num_shares`` shares, rounded as `add_gaussian` rounds."""
    coarse = 2.0 ** math.ceil(math.log2(sigma * math.sqrt(num_shares)) - _COARSE_BITS)
    steps = total.view(np.int64) * (share_grid(sigma) / coarse)
    return np.asarray(np.rint(steps) * coarse)
