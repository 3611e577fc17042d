"""A privacy budget, and the filters that keep adaptively chosen releases within it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NoReturn

import numpy as np

from pate.accounting.bisection import largest_count_where
from pate.accounting.conversion import conversion_overhead, tightest_guarantee
from pate.accounting.cost import DEFAULT_ORDERS, Cost
from pate.accounting.figures import epsilon_text, exact_text
from pate.accounting.gaussian import gaussian_epsilon, largest_mu
from pate.accounting.relation import NeighboringRelation
from pate.typing import FloatArray
from pate.validation import expect, expect_open_unit, expect_positive

_SLACK = 1e-12  # relative; sums of the same costs in another order differ by less


class BudgetExceededError(ValueError):
    """A release and all earlier ones together would cost more than a budget, or more than can be stated."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limit on what all releases from one private data set may cost together.

    Args:
        max_epsilon: the largest total epsilon.
        delta: the delta at which ``max_epsilon`` holds.
        neighboring_relation: the relation under which it holds.
        max_delta0: the part of ``delta`` set aside for failures, such as those of stability tests. None for what the
            first release would need if it were repeated until the budget is spent.
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
        for name in ("max_epsilon", "delta", "max_delta0"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))  # JSON has no numpy scalars

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self) | {"neighboring_relation": self.neighboring_relation.value}


class PrivacyFilter(ABC):
    """Admits releases as long as their total cost stays within bounds that were fixed before the first of them.

    The bounds hold for every adversary who chooses each release after seeing all earlier ones, so that all releases
    together are (max_epsilon, delta)-DP for the budget from which the filter was made (proof: `docs/accounting.md`).
    """

    max_delta0: float
    """The largest delta0 that the sum may have."""

    def __post_init__(self) -> None:
        expect(0 <= self.max_delta0 < 1, "0 <= max_delta0 < 1", max_delta0=self.max_delta0)

    @property
    @abstractmethod
    def orders(self) -> FloatArray:
        """The Renyi orders ``[K]`` that costs are evaluated at."""

    @abstractmethod
    def epsilon(self, budget: Budget, cost: Cost) -> float:
        """Return what max_epsilon the budget would need to admit ``cost``, were delta0 no matter."""

    @abstractmethod
    def expect_follows(self, budget: Budget) -> None:
        """Raise ``ValueError`` unless the bounds make all that is admitted keep ``budget``."""

    @abstractmethod
    def spent(self, cost: Cost) -> str:
        """Say how much of the bounds ``cost`` has used."""

    @abstractmethod
    def _within(self, cost: Cost) -> bool:
        """Whether ``cost`` is within the bounds other than that on delta0."""

    def admits(self, cost: Cost) -> bool:
        """Whether the sum of all releases, evaluated on `orders`, is within the bounds."""
        return self._within(cost) and -cost.log_survival <= -math.log1p(-self.max_delta0) * (1 + _SLACK)

    def to_dict(self) -> dict[str, float]:
        """Return plain JSON types; `filter_from_dict` is the inverse."""
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class RenyiFilter(PrivacyFilter):
    """Bounds the Renyi curve at one order (Feldman & Zrnic (2021)) and delta0.

    The order is fixed beforehand: were it chosen at the end, all releases together need not be (max_epsilon, delta)-DP.

    Args:
        order: the Renyi order.
        max_rdp: the largest value of the summed curve at that order.
        max_delta0: the largest delta0 of the sum.
    """

    order: float
    max_rdp: float
    max_delta0: float

    def __post_init__(self) -> None:
        expect_positive(**{"order - 1": self.order - 1})
        expect(math.isfinite(self.max_rdp) and self.max_rdp >= 0, "max_rdp >= 0", max_rdp=self.max_rdp)
        super().__post_init__()

    @property
    def orders(self) -> FloatArray:
        """The one order, shape ``[1]``."""
        return np.array([self.order])

    def epsilon(self, budget: Budget, cost: Cost) -> float:
        """Return what max_epsilon the budget would need to admit ``cost``, were delta0 no matter."""
        return budget.max_epsilon + float(cost.rdp[0]) - self.max_rdp

    def expect_follows(self, budget: Budget) -> None:
        """Raise ``ValueError`` unless ``max_rdp`` is the budget's epsilon less the overhead of the conversion."""
        _expect_share(budget, self.max_delta0)
        overhead = float(conversion_overhead(self.orders, budget.delta - self.max_delta0)[0])
        # a difference of two numbers that may both be much larger than it
        follows = abs(budget.max_epsilon - overhead - self.max_rdp) <= _SLACK * (budget.max_epsilon + abs(overhead))
        expect(follows, f"max_rdp={budget.max_epsilon - overhead} from max_epsilon", max_rdp=self.max_rdp)

    def spent(self, cost: Cost) -> str:
        """Say how much of the bounds ``cost`` has used."""
        return (
            f"{float(cost.rdp[0]):.4g} of {self.max_rdp:.4g} of Renyi divergence at order {self.order:.4g},"
            f" {cost.delta0:.3g} of {self.max_delta0:.3g} of delta0"
        )

    def _within(self, cost: Cost) -> bool:
        return bool(cost.rdp[0] <= self.max_rdp * (1 + _SLACK))


