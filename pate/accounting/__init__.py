"""What was released, what it cost, and the sum: events, curves, the accountant, the ledger and its budget."""

from pate.accounting.accountant import RDPAccountant, from_autodp
from pate.accounting.budget import Budget, GaussianFilter, PrivacyFilter, RenyiFilter
from pate.accounting.curves import (
    DEFAULT_ORDERS,
    Cost,
    bounded_range_rdp,
    cost,
    gaussian_noisy_max_rdp,
    gaussian_rdp,
    pure_dp_rdp,
    smooth_sensitivity_rdp,
    stability_test_rdp,
    total_cost,
)
from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    GaussianNoisyMaxEvent,
    PureDPEvent,
    RenyiCurveEvent,
    RepeatedEvent,
    SmoothSensitivityEvent,
    StabilityTestEvent,
    event_from_dict,
)
from pate.accounting.gaussian import gaussian_delta, gaussian_epsilon
from pate.accounting.ledger import Entry, Ledger, account, read_ledger, verify_ledger
from pate.accounting.relation import NeighboringRelation
from pate.accounting.statement import check_budget, describe, make_statement, recompute, verify_statement

__all__ = [
    "DEFAULT_ORDERS",
    "BoundedRangeEvent",
    "Budget",
    "ComposedEvent",
    "Cost",
    "Entry",
    "Event",
    "FailureEvent",
    "GaussianEvent",
    "GaussianFilter",
    "GaussianNoisyMaxEvent",
    "Ledger",
    "NeighboringRelation",
    "PureDPEvent",
    "RDPAccountant",
    "RenyiCurveEvent",
    "PrivacyFilter",
    "RenyiFilter",
    "RepeatedEvent",
    "SmoothSensitivityEvent",
    "StabilityTestEvent",
    "account",
    "bounded_range_rdp",
    "check_budget",
    "cost",
    "describe",
    "event_from_dict",
    "from_autodp",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_noisy_max_rdp",
    "gaussian_rdp",
    "make_statement",
    "pure_dp_rdp",
    "read_ledger",
    "recompute",
    "smooth_sensitivity_rdp",
    "stability_test_rdp",
    "total_cost",
    "verify_ledger",
    "verify_statement",
]
