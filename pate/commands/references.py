"""The command `pate references`."""

from collections.abc import Sequence

from pate.commands.parsing import ALONE, Preset, make_parser, open_run, parse, settings
from pate.commands.teachers import load_plan
from pate.runs import TEACHERS_FIT
from pate.stages.references import make_references


def main(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate references`."""
    parser = make_parser("references", make_references, skip={"run", "plan"})
    parsed = parse(parser, args, preset)
    run = open_run(parsed, settings(parser, parsed))
    run.require(TEACHERS_FIT)
    make_references(run, load_plan(run))
