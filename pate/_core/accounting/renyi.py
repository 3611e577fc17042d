"""The accountant of the Renyi curve: its best order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from pate._core.accounting.base import Event
from pate._core.accounting.cost import convert
from pate._core.accounting.proofs import LEFT, Accountant, Composed, Guarantee, ProofText, Term


class RenyiAccountant(Accountant):
    """Converts the sum of curves at its best order.

    Args:
        conversion: ``"optimal"``, by Canonne, Kamath & Steinke (2020), Proposition 12, or
            ``"classic"``, by Mironov (2017), Proposition 3, to reproduce published figures.
    """

    figures = ("order", "rdp")
    theorem = "Canonne, Kamath & Steinke (2020), Proposition 12, at the best order"

    def __init__(self, conversion: Literal["optimal", "classic"] = "optimal") -> None:
        self._conversion: Literal["optimal", "classic"] = conversion

    def supports(self, event: Event) -> bool:
        return bool(np.isfinite(event.cost().rdp).any())

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        cost, orders = composed.cost, composed.orders
        epsilons = convert(cost, orders, delta=delta, conversion=self._conversion)
        best = int(np.argmin(epsilons))
        epsilon = float(epsilons[best])
        if not epsilon < below:
            return None
        return composed.proven(epsilon, delta, order=float(orders[best]), rdp=float(cost.rdp[best]))

    def get_delta(self, composed: Composed, epsilon: float) -> float:
        orders, cost = composed.orders, composed.cost
        far = orders - 1
        exponent = far * (cost.rdp - epsilon)
        if self._conversion == "optimal":
            exponent = exponent + far * np.log1p(-1 / orders) - np.log(orders)
        # delta0 + (1 - delta0) delta, where either may be far smaller than the other
        log_delta = min(float(exponent.min()), 0.0)
        return min(1.0, cost.delta0 + math.exp(cost.log_survival + log_delta))

    def words(self, guarantee: Guarantee, terms: Sequence[Term]) -> ProofText:
        return ProofText(
            f"at the Renyi order a = {guarantee.order!r}",
            [f"rdp = {float(term.cost.rdp[0])!r}" for term in terms],
            f"rdp = {guarantee.rdp!r}",
            (
                LEFT,
                "    epsilon = rdp + log(1 - 1/a) - (log(d) + log(a)) / (a - 1)",
                "    (Canonne, Kamath & Steinke (2020), Proposition 12)",
            ),
        )
