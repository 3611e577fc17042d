"""Many choices and tests in Gaussian differential privacy: together they weigh less than each of them alone.

One choice or one test is a bit, whose trade-off curve touches that of a Gaussian mechanism at its
kink. What many of them release is smooth, and no longer needs the whole of these Gaussians. Let
``G_r`` be a Gaussian mechanism of ``mu^2 = r``. For each kind of bit there are numbers ``weight``
and ``width`` with which

    any bit of the kind and G_r together are at most G_(r + s),   s = weight (1 + excess(r /
    width)),

and ``excess(v) = min(pi / 2 - 1, 1 / (1 + min(v, 512)))``. So releases whose weights have the sum
``t`` are, in any order and chosen adaptively, at most the Gaussian mechanism of ``mu^2 = t`` plus
the sum of their excesses, if no width is above a common one. An event is charged its own ``mu^2``
where its width is above that. Proof: docs/accounting.md; tests compute bounds for all pairs of laws
of a kind.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from pate._typing import BoolArray, FloatArray

WIDTHS: FloatArray = 2.0 ** np.arange(-40, 0.01, 0.25)
"""The common widths ``[W]`` at which sums of weights are kept."""
WIDTHS.setflags(write=False)

FIRST_EXCESS = math.pi / 2 - 1
"""The excess of what has no Gaussian beside it: the bit alone, in place of the limit of many."""
EXCESS_LIMIT = 512.0
"""The number of widths up to which excesses are known to fall."""
LOSS_LIMIT = 8.0
"""The number of standard deviations of a loss up to which bits and Gaussians are compared."""
_WEIGHT = 5.0  # in widths: no weight is above it
_ROUNDING = 1 + 1e-12


class Bits(NamedTuple):
    """A kind of bit, of a real parameter ``scale``: its weight is about ``weight * scale^2``, up to a largest scale.

    Attributes:
        weight: the weight of a bit of ``scale`` 1, apart from what grows with the scale.
        width: its width in weights.
        largest: the largest scale.
    """

    weight: float
    width: float
    largest: float


CHOICE = Bits(weight=1.002 / 4, width=0.2, largest=1.0)
"""Choices whose loss has the range ``scale``; a pure ``epsilon`` is one of range ``2 epsilon``."""
TEST = Bits(weight=1.005 * 2 / math.pi, width=3.2, largest=0.25)
"""On which side of a threshold a Gaussian of standard deviation 1 falls, whose mean moves by ``scale``."""


def bit_weights(
    bits: Bits, scale: FloatArray, mu_squared: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return the weights ``[N, W]`` of N events at all `WIDTHS`, and which of them ``[N]`` are ever less than ``mu^2``.

    Args:
        bits: their kind.
        scale: their scales, ``[N]``.
        mu_squared: what each is charged alone, ``[N]``.
    """
    plain = bits.weight * np.minimum(scale, bits.largest) ** 2
    # s exp(s / 4) for s of weight pi / 2 at most: the smallest root of w = plain exp(pi w / 8)
    weight = plain
    for _ in range(40):
        weight = plain * np.exp(math.pi / 8 * weight)
    lighter = (scale <= bits.largest) & (weight * _ROUNDING < mu_squared)
    fits = lighter[:, None] & (bits.width * weight[:, None] <= WIDTHS)
    return np.where(fits, weight[:, None] * _ROUNDING, mu_squared[:, None]), lighter


def many_bits_mu_squared(weights: FloatArray, widths: FloatArray = WIDTHS) -> FloatArray:
    """Return the ``mu^2`` that sums of ``weights`` ``[W]`` have at ``widths`` ``[W]``, with all excesses."""
    first = _WEIGHT * widths
    beyond = np.maximum(weights - first, 0.0) / widths
    near, far = np.minimum(beyond, EXCESS_LIMIT), np.maximum(beyond - EXCESS_LIMIT, 0.0)
    excess = FIRST_EXCESS * np.minimum(weights, first) + widths * (
        np.log1p(near) + far / (1 + EXCESS_LIMIT)
    )
    return np.asarray((weights + excess) * _ROUNDING, dtype=np.float64)


@lru_cache(maxsize=256)
def largest_weights(mu_squared: float) -> FloatArray:
    """Return the largest sums of weights that have ``mu_squared`` at most, at each of the `WIDTHS` ``[W]``."""
    # the excess is at least 0, and at most that of first bits
    low, high = (
        np.full(WIDTHS.shape, mu_squared / (1 + 2 * FIRST_EXCESS)),
        np.full(WIDTHS.shape, mu_squared),
    )
    for _ in range(60):
        middle = (low + high) / 2
        within = many_bits_mu_squared(middle) <= mu_squared
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    low.setflags(write=False)
    return low


def lost_delta(rounds: float, mu_squared: float) -> float:
    """Bound the delta that losses beyond `LOSS_LIMIT` cost ``rounds`` bits of total ``mu_squared``."""
    return 2 * rounds * float(ndtr((mu_squared + 1) ** 0.5 / 2 - LOSS_LIMIT)) if rounds else 0.0
