"""The event of a release that is covered but for a small probability."""

from pate.accounting.events import Event, StabilityTestEvent
from pate.accounting.relation import NeighboringRelation
from pate.validation import expect_open_unit


def failure_event(delta: float, *, neighboring_relation: NeighboringRelation) -> Event:
    """Return an event that costs ``delta0 = delta`` and nothing else, to be composed with what holds
    otherwise.

    It is a stability test whose noise is so wide that its outcome tells nothing.
    """
    relation = NeighboringRelation(neighboring_relation)
    expect_open_unit(delta=delta)
    return StabilityTestEvent(
        neighboring_relation=relation,
        sigma=1e100,
        delta_test=delta,
        shift=relation.count_window,
        num_teachers=1,
    )
