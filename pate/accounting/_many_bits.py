"""Many choices and tests in Gaussian differential privacy weigh less than the sum of single ones.

One choice or one test is a bit. Its trade-off curve touches the curve of a Gaussian mechanism at a
kink. The joint trade-off curve of many bits is smooth, and lies above the one of all these Gaussian
mechanisms together. Let ``G_r`` be a Gaussian mechanism of ``mu^2 = r``. For each kind of bit there
are numbers ``weight`` and ``width`` with which

    any bit of the kind and G_r together are at most G_(r + s),   s = weight (1 + excess(r /
    width)),

and ``excess(v) = min(pi / 2 - 1, 1 / (1 + min(v, 512)))``. So releases of total weight ``t`` are,
in any order and chosen adaptively, at most the Gaussian mechanism of ``mu^2 = t`` plus the sum of
their excesses, if no width exceeds a common one. An event of larger width is charged its own
``mu^2``. Proof: docs/accounting.md; tests compute bounds for all pairs of laws of a kind.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from pate._validation import BoolArray, FloatArray

WIDTHS: FloatArray = 2.0 ** np.arange(-40, 0.01, 0.25)
"""The common widths ``[W]`` at which sums of weights are kept."""
WIDTHS.setflags(write=False)

FIRST_EXCESS = math.pi / 2 - 1
"""The excess of a bit without any Gaussian mechanism next to it: one bit, not the limit of many."""
EXCESS_LIMIT = 512.0
"""The number of widths up to which excesses are known to fall."""
LOSS_LIMIT = 8.0
"""The number of standard deviations of a loss up to which bits and Gaussians are compared."""
_WEIGHT = 5.0  # above every weight, in widths: `Bits.width` is at least a fifth of the weight
_ROUNDING = 1 + 1e-12  # above the rounding errors of a weight or of a sum with its excess


class Bits(NamedTuple):
    """A kind of bit with a parameter ``scale``: its weight is about ``weight * scale^2``.

    Attributes:
        weight: the weight of a bit of ``scale`` 1, apart from what grows with the scale.
        width: its width in weights.
        largest: the largest scale.
    """

    weight: float
    width: float
    largest: float


CHOICE = Bits(weight=1.002 / 4, width=0.2, largest=1.0)
"""Choices with a loss of range ``scale``; a pure ``epsilon`` is one of range ``2 epsilon``."""
TEST = Bits(weight=1.005 * 2 / math.pi, width=3.2, largest=0.25)
"""The side of a threshold on which a standard normal falls when its mean moves by ``scale``."""


def bit_weights(
    bits: Bits, scale: FloatArray, mu_squared: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Return weights ``[N, W]`` of N bits at all `WIDTHS`, and which ``[N]`` are below ``mu^2``.

    Args:
        bits: their kind.
        scale: their scales, ``[N]``.
        mu_squared: the charge of each without the others, ``[N]``.
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
    """Return the ``mu^2`` of total ``weights`` ``[W]`` at ``widths`` ``[W]``, with all excesses."""
    first = _WEIGHT * widths
    beyond = np.maximum(weights - first, 0.0) / widths
    near, far = np.minimum(beyond, EXCESS_LIMIT), np.maximum(beyond - EXCESS_LIMIT, 0.0)
    excess = FIRST_EXCESS * np.minimum(weights, first) + widths * (
        np.log1p(near) + far / (1 + EXCESS_LIMIT)
    )
    return np.asarray((weights + excess) * _ROUNDING, dtype=np.float64)


@lru_cache(maxsize=256)
def largest_weights(mu_squared: float) -> FloatArray:
    """Return the largest total weights ``[W]`` of at most ``mu_squared`` at all `WIDTHS`."""
    # the excess lies between 0 and the excess of first bits
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
    """Bound the delta of losses beyond `LOSS_LIMIT` in ``rounds`` bits of total ``mu_squared``."""
    return 2 * rounds * float(ndtr((mu_squared + 1) ** 0.5 / 2 - LOSS_LIMIT)) if rounds else 0.0
