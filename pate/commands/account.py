"""The command `pate account`."""

from functools import partial

from pate.commands.parsing import call
from pate.stages.budget import account

main = partial(call, "account", account)
