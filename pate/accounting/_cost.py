"""The cost of a release: a Renyi curve, the probability it leaves out, a dominating Gaussian."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pate._validation import FloatArray
from pate.accounting._many_bits import WIDTHS


class _Orders(np.ndarray[Any, Any]):
    """Orders that signatures show by their name, in place of 257 numbers."""

    def __repr__(self) -> str:
        return "DEFAULT_ORDERS" if self is DEFAULT_ORDERS else super().__repr__()


DEFAULT_ORDERS: FloatArray = np.append(1 + np.geomspace(1e-2, 1e5, 256), 1e9).view(_Orders)
"""Renyi orders ``[257]`` for curves: within 0.05% of the best order for rho-zCDP, rho 1e-6 to 1e3.

The last one stands for pure DP: at it the conversion adds next to nothing.
"""
DEFAULT_ORDERS.setflags(write=False)


class Cost(NamedTuple):
    """The cost of one or more releases; each part adds up under adaptive composition.

    ``a + b`` is the cost of both, ``a * n`` the cost of n such releases.

    Attributes:
        rdp: the Renyi-DP curve on a grid of orders, ``[K]``.
        log_survival: ``log(1 - delta0)``, where delta0 is the probability that the curve leaves
            out: the release is delta0-approximate RDP.
        mu_squared: the square of the smallest known ``mu`` for which the release, apart from
            delta0, is ``mu``-GDP (Dong, Roth & Su (2022)); infinite if none is known.
        weights: the same for releases among many, at each of the widths ``[W]`` that these may
            have; ``mu_squared`` at all of them if None (docs/accounting.md, "Many bits").
        rounds: the number of releases with a weight less than their ``mu_squared``.
    """

    rdp: FloatArray
    log_survival: float
    mu_squared: float = math.inf
    weights: FloatArray | None = None
    rounds: float = 0.0

    @classmethod
    def nothing(cls, orders: FloatArray) -> Cost:
        """Return the zero cost of no release on ``orders`` ``[K]``."""
        return cls(np.zeros(orders.shape), 0.0, 0.0)

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        """Return the cost of both together."""
        plain = self.weights is None and other.weights is None
        return Cost(
            self.rdp + other.rdp,
            self.log_survival + other.log_survival,
            self.mu_squared + other.mu_squared,
            None if plain else self.narrow_weights + other.narrow_weights,
            self.rounds + other.rounds,
        )

    def __mul__(self, count: float) -> Cost:  # type: ignore[override]
        """Return the cost of ``count`` such releases."""
        if count == 0:
            return Cost(np.zeros(self.rdp.shape), 0.0, 0.0)
        weights = None if self.weights is None else self.weights * count
        return Cost(
            self.rdp * count,
            self.log_survival * count,
            self.mu_squared * count,
            weights,
            self.rounds * count,
        )

    @property
    def narrow_weights(self) -> FloatArray:
        """The `weights` ``[W]``, filled in with `mu_squared` if there are none."""
        return np.full(WIDTHS.shape, self.mu_squared) if self.weights is None else self.weights

    @property
    def delta0(self) -> float:
        """The probability that the curve leaves out."""
        return float(0.0 - np.expm1(self.log_survival))