@dataclass(frozen=True, kw_only=True)
class GaussianFilter(PrivacyFilter):
    """Bounds Gaussian differential privacy, the sum of ``mu^2`` (Koskela, Tobaben & Honkela (2023)), and delta0.

    It admits 11 to 16% more releases of Gaussian noise than `RenyiFilter` for epsilon 0.5 to 8. It charges other events
    at the ``mu`` of a Gaussian mechanism that dominates them, which is more than their curve.

    Args:
        max_mu_squared: the largest sum of ``mu^2``.
        max_delta0: the largest delta0 of the sum.
    """

    max_mu_squared: float
    max_delta0: float

    def __post_init__(self) -> None:
        expect_positive(max_mu_squared=self.max_mu_squared)
        super().__post_init__()

    @property
    def orders(self) -> FloatArray:
        """An arbitrary order, shape ``[1]``: the sum of ``mu^2`` does not depend on it."""
        return DEFAULT_ORDERS[:1]

    def epsilon(self, budget: Budget, cost: Cost) -> float:
        """Return what max_epsilon the budget would need to admit ``cost``, were delta0 no matter."""
        return gaussian_epsilon(budget.delta - self.max_delta0, math.sqrt(cost.mu_squared))

    def expect_follows(self, budget: Budget) -> None:
        """Raise ``ValueError`` unless ``max_mu_squared`` is that of a Gaussian mechanism that spends the budget."""
        _expect_share(budget, self.max_delta0)
        largest = largest_mu(budget.max_epsilon, budget.delta - self.max_delta0) ** 2
        follows = math.isclose(self.max_mu_squared, largest, rel_tol=1e-10)
        expect(follows, f"max_mu_squared={largest} from max_epsilon", max_mu_squared=self.max_mu_squared)

    def spent(self, cost: Cost) -> str:
        """Say how much of the bounds ``cost`` has used."""
        return (
            f"{cost.mu_squared:.4g} of {self.max_mu_squared:.4g} of squared mu in Gaussian differential privacy,"
            f" {cost.delta0:.3g} of {self.max_delta0:.3g} of delta0"
        )

    def _within(self, cost: Cost) -> bool:
        return cost.mu_squared <= self.max_mu_squared * (1 + _SLACK)


def filter_from_dict(description: Mapping[str, float]) -> PrivacyFilter:
    """Return the filter that `PrivacyFilter.to_dict` described."""
    kind = GaussianFilter if "max_mu_squared" in description else RenyiFilter
    return kind(**description)


def affordable(budget: Budget, spent: Cost, query: Cost) -> int:
    """Return how many queries at the cost ``query`` each can still be paid after ``spent``, both on `DEFAULT_ORDERS`.

    Raises ``ValueError`` if ``spent`` exceeds the budget already, or if the queries cost nothing.
    """
    return max(_reach(budget, spent, query))


