"""The command `pate references`."""

from __future__ import annotations

from collections.abc import Sequence

from pate.commands.parsing import ALONE, Preset, make_parser, open_run, parse, settings
from pate.runs import TEACHERS_FIT, first_stage
from pate.stages.references import make_references
from pate.stages.teachers_plan import load_plan
from pate.validation import expect


def main(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate references`."""
    parser = make_parser("references", make_references, skip={"run", "plan"})
    parsed = parse(parser, args, preset)
    run = open_run(parsed, settings(parser, parsed))
    trained = first_stage(run) is TEACHERS_FIT
    expect(trained, "a run whose teachers were trained here, which references measure", imported_votes=str(run.root))
    run.require(TEACHERS_FIT)
    make_references(run, load_plan(run))
