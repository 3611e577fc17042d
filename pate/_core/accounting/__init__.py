"""Events, their costs, accountants, budgets, the ledger and its statements."""

# events are known by name once their module is imported
from pate._core.accounting import events as events
