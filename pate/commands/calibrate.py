"""The command `pate calibrate`."""

from functools import partial

from pate.commands.parsing import call
from pate.stages.budget import calibrate

main = partial(call, "calibrate", calibrate)
