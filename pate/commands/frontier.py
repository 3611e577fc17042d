"""The command `pate frontier`."""

from functools import partial

from pate.commands.parsing import call
from pate.stages.frontier import frontier

main = partial(call, "frontier", frontier)
