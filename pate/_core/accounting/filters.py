"""Budgets that hold for releases chosen adaptively: filters of a ledger, and budgets of records.

A **filter** admits releases as long as their total cost stays within bounds fixed before the first
one.

**Personal budgets.** Records that consent to less count less, and a filter keeps each budget. A
record of weight ``w`` moves everything that is released by ``w`` times as much as others do, so
that a Gaussian mechanism of ``mu`` is one of ``w mu`` for it (individualized PATE by weights,
Boenisch et al. (2022)). The budget of a record is public to its owner and belongs to its id: an
altered record keeps it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import ROUND_FLOOR, Context
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, get_args

import numpy as np

from pate._core.accounting.base import CompositeEvent, Event
from pate._core.accounting.charges import (
    Budget,
    BudgetExceededError,
    Charge,
    FilterName,
    account,
    for_budget,
)
from pate._core.accounting.cost import (
    DEFAULT_ORDERS,
    WIDTHS,
    Cost,
    NeighboringRelation,
    conversion_overhead,
    format_epsilon,
    format_exact,
    gaussian_epsilon,
    largest_count_where,
    largest_mu,
    largest_weights,
    lost_delta,
    many_bits_mu_squared,
)
from pate._core.accounting.events import GaussianEvent
from pate._core.validation import (
    FloatArray,
    require,
    require_in_open_unit_interval,
    require_positive,
)

_SLACK = 1e-12  # relative; sums of the same costs in another order differ by less
_BEFORE: tuple[FilterName, ...] = ("renyi", "gaussian")  # the filters of ledgers of version 0.3
# The least width of a mixed filter, in mu^2: its weights are 1% less than mu^2.
_NARROW = 1e-3
# The share of delta for later tests. It costs up to 1.4% of mu^2 for delta below 1e-5.
_ASIDE = 0.1


class PrivacyFilter(ABC):
    """Admits releases as long as their total cost stays within bounds fixed before the first one.

    The bounds hold for every adversary who chooses each release after seeing all earlier ones, so
    that all releases together are (max_epsilon, delta)-DP for the budget from which the filter was
    made (proof: `docs/appendix/budgets.md`).
    """

    name: ClassVar[FilterName]
    max_delta0: float
    """The largest delta0 that the sum may have."""

    def __post_init__(self) -> None:
        require(0 <= self.max_delta0 < 1, "0 <= max_delta0 < 1", max_delta0=self.max_delta0)

    @property
    def orders(self) -> FloatArray:
        """The Renyi orders ``[K]`` of costs: one, of any value, for bounds that need no curve."""
        return DEFAULT_ORDERS[:1]

    @classmethod
    @abstractmethod
    def keeps(cls, budget: Budget, cost: Cost) -> bool:
        """Return whether a filter of ``budget`` could admit releases of total ``cost``."""

    @classmethod
    @abstractmethod
    def fitted(cls, budget: Budget, cost: Cost) -> Self:
        """Return the filter of ``budget`` that leaves the most if ``cost`` is the total of all.

        Raises ``ValueError`` if failures or the overhead of the conversion take the whole budget.
        """

    @abstractmethod
    def epsilon(self, budget: Budget, cost: Cost) -> float:
        """Return the max_epsilon that the budget would need to admit ``cost``, delta0 aside."""

    def require_follows(self, budget: Budget) -> None:
        """Raise ``ValueError`` unless the bounds make all that is admitted keep ``budget``."""
        require(
            self.max_delta0 < budget.delta and budget.max_delta0 in (None, self.max_delta0),
            f"max_delta0 of {budget.to_dict()}",
            max_delta0=self.max_delta0,
        )
        require(
            budget.filter in (None, self.name),
            f"the filter of {budget.to_dict()}",
            filter=self.name,
        )
        bound, derived, error = self._derived(budget)
        actual = getattr(self, bound)
        require(
            abs(derived - actual) <= error, f"{bound}={derived} from max_epsilon", **{bound: actual}
        )

    @abstractmethod
    def _derived(self, budget: Budget) -> tuple[str, float, float]:
        """Return the name of a bound, its value by ``budget``, and the error of this value."""

    @abstractmethod
    def _bounded(self, cost: Cost) -> tuple[float, float, str]:
        """Return the sum that is bounded apart from delta0, its bound, and its name."""

    def admits(self, cost: Cost) -> bool:
        """Whether the sum of all releases, evaluated on `orders`, is within the bounds."""
        amount, bound, _ = self._bounded(cost)
        return amount <= bound * (1 + _SLACK) and self.admits_failures(cost)

    def admits_failures(self, cost: Cost) -> bool:
        """Whether the failures of all releases together are within their bound."""
        return self.failures(cost) <= self.max_delta0 * (1 + _SLACK)

    def failures(self, cost: Cost) -> float:
        """Return the part that ``cost`` takes of the delta set aside for failures."""
        return cost.delta0

    def describe_spent(self, cost: Cost) -> str:
        """Say how much of the bounds ``cost`` has used."""
        amount, bound, name = self._bounded(cost)
        return (
            f"{amount:.4g} of {bound:.4g} of {name}, {self.failures(cost):.3g} of"
            f" {self.max_delta0:.3g} of delta0"
        )

    def describe_left(self, cost: Cost) -> str:
        """Say how much of the bounds ``cost`` leaves."""
        amount, bound, name = self._bounded(cost)
        left = max(0.0, self.max_delta0 - self.failures(cost))
        return f"{max(0.0, bound - amount):.4g} of {name} and {left:.3g} of delta0"

    def to_dict(self) -> dict[str, float]:
        """Return plain JSON types; `filter_from_dict` is the inverse."""
        return {bound.name: getattr(self, bound.name) for bound in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class RenyiFilter(PrivacyFilter):
    """Bounds the Renyi curve at one order (Feldman & Zrnic (2021)) and delta0.

    The order is fixed beforehand: were it chosen at the end, all releases together need not be
    (max_epsilon, delta)-DP.

    Args:
        order: the Renyi order.
        max_rdp: the largest value of the summed curve at that order.
        max_delta0: the largest delta0 of the sum.
    """

    name: ClassVar[FilterName] = "renyi"
    order: float
    max_rdp: float
    max_delta0: float

    def __post_init__(self) -> None:
        require_positive(**{"order - 1": self.order - 1})
        require(
            math.isfinite(self.max_rdp) and self.max_rdp >= 0, "max_rdp >= 0", max_rdp=self.max_rdp
        )
        super().__post_init__()

    @property
    def orders(self) -> FloatArray:
        """The one order, shape ``[1]``."""
        return np.array([self.order])

    @classmethod
    def keeps(cls, budget: Budget, cost: Cost) -> bool:
        rest = _remaining_delta(budget, cost)
        return rest > 0 and bool(
            (cost.rdp + conversion_overhead(DEFAULT_ORDERS, rest)).min() <= budget.max_epsilon
        )

    @classmethod
    def fitted(cls, budget: Budget, cost: Cost) -> Self:
        max_delta0 = _delta_for_failures(budget, cost)
        _require_delta_left(budget, max_delta0)
        overhead = conversion_overhead(DEFAULT_ORDERS, budget.delta - max_delta0)
        possible = overhead <= budget.max_epsilon
        require(
            possible.any(),
            f"max_epsilon >= {overhead.min()} at this delta",
            max_epsilon=budget.max_epsilon,
        )
        best = int(np.argmin(np.where(possible, cost.rdp + overhead, np.inf)))
        return cls(
            order=float(DEFAULT_ORDERS[best]),
            max_rdp=budget.max_epsilon - float(overhead[best]),
            max_delta0=max_delta0,
        )

    def epsilon(self, budget: Budget, cost: Cost) -> float:
        return budget.max_epsilon + float(cost.rdp[0]) - self.max_rdp

    def _derived(self, budget: Budget) -> tuple[str, float, float]:
        overhead = float(conversion_overhead(self.orders, budget.delta - self.max_delta0)[0])
        # a difference of two numbers that may both be much larger than it
        error = _SLACK * (budget.max_epsilon + abs(overhead))
        return "max_rdp", budget.max_epsilon - overhead, error

    def _bounded(self, cost: Cost) -> tuple[float, float, str]:
        return float(cost.rdp[0]), self.max_rdp, f"Renyi divergence at order {self.order:.4g}"


@dataclass(frozen=True, kw_only=True)
class GaussianFilter(PrivacyFilter):
    """Bounds the sum of ``mu^2`` of Gaussian differential privacy, and delta0.

    The proof is in Koskela, Tobaben & Honkela (2023). The filter admits 11 to 16% more releases of
    Gaussian noise than `RenyiFilter` for epsilon 0.5 to 8. It charges other events at the ``mu`` of
    a dominating Gaussian mechanism, which is more than their curve.

    Args:
        max_mu_squared: the largest sum of ``mu^2``.
        max_delta0: the largest delta0 of the sum.
    """

    name: ClassVar[FilterName] = "gaussian"
    max_mu_squared: float
    max_delta0: float

    def __post_init__(self) -> None:
        require_positive(max_mu_squared=self.max_mu_squared)
        super().__post_init__()

    @classmethod
    def keeps(cls, budget: Budget, cost: Cost) -> bool:
        remaining = _remaining_delta(budget, cost)
        return remaining > 0 and cost.mu_squared <= largest_mu(budget.max_epsilon, remaining) ** 2

    @classmethod
    def fitted(cls, budget: Budget, cost: Cost) -> Self:
        max_delta0 = _delta_for_failures(budget, cost)
        _require_delta_left(budget, max_delta0)
        return cls(
            max_mu_squared=largest_mu(budget.max_epsilon, budget.delta - max_delta0) ** 2,
            max_delta0=max_delta0,
        )

    def epsilon(self, budget: Budget, cost: Cost) -> float:
        return gaussian_epsilon(budget.delta - self.max_delta0, math.sqrt(cost.mu_squared))

    def _derived(self, budget: Budget) -> tuple[str, float, float]:
        # a Gaussian mechanism of this mu spends the budget
        largest = largest_mu(budget.max_epsilon, budget.delta - self.max_delta0) ** 2
        return "max_mu_squared", largest, 1e-10 * largest

    def _bounded(self, cost: Cost) -> tuple[float, float, str]:
        return cost.mu_squared, self.max_mu_squared, "squared mu in Gaussian differential privacy"


@dataclass(frozen=True, kw_only=True)
class MixedFilter(PrivacyFilter):
    """Bounds the weights of releases among many bits (docs/appendix/costs.md), and delta0.

    It admits choices, tests and Gaussian noise in any order at about the price that a `RenyiFilter`
    or a `GaussianFilter` has for one kind of them. A release of larger ``width`` is charged its
    ``mu^2``.

    Args:
        max_weights: the largest sum of weights.
        width: the width that weights are counted for.
        max_delta0: the largest delta0 of the sum, with the losses beyond the reach of the theorem.
    """

    name: ClassVar[FilterName] = "mixed"
    max_weights: float
    width: float
    max_delta0: float

    def __post_init__(self) -> None:
        require_positive(max_weights=self.max_weights)
        require(self.width in WIDTHS, "a width among those of Cost.weights", width=self.width)
        super().__post_init__()

    @classmethod
    def keeps(cls, budget: Budget, cost: Cost) -> bool:
        try:
            return cls.fitted(budget, cost).admits(cost)
        except BudgetExceededError:
            return False

    @classmethod
    def fitted(cls, budget: Budget, cost: Cost) -> Self:
        largest = largest_mu(budget.max_epsilon, budget.delta) ** 2
        lost, once = lost_delta(cost.rounds, largest), lost_delta(1.0, largest)
        aside = _delta_for_failures(
            budget, cost._replace(log_survival=cost.log_survival + math.log1p(-min(lost, 0.5)))
        )
        if once > min(aside, budget.delta):
            raise BudgetExceededError(
                f"Expected a filter other than mixed, which takes {once:.3g} of delta for one"
                f" choice or test at so large an epsilon, got max_epsilon={budget.max_epsilon:g}"
            )
        _require_delta_left(budget, aside)
        mu_squared = largest_mu(budget.max_epsilon, budget.delta - aside) ** 2
        most = largest_weights(mu_squared)
        best = int(
            np.argmin(np.where(_NARROW * mu_squared <= WIDTHS, cost.narrow_weights / most, np.inf))
        )
        return cls(max_weights=float(most[best]), width=float(WIDTHS[best]), max_delta0=aside)

    def epsilon(self, budget: Budget, cost: Cost) -> float:
        return gaussian_epsilon(
            budget.delta - self.max_delta0, math.sqrt(self._mu_squared(self._weights(cost)))
        )

    def _derived(self, budget: Budget) -> tuple[str, float, float]:
        # these weights have the mu^2 that spends the budget
        largest = largest_mu(budget.max_epsilon, budget.delta - self.max_delta0) ** 2
        weights = float(largest_weights(largest)[np.searchsorted(WIDTHS, self.width)])
        return "max_weights", weights, 1e-9 * weights

    def failures(self, cost: Cost) -> float:
        # with bits beyond the reach of the theorem
        return cost.delta0 + lost_delta(cost.rounds, self._mu_squared(self.max_weights))

    def _bounded(self, cost: Cost) -> tuple[float, float, str]:
        return (
            self._weights(cost),
            self.max_weights,
            f"weights of bits of width {self.width:.3g} at most",
        )

    def _mu_squared(self, weights: float) -> float:
        return float(many_bits_mu_squared(np.array([weights]), np.array([self.width]))[0])

    def _weights(self, cost: Cost) -> float:
        return float(cost.narrow_weights[np.searchsorted(WIDTHS, self.width)])


FILTERS: Mapping[FilterName, type[PrivacyFilter]] = {
    kind.name: kind for kind in (RenyiFilter, GaussianFilter, MixedFilter)
}
"""The kinds of filter; of two that admit as much, the first is taken."""


def filter_from_dict(description: Mapping[str, float]) -> PrivacyFilter:
    """Return the filter that `PrivacyFilter.to_dict` described."""
    named = (
        kind
        for kind in FILTERS.values()
        if {*description} == {bound.name for bound in fields(kind)}  # type: ignore[arg-type]
    )
    return next(named, RenyiFilter)(**description)


def affordable(budget: Budget, query: Cost) -> int:
    """Return the number of queries of cost ``query`` that an unused budget can pay.

    ``query`` is a cost on `DEFAULT_ORDERS`.

    Raises ``ValueError`` if the queries cost nothing.
    """
    return max(_affordable_counts(budget, query).values())


def make_filter(
    budget: Budget, first: Cost, kinds: Sequence[FilterName] = get_args(FilterName)
) -> PrivacyFilter:
    """Return the filter of ``budget`` that admits the most repetitions of a ledger's first query.

    It admits as many as `affordable` says. Unless another admits more, or the budget names one, it
    is a Renyi filter, which knows a cost for every event. It follows from the budget and from the
    reservation of the first release, so that no released output can have chosen it.

    Args:
        budget: the budget.
        first: the cost on `DEFAULT_ORDERS` of one query of the first release of the ledger.
        kinds: the kinds of filter to choose from.

    Raises:
        ValueError: if the query costs nothing, or its failures or the overhead of the conversion
            take the whole budget.
    """
    reach = {
        name: count for name, count in _affordable_counts(budget, first).items() if name in kinds
    }
    name = max(reach, key=lambda kind: reach[kind])
    # a filter that admits no query can at least say so
    return FILTERS[name].fitted(budget, first * max(1, reach[name]))


def require_filter_of_first(bounds: PrivacyFilter, budget: Budget, first: Cost) -> None:
    """Raise ``ValueError`` unless `make_filter` returns ``bounds``, or did before mixed filters."""
    kinds: tuple[FilterName, ...] = (
        get_args(FilterName) if bounds.name == "mixed" or budget.filter else _BEFORE
    )
    derived, actual = make_filter(budget, first, kinds).to_dict(), bounds.to_dict()
    close = (math.isclose(value, actual[name], rel_tol=1e-9) for name, value in derived.items())
    require(
        derived.keys() == actual.keys() and all(close),
        f"the filter that follows from the budget and the first release, {derived}",
        filter=actual,
    )


def refuse(
    budget: Budget,
    bounds: PrivacyFilter,
    total: Cost,
    *,
    when: str = "with all earlier releases",
    remainder: str = "",
) -> NoReturn:
    """Raise the ``ValueError`` for releases with a total cost that the filter does not admit.

    Args:
        budget: the budget.
        bounds: its filter.
        total: the total cost with the release, on ``bounds.orders``.
        when: the releases that it is the total of.
        remainder: a clause on the budget that is left without the release; may be empty.
    """
    remainder = f"; {remainder}" if remainder else ""
    if math.isinf(total.mu_squared) and not isinstance(bounds, RenyiFilter):
        raise ValueError(
            "Expected a release that a Gaussian mechanism dominates, because the budget of the"
            " ledger is kept in"
            " Gaussian differential privacy since its first release, got one that is known only"
            " by its Renyi curve"
        )
    if not bounds.admits_failures(total):
        beyond = " and of the mixed filter's theorem" if isinstance(bounds, MixedFilter) else ""
        raise BudgetExceededError(
            f"Expected delta0 <= {bounds.max_delta0:.3g} {when} (max_delta0, the part of the"
            " budget's delta ="
            f" {format_exact(budget.delta)} that is set aside for failures of tests{beyond}),"
            f" got delta0={bounds.failures(total):.3g}{remainder}"
        )
    aside = (
        f" ({bounds.max_delta0:.3g} of delta is set aside for failures of tests)"
        if bounds.max_delta0
        else ""
    )
    raise BudgetExceededError(
        f"Expected epsilon <= {format_exact(budget.max_epsilon)} at delta ="
        f" {format_exact(budget.delta)} under"
        f" {budget.neighboring_relation.value} {when},"
        f" got epsilon={format_epsilon(bounds.epsilon(budget, total), 4)}{aside}{remainder}"
    )


def describe_remainder(bounds: PrivacyFilter, spent: Cost, query: Cost, count: int) -> str:
    """Say how much of the bounds ``spent`` leaves, and how many such queries it can pay for."""
    number = largest_count_where(lambda n: bounds.admits(spent + query * n))
    fits = f"left are {bounds.describe_left(spent)}: {number} such queries can be paid"
    spare = (
        bounds.max_delta0 - bounds.failures(spent + query._replace(log_survival=0.0) * count)
    ) / count
    if spare <= 0 or bounds.admits_failures(spent + query * count):
        return fits
    rarer = float(Context(prec=2, rounding=ROUND_FLOOR).create_decimal_from_float(spare))
    return (
        f"{fits}, and {count} with tests that fail with probability {rarer} at most, if the"
        " rest suffices"
    )


def _affordable_counts(budget: Budget, query: Cost) -> dict[FilterName, int]:
    """Return how many such queries each filter that the budget allows would admit."""
    require(bool(query.rdp.max() > 0 or query.log_survival < 0), "a query that costs something")

    def reach(kind: type[PrivacyFilter]) -> int:
        return largest_count_where(lambda n: kind.keeps(budget, query * n))

    return {name: reach(kind) for name, kind in FILTERS.items() if budget.filter in (None, name)}


def _require_delta_left(budget: Budget, max_delta0: float) -> None:
    if max_delta0 >= budget.delta:
        raise BudgetExceededError(
            f"Expected delta0 < {format_exact(budget.delta)}, the delta of the budget, after one"
            f" query, got delta0={max_delta0:.3g}"
        )


def _delta_for_failures(budget: Budget, cost: Cost) -> float:
    """Return the part of delta for failures if ``cost`` is the total of all releases."""
    return (
        max(_ASIDE * budget.delta, cost.delta0) if budget.max_delta0 is None else budget.max_delta0
    )


def _remaining_delta(budget: Budget, cost: Cost) -> float:
    """Return the part of delta that failures leave; 0 or less if there is none.

    It is not ``(delta - delta0) / (1 - delta0)``, which presumes that delta0 is spent on every
    path.
    """
    aside = _delta_for_failures(budget, cost)
    return budget.delta - aside if cost.delta0 <= aside * (1 + _SLACK) else 0.0


WEIGHT_BITS = 16  # fractional bits of a weight: sums over all voters are exact


class Personal(NamedTuple):
    """A personal budget: the largest epsilon of all releases of a ledger together, at its delta."""

    epsilon: float
    delta: float


def require_budgets(budgets: Iterable[float]) -> tuple[float, ...]:
    """Return budgets as floats. Raises ``ValueError`` unless they are positive and ascend."""
    numbers = tuple(budgets)
    require_positive(**{f"budgets[{i}]": budget for i, budget in enumerate(numbers)})
    require(
        list(numbers) == sorted({*numbers}), "budgets that ascend, each once", budgets=list(numbers)
    )
    return tuple(map(float, numbers))


def personal_weights(budgets: Sequence[float], delta: float) -> tuple[float, ...]:
    """Return the weight of each budget: the ratio of its ``mu`` to the largest one, rounded down.

    >>> [round(weight, 3) for weight in personal_weights((0.5, 1.0, 2.0), 1e-6)]
    [0.277, 0.528, 1.0]
    """
    most = largest_mu(budgets[-1], delta)
    steps = [math.floor(largest_mu(budget, delta) / most * 2**WEIGHT_BITS) for budget in budgets]
    require(min(steps) > 0, "budgets that are not so far apart", budgets=list(budgets))
    return tuple(step / 2**WEIGHT_BITS for step in steps)


@dataclass(frozen=True, kw_only=True)
class PersonalEvent(CompositeEvent):
    """A Gaussian release that weighs each record by its personal budget.

    Attributes:
        event: the release for a record of weight 1, the largest. It sets the cost.
        budgets: the epsilons of the budgets, ascending.
        weights: the weight of each, above 0 and up to 1.
        delta: the delta of the budgets.
    """

    event: Event
    budgets: tuple[float, ...]
    weights: tuple[float, ...]
    delta: float

    def __post_init__(self) -> None:
        require(isinstance(self.event, GaussianEvent), "a Gaussian event", event=self.event)
        super().__post_init__()
        object.__setattr__(self, "budgets", require_budgets(self.budgets))
        object.__setattr__(self, "weights", tuple(self.weights))
        require_in_open_unit_interval(delta=self.delta)
        require(
            len(self.weights) == len(self.budgets) > 0
            and 0 < min(self.weights) <= max(self.weights) <= 1,
            "a weight in (0, 1] for each budget",
            weights=self.weights,
        )

    def parts(self) -> Iterable[tuple[Event, int]]:
        return ((self.event, 1),)

    def for_budget(self, budget: float, delta: float) -> Event:
        if delta != self.delta or budget not in self.budgets:
            return self
        assert isinstance(self.event, GaussianEvent)
        multiplier = self.event.noise_multiplier / self.weights[self.budgets.index(budget)]
        return replace(self.event, noise_multiplier=multiplier)

    def _for_group_size(self, teachers: int) -> Event:
        return replace(self, event=self.event.for_group_size(teachers))


@lru_cache(maxsize=4096)
def named_budgets(event: Event) -> frozenset[Personal]:
    """Return the personal budgets that an event names."""
    if isinstance(event, PersonalEvent):
        return frozenset(Personal(budget, event.delta) for budget in event.budgets)
    parts = event.parts() if isinstance(event, CompositeEvent) else ()
    return frozenset(personal for part, _ in parts for personal in named_budgets(part))


def require_kept(charges: Sequence[Charge], teachers: int) -> None:
    """Raise ``ValueError`` unless all charges of a ledger keep the personal budgets they name.

    Sums of ``mu^2`` are a fully adaptive filter (Koskela, Tobaben & Honkela (2023)). Its bound
    follows from the budget alone. A release that does not name a budget counts in full. Stability
    tests are not admitted.

    Args:
        charges: the charges.
        teachers: the number of teachers that a unit of any release reaches.
    """
    for personal, relation in product(_named_in(charges), NeighboringRelation):
        require(
            teachers == 1,
            "max_teachers_per_unit = 1 in a ledger of personal budgets",
            max_teachers_per_unit=teachers,
        )
        budget = Budget(
            max_epsilon=personal.epsilon,
            delta=personal.delta,
            neighboring_relation=relation,
            max_delta0=0.0,
        )
        bounds = GaussianFilter(max_mu_squared=largest_mu(*personal) ** 2, max_delta0=0.0)
        own = [(_cost(events[relation], personal), count) for events, count in charges]
        survival = math.fsum(cost.log_survival * count for cost, count in own)
        mu_squared = math.fsum(cost.mu_squared * count for cost, count in own)
        total = Cost(np.zeros(1), survival, mu_squared)
        if not bounds.admits(total):
            refuse(budget, bounds, total, when="with all earlier releases, for its records")


@lru_cache(maxsize=4096)  # few events are distinct in a ledger
def _cost(event: Event, personal: Personal) -> Cost:
    return event.for_budget(*personal).cost()


def personal_figures(charges: Sequence[Charge]) -> list[dict[str, Any]]:
    """Return each personal budget that charges name, with what they cost its records.

    ``named_after`` is the number of charges before the first that names it. The cost is that of a
    `Guarantee` at the delta of the budget, by relation.
    """
    named = [_named_in([charge]) for charge in charges]
    return [
        personal._asdict()
        | {"named_after": next(i for i, each in enumerate(named) if personal in each)}
        | {
            relation.value: account(for_budget(charges, *personal), relation)
            .guarantee(delta=personal.delta)
            .to_dict()
            for relation in NeighboringRelation
        }
        for personal in _named_in(charges)
    ]


def _named_in(charges: Sequence[Charge]) -> list[Personal]:
    named = (named_budgets(event) for events, _ in charges for event in events.values())
    return sorted(frozenset[Personal]().union(*named))


def describe_personal(figures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield sentences on the `personal_figures` of all releases of a ledger."""
    if figures:
        yield (
            "Records have budgets of their own, which belong to their ids: who consents to less"
            " counts with a smaller weight. The list of budgets is public; nothing tells who has"
            " which. Figures hold where a record keeps its budget; that of the largest holds where"
            " it changes, too."
        )
    for figure in figures:
        # releases that were settled for less may have reserved more than the filter charged
        reserved = " and ".join(
            f"{format_epsilon(min(total['epsilon'], figure['epsilon']))}"
            + (f" (mu = {total['mu']:.6g})" if "mu" in total else "")
            + f" under {relation.name}"
            for relation in NeighboringRelation
            for total in (figure[relation.value],)
        )
        yield (
            f"For a record of budget {format_exact(figure['epsilon'])} all releases so far"
            f" have epsilon = {reserved} at delta = {format_exact(figure['delta'])}, and none"
            " is made beyond the budget."
            + (
                f" It was first named after release {after}: the budget holds if neither that nor"
                " its figure followed from what earlier releases showed."
                if (after := figure["named_after"])
                else ""
            )
        )
