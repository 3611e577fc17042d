"""The command `pate references`."""

from __future__ import annotations

from collections.abc import Sequence

from pate.commands.parsing import ALONE, Preset, add_run, new_parser, open_run, parse
from pate.runs import TEACHERS_FIT, first_stage
from pate.validation import expect

_SUMMARY = (
    "Evaluate, on the test set, a student of the true labels and the noiseless majority of the teachers. PRIVATE.\n\n"
    "Neither is private: on data that may be looked at, they show the price of privacy. The student of the true labels"
    " is trained like the private one, on all samples that were queried."
)


def main(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate references`."""
    parser = new_parser("references", _SUMMARY)
    add_run(parser)
    parsed = parse(parser, args, preset)
    run = open_run(parsed)
    trained = first_stage(run) is TEACHERS_FIT
    expect(trained, "a run whose teachers were trained here, which references measure", imported_votes=str(run.root))
    run.require(TEACHERS_FIT)
    # Lightning takes seconds to import
    from pate.stages.references import make_references
    from pate.stages.teachers_plan import load_plan

    make_references(run, load_plan(run))
