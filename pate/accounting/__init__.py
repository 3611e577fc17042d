"""What was released, what it cost, and the sum: events, curves and the accountant."""

from pate.accounting.accountant import RDPAccountant
from pate.accounting.curves import (
    DEFAULT_ORDERS,
    Cost,
    bounded_range_rdp,
    cost,
    gaussian_rdp,
    pure_dp_rdp,
    stability_test_rdp,
)
from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    GaussianEvent,
    PureDPEvent,
    RepeatedEvent,
    StabilityTestEvent,
    event_from_dict,
)
from pate.accounting.ledger import Entry, Ledger, account
from pate.accounting.relation import NeighboringRelation

__all__ = [
    "DEFAULT_ORDERS",
    "BoundedRangeEvent",
    "ComposedEvent",
    "Cost",
    "Entry",
    "Event",
    "GaussianEvent",
    "Ledger",
    "NeighboringRelation",
    "PureDPEvent",
    "RDPAccountant",
    "RepeatedEvent",
    "StabilityTestEvent",
    "account",
    "bounded_range_rdp",
    "cost",
    "event_from_dict",
    "gaussian_rdp",
    "pure_dp_rdp",
    "stability_test_rdp",
]
