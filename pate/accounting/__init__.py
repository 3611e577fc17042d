"""Privacy accounting: events, their Renyi curves, the accountant, the budget, and the ledger of all releases."""

from pate.accounting._accountant import RDPAccountant as RDPAccountant
from pate.accounting._budget import Budget as Budget
from pate.accounting._cost import DEFAULT_ORDERS as DEFAULT_ORDERS
from pate.accounting._cost import Cost as Cost
from pate.accounting._events import BoundedRangeEvent as BoundedRangeEvent
from pate.accounting._events import ComposedEvent as ComposedEvent
from pate.accounting._events import Event as Event
from pate.accounting._events import GaussianEvent as GaussianEvent
from pate.accounting._events import GaussianNoisyMaxEvent as GaussianNoisyMaxEvent
from pate.accounting._events import PureDPEvent as PureDPEvent
from pate.accounting._events import RepeatedEvent as RepeatedEvent
from pate.accounting._events import StabilityTestEvent as StabilityTestEvent
from pate.accounting._events import event_from_dict as event_from_dict
from pate.accounting._gaussian import gaussian_epsilon as gaussian_epsilon
from pate.accounting._ledger import Ledger as Ledger
from pate.accounting._ledger import read_ledger as read_ledger
from pate.accounting._relation import NeighboringRelation as NeighboringRelation
from pate.accounting._statement import Statement as Statement
from pate.accounting._verification import verify_ledger as verify_ledger
