"""Conversion of a cost to (epsilon, delta)-DP."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from pate._typing import FloatArray
from pate._validation import expect_open_unit
from pate.accounting._cost import Cost
from pate.accounting._gaussian import gaussian_epsilon, gaussian_log_delta

Conversion = Literal["tightest", "optimal", "classic", "exact"]


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """The (epsilon, delta) that a cost proves, and the proof: its curve at ``order``, or its Gaussian ``mu``."""

    epsilon: float
    delta: float
    delta0: float
    order: float | None = None
    rdp: float | None = None
    mu: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types: only the figures that prove it, and None for an infinite epsilon."""
        figures = {name: value for name, value in asdict(self).items() if value is not None}
        return figures | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None}


def tightest_guarantee(cost: Cost, orders: FloatArray, *, delta: float) -> Guarantee:
    """Return the smallest epsilon at ``delta`` that ``cost`` on ``orders`` ``[K]`` proves.

    It follows from the best Renyi order (Canonne, Kamath & Steinke (2020), Proposition 12), or from the trade-off of a
    Gaussian mechanism of ``mu`` (Balle & Wang (2018), Theorem 8) that dominates all that was composed (Dong, Roth & Su
    (2022), Corollary 3.3). For events fixed in advance the better of the two is valid.
    """
    expect_open_unit(delta=delta)
    epsilons = convert(cost, orders, delta=delta)
    best = int(np.argmin(epsilons))
    epsilon, rest, mu = float(epsilons[best]), remaining_delta(delta, cost.log_survival), math.sqrt(cost.mu_squared)
    if rest > 0 and mu < math.inf and (mu == 0 or gaussian_log_delta(min(epsilon, 1e300), mu) <= math.log(rest)):
        return Guarantee(epsilon=gaussian_epsilon(rest, mu), delta=delta, delta0=cost.delta0, mu=mu)
    if math.isinf(epsilon):
        return Guarantee(epsilon=epsilon, delta=delta, delta0=cost.delta0)
    return Guarantee(
        epsilon=epsilon, delta=delta, delta0=cost.delta0, order=float(orders[best]), rdp=float(cost.rdp[best])
    )


def convert(
    cost: Cost, orders: FloatArray, *, delta: float, conversion: Literal["optimal", "classic"] = "optimal"
) -> FloatArray:
    """Return the epsilons ``[K]`` at ``delta`` that the curve of ``cost`` proves at each of ``orders`` ``[K]``."""
    rest = remaining_delta(delta, cost.log_survival)
    if rest <= 0:
        return np.full(orders.shape, np.inf)
    return np.maximum(cost.rdp + conversion_overhead(orders, rest, conversion), 0.0)


def conversion_overhead(
    orders: FloatArray, delta: float | FloatArray, conversion: Literal["optimal", "classic"] = "optimal"
) -> FloatArray:
    """Return what the conversion to ``delta`` (broadcast) adds to a curve at each of ``orders`` ``[K]``."""
    far = orders - 1
    if conversion == "classic":
        return np.asarray(-np.log(delta) / far, dtype=np.float64)
    return np.asarray(np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / far, dtype=np.float64)


def remaining_delta(delta: float, log_survival: float) -> float:
    """Return ``(delta - delta0) / (1 - delta0)``, the part of ``delta`` left for the curve; 0 or less if none is."""
    delta0 = -math.expm1(log_survival)
    # a difference of nearly equal numbers is rounded down
    difference = delta - delta0 - 4 * np.finfo(np.float64).eps * delta0
    return difference / (1 - delta0) if difference > 0 else difference
