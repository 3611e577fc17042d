"""Privacy accounting: events, their Renyi curves, the accountant, budgets and ledgers."""

from pate._core.package import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from pate._core.accounting.accountant import (
        Accountant as Accountant,
        Composed as Composed,
        Guarantee as Guarantee,
        RDPAccountant as RDPAccountant,
        Target as Target,
        calibrate_scale as calibrate_scale,
        epsilon_of as epsilon_of,
    )
    from pate._core.accounting.charges import Budget as Budget, PrivacyFilter as PrivacyFilter
    from pate._core.accounting.cost import (
        DEFAULT_ORDERS as DEFAULT_ORDERS,
        Cost as Cost,
        NeighboringRelation as NeighboringRelation,
        gaussian_epsilon as gaussian_epsilon,
    )
    from pate._core.accounting.curves import Pairs as Pairs
    from pate._core.accounting.events import (
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
    from pate._core.accounting.history import (
        LedgerEntry as LedgerEntry,
        LedgerHead as LedgerHead,
        LedgerSnapshot as LedgerSnapshot,
        PrivacyUnit as PrivacyUnit,
    )
    from pate._core.accounting.ledger import (
        Ledger as Ledger,
        read_ledger as read_ledger,
        verify_ledger as verify_ledger,
    )
    from pate._core.accounting.statement import Statement as Statement
    from pate.lab.study.account import from_autodp as from_autodp, to_autodp as to_autodp
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
