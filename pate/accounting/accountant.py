"""The accountant: the sum of what was released, as epsilon at a delta."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from pate.accounting.curves import DEFAULT_ORDERS, Cost, FloatArray, cost
from pate.accounting.events import Event
from pate.accounting.relation import NeighboringRelation
from pate.validation import expect, expect_count, expect_open_unit

Conversion = Literal["optimal", "classic"]


class RDPAccountant:
    """Adds up the costs of events under one neighboring relation and converts the sum to (epsilon, delta)-DP.

    Args:
        neighboring_relation: the relation that every event must be stated under.
        orders: Renyi orders above 1, ascending, shape ``[K]``.
    """

    def __init__(self, *, neighboring_relation: NeighboringRelation, orders: FloatArray = DEFAULT_ORDERS) -> None:
        self.neighboring_relation = NeighboringRelation(neighboring_relation)
        orders = np.asarray(orders, dtype=np.float64)
        ascending = orders.ndim == 1 and orders.size > 0 and np.all(np.diff(orders) > 0) and orders[0] > 1
        expect(ascending and np.isfinite(orders[-1]), "ascending finite orders above 1", orders=orders)
        self.orders = orders
        self._cost = Cost(np.zeros_like(orders), 0.0)
        self._events: list[tuple[Event, int]] = []

    @property
    def events(self) -> tuple[tuple[Event, int], ...]:
        """What was composed so far, as (event, count), in order."""
        return tuple(self._events)

    @property
    def delta0(self) -> float:
        """The part of delta that the events cost whatever epsilon is."""
        return self._cost.delta0

    @property
    def rdp(self) -> FloatArray:
        """The composed curve on `orders`, shape ``[K]``."""
        return self._cost.rdp.copy()

    def compose(self, event: Event, count: int = 1) -> RDPAccountant:
        """Add ``event``, ``count`` times, and return the accountant.

        Raises ``TypeError`` or ``ValueError`` and changes nothing on an unknown event, a negative count, or an event
        stated under another relation.
        """
        expect_count(0, count=count)
        if not isinstance(event, Event):
            raise TypeError(f"Expected an Event, got {type(event).__name__}")
        expect(
            event.neighboring_relation is self.neighboring_relation,
            f"an event under {self.neighboring_relation.value}",
            neighboring_relation=event.neighboring_relation.value,
        )
        once = cost(event, self.orders)
        if count:
            self._cost = Cost(self._cost.rdp + count * once.rdp, self._cost.log_survival + count * once.log_survival)
            self._events.append((event, int(count)))
        return self

    def get_epsilon(self, *, delta: float, conversion: Conversion = "optimal") -> float:
        """Return the smallest epsilon on the grid of orders for which the sum is (epsilon, ``delta``)-DP.

        ``"optimal"`` is Canonne, Kamath & Steinke (2020), Proposition 12; ``"classic"`` is Mironov (2017),
        Proposition 3, for the reproduction of published figures only. Infinite if ``delta <= delta0``.
        """
        return self.get_epsilon_and_order(delta=delta, conversion=conversion)[0]

    def get_epsilon_and_order(self, *, delta: float, conversion: Conversion = "optimal") -> tuple[float, float]:
        """Return epsilon and the Renyi order that gives it."""
        expect_open_unit(delta=delta)
        expect(conversion in ("optimal", "classic"), "conversion among optimal, classic", conversion=conversion)
        if not self._events:
            return 0.0, float(self.orders[-1])
        rest = remaining_delta(delta, self._cost.log_survival)
        if rest <= 0:
            return float("inf"), float(self.orders[-1])
        if conversion == "optimal":
            extra = np.log1p(-1 / self.orders) - (np.log(rest) + np.log(self.orders)) / (self.orders - 1)
        else:
            extra = -np.log(rest) / (self.orders - 1)
        epsilons = np.maximum(self._cost.rdp + extra, 0.0)
        best = int(np.argmin(epsilons))
        return float(epsilons[best]), float(self.orders[best])

    def to_autodp(self) -> Any:
        """Return the sum as one ``autodp`` mechanism, whose ``get_approxDP(delta)`` is a cross-check of epsilon."""
        from pate.accounting._autodp import AutodpMechanism

        return AutodpMechanism(self.orders, self.rdp, self._cost.log_survival)


def remaining_delta(delta: float, log_survival: float) -> float:
    """Return ``(delta - delta0) / (1 - delta0)``, what is left of ``delta`` for the curve; negative if nothing is."""
    delta0 = -np.expm1(log_survival)
    return float((delta - delta0) * np.exp(-log_survival))
