"""Sums of costs: exact, whatever is added and taken back."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pate._core.accounting.charges import Totals
from pate._core.accounting.cost import Cost
from pate._core.validation import FloatArray
from pate.accounting import (
    DEFAULT_ORDERS,
    Budget,
    Event,
    Ledger,
    NeighboringRelation,
    RenyiCurveEvent,
    verify_ledger,
)
from tests.core.accounting.ledgers import REPLACE, gaussian, reserve


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_no_digits_are_lost_to_what_was_taken_back(relation: NeighboringRelation) -> None:
    """Giant reservations come and go; what stays is what an exact sum says."""
    chance = random.Random(0)
    totals, left = Totals(DEFAULT_ORDERS), []
    small, giant = (
        [gaussian(10.0**k) for k in range(3, 9)],
        [gaussian(10.0**-k) for k in range(2, 120, 20)],
    )
    for _ in range(300):
        charge = (chance.choice(small), chance.choice([1, 3, 2**30 + 1, 2**53 - 1]))
        large = (chance.choice(giant), chance.choice([1, 2**53]))
        totals.add(large, charge)
        left.append(charge)
        totals.add((large[0], -large[1]))
    found = totals.cost(relation)
    for order in (0, 100, 256):
        exact = sum(Fraction(float(each[relation].cost().rdp[order])) * n for each, n in left)
        assert 0 <= Fraction(float(found.rdp[order])) / exact - 1 < Fraction(12, 2**52)
    for charge in left:
        totals.add((charge[0], -charge[1]))
    assert totals.cost(relation).is_within(Cost.nothing(DEFAULT_ORDERS))


def test_sums_are_never_below_the_truth() -> None:
    """They are rounded upwards, by a part of 2^-52 for each kind of events at most."""
    names = [gaussian(1 + 1 / kind) for kind in range(1, 301)]
    totals, exact, plain = Totals(DEFAULT_ORDERS), Fraction(0), 0.0
    for number, events in enumerate(names):
        count = 2**53 - 1 if number == 0 else number
        totals.add((events, count))
        once = float(events[REPLACE].cost().rdp[50])
        exact += count * Fraction(once)
        plain += count * once
    found = Fraction(float(totals.cost(REPLACE).rdp[50]))
    assert exact <= found <= exact * (1 + Fraction(2 * len(names), 2**52))
    assert plain < exact  # without the rounding
    for more in ([], [(names[0], 1)]):
        assert Fraction(float(totals.cost(REPLACE, more).rdp[50])) >= exact


def test_infinite_costs_come_and_go(path: Path) -> None:
    wide = {
        r: RenyiCurveEvent(orders=(1.5, 2.5), rdp=(0.1, 0.2), neighboring_relation=r)
        for r in gaussian(1)
    }
    ledger = Ledger(path)
    reserve(ledger, gaussian(30), 3)
    alone = ledger.snapshot().spent(REPLACE)
    first, second = reserve(ledger, wide, 2), reserve(ledger, wide, 1)
    for release in (first, second):
        for relation in NeighboringRelation:
            kept, anew = ledger._history._totals.cost(relation), ledger.snapshot().spent(relation)
            np.testing.assert_allclose(kept.rdp, anew.rdp, rtol=1e-12)
            assert np.isinf(kept.rdp).any() and np.isinf(kept.mu_squared)
        ledger.settle(release, realised=[])
    ledger.entries()
    kept = ledger._history._totals.cost(REPLACE)
    np.testing.assert_allclose(kept.rdp, alone.rdp, rtol=1e-14)
    assert kept.mu_squared == pytest.approx(alone.mu_squared)
    verify_ledger(path)


@dataclass(frozen=True, kw_only=True)
class OnDefaultOrders(Event):
    """An event of another package that ignores the orders it is asked for."""

    def cost(self, orders: FloatArray = DEFAULT_ORDERS) -> Cost:
        return Cost(DEFAULT_ORDERS / 800, 0.0, 1 / 400)

    def _for_group_size(self, teachers: int) -> OnDefaultOrders:
        return self


def test_a_budget_takes_events_with_a_cost_on_the_default_orders_alone(path: Path) -> None:
    events = {r: OnDefaultOrders(neighboring_relation=r) for r in NeighboringRelation}
    ledger = Ledger(path)
    budget = Budget(max_epsilon=5.0, delta=1e-5, neighboring_relation=REPLACE)
    release = reserve(ledger, events, 3, budget)
    ledger.settle(release, realised=[(events, 2)])
    assert verify_ledger(path).filter == Ledger(path).snapshot().filter
    with pytest.raises(ValueError, match="496 such queries can be paid"):
        reserve(ledger, events, 3000)
