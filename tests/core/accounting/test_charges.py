"""What is charged: the ends of what is accepted, and costs of wider units."""

from dataclasses import dataclass

import numpy as np
import pytest

from pate._core.accounting.charges import (
    MAX_COUNT,
    BudgetExceededError,
    account,
    for_group_size,
    require_charged_count,
    require_delta_beyond_tests,
    require_events,
)
from pate._core.validation import FloatArray
from pate.accounting import Cost, Event, NeighboringRelation
from tests.core.accounting.ledgers import ONE_LINE, REPLACE, gaussian, stable


@pytest.mark.parametrize("count", [0, 1, MAX_COUNT, np.int64(MAX_COUNT)])
def test_counts_up_to_the_largest_integer_of_floats_are_charged(count: int) -> None:
    require_charged_count(0, count)


@pytest.mark.parametrize("count", [MAX_COUNT + 1, np.int64(MAX_COUNT + 1), -1])
def test_other_counts_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=ONE_LINE):
        require_charged_count(0, count)


def test_a_delta_has_to_exceed_what_tests_cost() -> None:
    charges = [(stable(), 5)]
    tests = account(charges, REPLACE).delta0
    require_delta_beyond_tests(charges, REPLACE, float(np.nextafter(tests, 1)))
    with pytest.raises(BudgetExceededError, match=ONE_LINE):
        require_delta_beyond_tests(charges, REPLACE, tests)


def test_a_unit_of_several_teachers_reaches_all_of_them() -> None:
    charges = [(gaussian(5.0), 3), (stable(), 2), (gaussian(5.0), 4)]
    assert for_group_size(charges, 1) == charges
    for teachers in (2, 3):
        wider = for_group_size(charges, teachers)
        assert [count for _, count in wider] == [3, 2, 4]
        for (events, _), (before, _) in zip(wider, charges, strict=True):
            assert (
                events
                == {relation: event.for_group_size(teachers) for relation, event in before.items()}
                != before
            )


@dataclass(frozen=True, kw_only=True)
class Stated(Event):
    """A Gaussian event that states something else of its cost."""

    change: str

    def cost(self, orders: FloatArray | None = None) -> Cost:
        rdp = gaussian(5.0)[self.neighboring_relation].cost().rdp.copy()
        if self.change == "one order":
            rdp[7] = -1e-3
        log_survival, mu_squared = {"log_survival": (1e-3, 0.16), "mu_squared": (0.0, -1e-3)}.get(
            self.change, (0.0, 0.16)
        )
        return Cost(rdp, log_survival, mu_squared)


@pytest.mark.parametrize("change", ["one order", "log_survival", "mu_squared"])
def test_a_cost_that_nothing_can_have_is_refused(change: str) -> None:
    events = {
        relation: Stated(change=change, neighboring_relation=relation)
        for relation in NeighboringRelation
    }
    with pytest.raises(ValueError, match=r"^Expected an event of known cost"):
        require_events(events)
    require_events(
        {
            relation: Stated(change="nothing", neighboring_relation=relation)
            for relation in NeighboringRelation
        }
    )
