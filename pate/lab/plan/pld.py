"""The accountant of dp_accounting: privacy-loss distributions, and Renyi DP of choices.

dp_accounting is imported when needed.
"""

from __future__ import annotations

import math
from typing import Any

from pate._core.accounting.cost import DEFAULT_ORDERS
from pate._core.accounting.events import BoundedRangeEvent, Event, GaussianEvent
from pate._core.accounting.proofs import Accountant, Composed, Guarantee


class PLDAccountant(Accountant):
    """Composes privacy-loss distributions of Gaussian events; with choices, curves of zCDP."""

    def supports(self, event: Event) -> bool:
        return type(event) in (GaussianEvent, BoundedRangeEvent)

    def guarantee(
        self, composed: Composed, *, delta: float, below: float = math.inf
    ) -> Guarantee | None:
        import dp_accounting
        from dp_accounting import pld, rdp

        parts: list[Any] = []
        gaussian = True
        for leaf, number in composed.leaves():
            if isinstance(leaf, GaussianEvent):
                single = dp_accounting.GaussianDpEvent(leaf.noise_multiplier)
            else:
                assert isinstance(leaf, BoundedRangeEvent)
                single, gaussian = dp_accounting.ZCDpEvent(leaf.eta**2 / 8), False
            parts.append(dp_accounting.SelfComposedDpEvent(single, number))
        accountant = (
            pld.PLDAccountant()
            if gaussian
            else rdp.RdpAccountant(orders=DEFAULT_ORDERS[:-1].tolist())
        )
        accountant.compose(dp_accounting.ComposedDpEvent(parts))
        epsilon = float(accountant.get_epsilon(delta))
        return composed.proven(epsilon, delta) if epsilon < below else None
