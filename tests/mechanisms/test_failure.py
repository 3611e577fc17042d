"""The event of a probability of failure."""

import pytest

from pate.accounting import NeighboringRelation, cost
from pate.mechanisms import failure_event


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize("delta", [1e-12, 1e-3, 0.4])
def test_it_costs_the_probability_and_nothing_else(relation: NeighboringRelation, delta: float) -> None:
    event = failure_event(delta, neighboring_relation=relation)
    assert event.neighboring_relation is relation
    assert cost(event).delta0 == pytest.approx(delta, rel=1e-9)
    assert cost(event).rdp.max() < 1e-90


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1])
def test_delta_that_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match=f"^Expected 0 < delta < 1, got delta={delta}$"):
        failure_event(delta, neighboring_relation=NeighboringRelation.REPLACE_RECORD)
