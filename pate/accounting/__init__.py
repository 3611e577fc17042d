"""Privacy accounting: events, their Renyi curves, the accountant, budgets and ledgers."""

from pate.accounting._accountant import (
    RDPAccountant as RDPAccountant,
    Target as Target,
    calibrate_scale as calibrate_scale,
    epsilon_of as epsilon_of,
)
from pate.accounting._adaptive import adaptive_epsilon as adaptive_epsilon
from pate.accounting._autodp import from_autodp as from_autodp, to_autodp as to_autodp
from pate.accounting._charges import Budget as Budget
from pate.accounting._cost import (
    DEFAULT_ORDERS as DEFAULT_ORDERS,
    Cost as Cost,
    Guarantee as Guarantee,
    NeighboringRelation as NeighboringRelation,
    gaussian_epsilon as gaussian_epsilon,
)
from pate.accounting._curves import Pairs as Pairs
from pate.accounting._events import (
    BoundedRangeEvent as BoundedRangeEvent,
    ComposedEvent as ComposedEvent,
    CurveEvent as CurveEvent,
    Event as Event,
    FailureEvent as FailureEvent,
    GaussianEvent as GaussianEvent,
    GaussianNoisyMaxEvent as GaussianNoisyMaxEvent,
    GaussianThresholdEvent as GaussianThresholdEvent,
    PartiesEvent as PartiesEvent,
    PureDPEvent as PureDPEvent,
    RenyiCurveEvent as RenyiCurveEvent,
    RepeatedEvent as RepeatedEvent,
    RootPeelingEvent as RootPeelingEvent,
    StabilityTestEvent as StabilityTestEvent,
    event_from_dict as event_from_dict,
)
from pate.accounting._filters import PersonalEvent as PersonalEvent, PrivacyFilter as PrivacyFilter
from pate.accounting._history import (
    LedgerEntry as LedgerEntry,
    LedgerHead as LedgerHead,
    LedgerSnapshot as LedgerSnapshot,
)
from pate.accounting._ledger import (
    Ledger as Ledger,
    read_ledger as read_ledger,
    verify_ledger as verify_ledger,
)
from pate.accounting._privacy_unit import PrivacyUnit as PrivacyUnit
from pate.accounting._statement import Statement as Statement
