"""A budget, and the Renyi filter that keeps releases within it whatever they are chosen by."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np

from pate.accounting.accountant import conversion_overhead, convert
from pate.accounting.curves import DEFAULT_ORDERS, Cost
from pate.accounting.relation import NeighboringRelation
from pate.accounting.search import largest_count_where
from pate.validation import expect, expect_open_unit, expect_positive

_SLACK = 1e-12  # relative; sums of the same costs in another order differ by less


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What all releases from one private data set may cost together.

    Args:
        max_epsilon: the largest epsilon.
        delta: the delta at which it holds.
        neighboring_relation: the relation under which it holds.
        max_delta0: the part of ``delta`` that is set aside for the failures of stability tests and the like. None for
            what the first release would need if it were repeated until the budget is spent.
    """

    max_epsilon: float
    delta: float
    neighboring_relation: NeighboringRelation
    max_delta0: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighboring_relation", NeighboringRelation(self.neighboring_relation))
        expect_positive(max_epsilon=self.max_epsilon)
        expect_open_unit(delta=self.delta)
        if self.max_delta0 is not None:
            expect(0 <= self.max_delta0 < self.delta, f"0 <= max_delta0 < {self.delta}", max_delta0=self.max_delta0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self) | {"neighboring_relation": self.neighboring_relation.value}


@dataclass(frozen=True, kw_only=True)
class RenyiFilter:
    """Admits releases while the curve at one order, and delta0, stay within bounds that were fixed beforehand.

    Both bounds hold on every path that an adversary can take who chooses each release after seeing all earlier ones.
    So all releases together are (max_epsilon, delta)-DP for the budget that the filter was made for (Feldman & Zrnic
    (2021) for the curve; `docs/accounting.md` for both bounds). If the order were chosen at the end, they need not be.

    Args:
        order: the Renyi order.
        max_rdp: largest value of the summed curve there.
        max_delta0: largest delta0 of the sum.
    """

    order: float
    max_rdp: float
    max_delta0: float

    def __post_init__(self) -> None:
        expect_positive(**{"order - 1": self.order - 1})
        expect(math.isfinite(self.max_rdp) and self.max_rdp >= 0, "max_rdp >= 0", max_rdp=self.max_rdp)
        expect(0 <= self.max_delta0 < 1, "0 <= max_delta0 < 1", max_delta0=self.max_delta0)

    @property
    def orders(self) -> Any:
        """The order, as a grid of one, ``[1]``."""
        return np.array([self.order])

    def admits(self, cost: Cost) -> bool:
        """Whether the sum of all releases, evaluated on `orders`, is within the bounds."""
        return bool(
            cost.rdp[0] <= self.max_rdp * (1 + _SLACK)
            and -cost.log_survival <= -math.log1p(-self.max_delta0) * (1 + _SLACK)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def affordable(budget: Budget, spent: Cost, query: Cost) -> int:
    """Return how many queries that cost ``query`` each can follow what was ``spent``; both on `DEFAULT_ORDERS`.

    Raises ``ValueError`` if what was spent is beyond the budget, and if the queries cost nothing.
    """
    expect(bool(query.rdp.max() > 0 or query.log_survival < 0), "a query that costs something", cost=0.0)
    expect(_holds(budget, spent), f"epsilon <= {budget.max_epsilon:g} before this release", epsilon=_say(budget, spent))
    return largest_count_where(lambda n: _holds(budget, after(spent, query, n)))


def make_filter(budget: Budget, spent: Cost, query: Cost) -> RenyiFilter:
    """Return the filter of ``budget`` under which ``query``, repeated after what was ``spent``, goes furthest.

    It admits `affordable` many of them. Raises ``ValueError`` if that is not even one.
    """
    longest = affordable(budget, spent, query)
    expect(
        longest > 0,
        f"epsilon <= {budget.max_epsilon:g} at delta = {budget.delta:g} under {budget.neighboring_relation.value}"
        " after one query",
        epsilon=_say(budget, after(spent, query, 1)),
    )
    last = after(spent, query, longest)
    max_delta0 = last.delta0 if budget.max_delta0 is None else budget.max_delta0
    overhead = conversion_overhead(DEFAULT_ORDERS, budget.delta - max_delta0)
    best = int(np.argmin(last.rdp + overhead))
    return RenyiFilter(
        order=float(DEFAULT_ORDERS[best]), max_rdp=budget.max_epsilon - float(overhead[best]), max_delta0=max_delta0
    )


def after(spent: Cost, query: Cost, count: int) -> Cost:
    """Return ``spent`` and ``count`` times ``query``."""
    return spent.plus(query.times(count))


def refuse(budget: Budget, bounds: RenyiFilter, total: Cost, affordable: int) -> NoReturn:
    """Raise the ``ValueError`` of a release that takes all releases to ``total``, on ``bounds.orders``."""
    epsilon = budget.max_epsilon + float(total.rdp[0]) - bounds.max_rdp
    raise ValueError(
        f"Expected epsilon <= {budget.max_epsilon:g} at delta = {budget.delta:g} under"
        f" {budget.neighboring_relation.value} with all earlier releases (delta0 <= {bounds.max_delta0:.3g}),"
        f" got epsilon={epsilon:.4f} (delta0={total.delta0:.3g}); {affordable} such queries can be paid"
    )


def _holds(budget: Budget, cost: Cost) -> bool:
    delta0 = cost.delta0
    if budget.max_delta0 is not None:
        if delta0 > budget.max_delta0 * (1 + _SLACK):
            return False
        delta0 = budget.max_delta0
    if delta0 >= budget.delta:
        return False
    # (delta - delta0) / (1 - delta0), which the accountant converts at, presumes that delta0 is spent on every path
    overhead = conversion_overhead(DEFAULT_ORDERS, budget.delta - delta0)
    return bool((cost.rdp + overhead).min() <= budget.max_epsilon)


def _say(budget: Budget, cost: Cost) -> float:
    return round(float(convert(cost, DEFAULT_ORDERS, delta=budget.delta).min()), 4)
