"""The commands `pate ledger show` and `pate ledger verify`."""

from functools import partial

from pate.commands.parsing import call
from pate.stages.budget import ledger_show, ledger_verify

show = partial(call, "ledger show", ledger_show)
verify = partial(call, "ledger verify", ledger_verify)
