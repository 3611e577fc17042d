"""Privacy accounting: events, their Renyi curves, the accountant, the budget, and the ledger of all releases."""

from pate.accounting.accountant import RDPAccountant
from pate.accounting.autodp import from_autodp, to_autodp
from pate.accounting.budget import Budget, GaussianFilter, PrivacyFilter, RenyiFilter
from pate.accounting.charges import account, epsilon_after
from pate.accounting.cost import DEFAULT_ORDERS, Cost
from pate.accounting.curves import (
    bounded_range_rdp,
    gaussian_noisy_max_rdp,
    gaussian_rdp,
    pure_dp_rdp,
    smooth_sensitivity_rdp,
)
from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    GaussianNoisyMaxEvent,
    GaussianThresholdEvent,
    PureDPEvent,
    RenyiCurveEvent,
    RepeatedEvent,
    SmoothSensitivityEvent,
    StabilityTestEvent,
    event_from_dict,
    total_cost,
)
from pate.accounting.gaussian import gaussian_delta, gaussian_epsilon
from pate.accounting.history import Entry
from pate.accounting.ledger import Ledger, read_ledger
from pate.accounting.relation import NeighboringRelation
from pate.accounting.stability_curve import stability_test_rdp
from pate.accounting.statement import Questions, describe, make_statement, recompute, verify_statement
from pate.accounting.threshold_curve import threshold_bit_rdp
from pate.accounting.verification import verify_ledger

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
    "GaussianThresholdEvent",
    "Ledger",
    "NeighboringRelation",
    "PrivacyFilter",
    "PureDPEvent",
    "Questions",
    "RDPAccountant",
    "RenyiCurveEvent",
    "RenyiFilter",
    "RepeatedEvent",
    "SmoothSensitivityEvent",
    "StabilityTestEvent",
    "account",
    "bounded_range_rdp",
    "describe",
    "epsilon_after",
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
    "threshold_bit_rdp",
    "to_autodp",
    "total_cost",
    "verify_ledger",
    "verify_statement",
]