def make_filter(budget: Budget, spent: Cost, query: Cost) -> PrivacyFilter:
    """Return the filter of ``budget`` that admits the most repetitions of ``query`` after ``spent``.

    It admits as many as `affordable` says. Unless a Gaussian filter admits more, the Renyi filter is chosen, because it
    knows a cost for every event. Raises ``ValueError`` if not even one query can be paid.
    """
    by_renyi, by_gaussian = _reach(budget, spent, query)
    longest = max(by_renyi, by_gaussian)
    if longest == 0:
        raise BudgetExceededError(
            f"Expected epsilon <= {exact_text(budget.max_epsilon)} at delta = {exact_text(budget.delta)} under"
            f" {budget.neighboring_relation.value} after one query, got epsilon="
            f"{_say(budget, after(spent, query, 1))!r}"
        )
    last = after(spent, query, longest)
    max_delta0 = _share(budget, last)
    if by_gaussian > by_renyi:
        mu = largest_mu(budget.max_epsilon, budget.delta - max_delta0)
        return GaussianFilter(max_mu_squared=mu**2, max_delta0=max_delta0)
    overhead = conversion_overhead(DEFAULT_ORDERS, budget.delta - max_delta0)
    best = int(np.argmin(last.rdp + overhead))
    return RenyiFilter(
        order=float(DEFAULT_ORDERS[best]), max_rdp=budget.max_epsilon - float(overhead[best]), max_delta0=max_delta0
    )


def after(spent: Cost, query: Cost, count: int) -> Cost:
    """Return the cost of ``spent`` and ``count`` times ``query`` together."""
    return spent.plus(query.times(count))


def refuse(budget: Budget, bounds: PrivacyFilter, total: Cost, affordable: int) -> NoReturn:
    """Raise the ``ValueError`` for a release that would raise the total cost, on ``bounds.orders``, to ``total``."""
    if math.isinf(total.mu_squared) and isinstance(bounds, GaussianFilter):
        raise ValueError(
            "Expected a release that a Gaussian mechanism dominates, because the budget of the ledger is kept in"
            " Gaussian differential privacy since its first release, got one that is known by its Renyi curve alone"
        )
    raise BudgetExceededError(
        f"Expected epsilon <= {exact_text(budget.max_epsilon)} at delta = {exact_text(budget.delta)} under"
        f" {budget.neighboring_relation.value} with all earlier releases (delta0 <= {bounds.max_delta0:.3g}),"
        f" got epsilon={epsilon_text(bounds.epsilon(budget, total), 4)} (delta0={total.delta0:.3g});"
        f" {affordable} such queries can be paid"
    )


def _reach(budget: Budget, spent: Cost, query: Cost) -> tuple[int, int]:
    """Return how many queries a Renyi and a Gaussian filter would admit after ``spent``."""
    costs = bool(query.rdp.max() > 0 or query.log_survival < 0)
    expect(costs, "a query that costs something", cost=0.0)
    kept = [keeps for keeps in (_renyi_keeps, _gaussian_keeps) if keeps(budget, spent)]
    if not kept:
        most = f"epsilon <= {exact_text(budget.max_epsilon)} before this release"
        raise BudgetExceededError(f"Expected {most}, got epsilon={_say(budget, spent)!r}")

    def reach(keeps: Callable[[Budget, Cost], bool]) -> int:
        return largest_count_where(lambda n: keeps(budget, after(spent, query, n))) if keeps in kept else 0

    return reach(_renyi_keeps), reach(_gaussian_keeps)


def _share(budget: Budget, cost: Cost) -> float:
    """Return the part of delta to set aside for failures if ``cost`` is the total of all that is admitted."""
    return cost.delta0 if budget.max_delta0 is None else budget.max_delta0


def _left(budget: Budget, cost: Cost) -> float:
    """Return the part of delta that failures leave; 0 or less if there is none.

    It is not ``(delta - delta0) / (1 - delta0)``, which presumes that delta0 is spent on every path.
    """
    share = _share(budget, cost)
    return budget.delta - share if cost.delta0 <= share * (1 + _SLACK) else 0.0


def _renyi_keeps(budget: Budget, cost: Cost) -> bool:
    left = _left(budget, cost)
    return left > 0 and bool((cost.rdp + conversion_overhead(DEFAULT_ORDERS, left)).min() <= budget.max_epsilon)


def _gaussian_keeps(budget: Budget, cost: Cost) -> bool:
    left = _left(budget, cost)
    return left > 0 and cost.mu_squared <= largest_mu(budget.max_epsilon, left) ** 2


def _expect_share(budget: Budget, max_delta0: float) -> None:
    aside = max_delta0 < budget.delta and budget.max_delta0 in (None, max_delta0)
    expect(aside, f"max_delta0 of {budget.to_dict()}", max_delta0=max_delta0)


def _say(budget: Budget, cost: Cost) -> float:
    epsilon = tightest_guarantee(cost, DEFAULT_ORDERS, delta=budget.delta).epsilon
    return float(epsilon_text(epsilon, 4)) if math.isfinite(epsilon) else epsilon
