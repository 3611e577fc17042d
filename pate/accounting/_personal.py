"""Personal budgets: records that consent to less count less, and a filter keeps each budget.

A record of weight ``w`` moves everything that is released by ``w`` times as much as others do, so
that a Gaussian mechanism of ``mu`` is one of ``w mu`` for it (individualized PATE by weights,
Boenisch et al. (2022)). The budget of a record is public to its owner and belongs to its id: an
altered record keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from pate._validation import require, require_in_open_unit_interval, require_positive
from pate.accounting._base import CompositeEvent, Event
from pate.accounting._charges import (
    Budget,
    Charge,
    account,
    for_budget,
)
from pate.accounting._cost import Cost, NeighboringRelation, largest_mu
from pate.accounting._events import GaussianEvent
from pate.accounting._filters import GaussianFilter, refuse
from pate.accounting._formatting import format_epsilon, format_exact

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
    """A Gaussian release in which a record counts with the weight of its personal budget.

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
        fit = len(self.weights) == len(self.budgets) > 0 and max(self.weights) <= 1
        fit = fit and min(self.weights) > 0
        require(fit, "a weight in (0, 1] for each budget", weights=self.weights)

    def parts(self) -> Iterable[tuple[Event, int]]:
        return ((self.event, 1),)

    def for_budget(self, budget: float, delta: float) -> Event:
        if delta != self.delta or budget not in self.budgets:
            return self
        assert isinstance(self.event, GaussianEvent)
        weight = self.weights[self.budgets.index(budget)]
        return replace(self.event, noise_multiplier=self.event.noise_multiplier / weight)

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

    Sums of ``mu^2`` are a fully adaptive filter (Koskela, Tobaben & Honkela (2023)); its bound
    follows from the budget alone. A release that does not name a budget counts in full. Stability
    tests are not admitted.

    Args:
        charges: the charges.
        teachers: the number of teachers that a unit of any release reaches.
    """
    for personal, relation in product(_named_in(charges), NeighboringRelation):
        one = "max_teachers_per_unit = 1 in a ledger of personal budgets"
        require(teachers == 1, one, max_teachers_per_unit=teachers)
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
