"""Conversion of a cost to (epsilon, delta)-DP."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from pate._validation import FloatArray, require_in_open_unit_interval
from pate.accounting._cost import Cost
from pate.accounting._gaussian import gaussian_epsilon, gaussian_log_delta
from pate.accounting._many_bits import WIDTHS, lost_delta, many_bits_mu_squared

Conversion = Literal["tightest", "optimal", "classic", "exact"]


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A proven (epsilon, delta), and the figures of its proof.

    Attributes:
        epsilon: the proven epsilon; infinite if there is none.
        delta: the delta at which it holds.
        delta0: the part of ``delta`` that the failures take.
        order: the Renyi order of a proof by the curve; ``rdp`` is the value of the curve there.
        mu: the Gaussian mechanism of a proof by Gaussian differential privacy.
        width: the common width of the weights, if the proof by ``mu`` counts many bits.
        rounds: the number of rounds of a proof by the optimum of equal rounds.
    """

    epsilon: float
    delta: float
    delta0: float
    order: float | None = None
    rdp: float | None = None
    mu: float | None = None
    width: float | None = None
    rounds: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types: the figures of the proof, with None for an infinite epsilon."""
        figures = {name: value for name, value in asdict(self).items() if value is not None}
        return figures | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else None}

    @classmethod
    def from_dict(cls, figures: Mapping[str, Any]) -> Guarantee:
        """Return the guarantee that `to_dict` described; keys of other names are ignored.

        >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, delta0=0.0)
        >>> guarantee == Guarantee.from_dict(guarantee.to_dict())
        True
        """
        values = {field.name: figures[field.name] for field in fields(cls) if field.name in figures}
        return cls(
            **values | {"epsilon": math.inf if figures["epsilon"] is None else figures["epsilon"]}
        )


def tightest_guarantee(cost: Cost, orders: FloatArray, *, delta: float) -> Guarantee:
    """Return the smallest epsilon at ``delta`` that ``cost`` on ``orders`` ``[K]`` proves.

    It follows from the best Renyi order (Canonne, Kamath & Steinke (2020), Proposition 12), or from
    the trade-off of a Gaussian mechanism of ``mu`` (Balle & Wang (2018), Theorem 8) that dominates
    all that was composed: one by one (Dong, Roth & Su (2022), Corollary 3.3), or as the many that
    they are (docs/accounting.md, "Many bits"). For events fixed in advance the best of these is
    valid.
    """
    require_in_open_unit_interval(delta=delta)
    epsilons = convert(cost, orders, delta=delta)
    best = int(np.argmin(epsilons))
    tightest = Guarantee(epsilon=float(epsilons[best]), delta=delta, delta0=cost.delta0)
    if math.isfinite(tightest.epsilon):
        tightest = replace(tightest, order=float(orders[best]), rdp=float(cost.rdp[best]))
    rest = remaining_delta(delta, cost.log_survival)
    for mu_squared, lost, width in gaussians(cost):
        left, mu = rest - lost, math.sqrt(mu_squared)
        if left > 0 and (
            mu == 0 or gaussian_log_delta(min(tightest.epsilon, 1e300), mu) <= math.log(left)
        ):
            epsilon = gaussian_epsilon(left, mu)
            tightest = Guarantee(
                epsilon=epsilon, delta=delta, delta0=cost.delta0, mu=mu, width=width
            )
    return tightest


def gaussians(cost: Cost) -> Iterator[tuple[float, float, float | None]]:
    """Yield ``(mu^2, lost delta, width or None)`` of Gaussian mechanisms that dominate ``cost``."""
    if cost.mu_squared < math.inf:
        yield cost.mu_squared, 0.0, None
    if cost.rounds:
        totals = many_bits_mu_squared(cost.narrow_weights)
        best = int(np.argmin(totals))
        if totals[best] < math.inf:
            mu_squared = float(totals[best])
            yield mu_squared, lost_delta(cost.rounds, mu_squared), float(WIDTHS[best])


def convert(
    cost: Cost,
    orders: FloatArray,
    *,
    delta: float,
    conversion: Literal["optimal", "classic"] = "optimal",
) -> FloatArray:
    """Return the epsilons ``[K]`` at ``delta`` by the curve of ``cost`` on ``orders`` ``[K]``."""
    rest = remaining_delta(delta, cost.log_survival)
    if rest <= 0:
        return np.full(orders.shape, np.inf)
    return np.maximum(cost.rdp + conversion_overhead(orders, rest, conversion), 0.0)


def conversion_overhead(
    orders: FloatArray,
    delta: float | FloatArray,
    conversion: Literal["optimal", "classic"] = "optimal",
) -> FloatArray:
    """Return the overhead of the conversion to ``delta`` (broadcast) at ``orders`` ``[K]``."""
    far = orders - 1
    if conversion == "classic":
        return np.asarray(-np.log(delta) / far, dtype=np.float64)
    return np.asarray(
        np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / far, dtype=np.float64
    )


def remaining_delta(delta: float, log_survival: float) -> float:
    """Return ``(delta - delta0) / (1 - delta0)``, the rest for the curve; at most 0 if none."""
    delta0 = -math.expm1(log_survival)
    # a difference of nearly equal numbers is rounded down
    difference = delta - delta0 - 4 * np.finfo(np.float64).eps * delta0
    return difference / (1 - delta0) if difference > 0 else difference
