"""The commands `pate calibrate`, `pate account` and `pate ledger`."""

from functools import partial

from pate.stages import budget
from pate.stages.command import call

calibrate = partial(call, "calibrate", budget.calibrate)
account = partial(call, "account", budget.account)
show = partial(call, "ledger show", budget.ledger_show)
verify = partial(call, "ledger verify", budget.ledger_verify)
