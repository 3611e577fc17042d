"""Privacy accounting: events, their Renyi curves, the accountant, the budget, and the ledger of all releases."""

from pate.accounting.accountant import RDPAccountant as RDPAccountant
from pate.accounting.budget import Budget as Budget
from pate.accounting.cost import DEFAULT_ORDERS as DEFAULT_ORDERS
from pate.accounting.cost import Cost as Cost
from pate.accounting.events import BoundedRangeEvent as BoundedRangeEvent
from pate.accounting.events import ComposedEvent as ComposedEvent
from pate.accounting.events import Event as Event
from pate.accounting.events import GaussianEvent as GaussianEvent
from pate.accounting.events import GaussianNoisyMaxEvent as GaussianNoisyMaxEvent
from pate.accounting.events import PureDPEvent as PureDPEvent
from pate.accounting.events import RepeatedEvent as RepeatedEvent
from pate.accounting.events import StabilityTestEvent as StabilityTestEvent
from pate.accounting.events import event_from_dict as event_from_dict
from pate.accounting.gaussian import gaussian_epsilon as gaussian_epsilon
from pate.accounting.ledger import Ledger as Ledger
from pate.accounting.ledger import read_ledger as read_ledger
from pate.accounting.relation import NeighboringRelation as NeighboringRelation
from pate.accounting.statement import Statement as Statement
from pate.accounting.verification import verify_ledger as verify_ledger
