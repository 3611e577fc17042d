"""The command `pate label`."""

from collections.abc import Sequence
from dataclasses import fields

from pate.commands.parsing import ALONE, Preset, make_parser, open_run, settings
from pate.commands.votes import add_votes, bring_votes, parse_with_votes, without_votes
from pate.runs import LABEL
from pate.stages.label import LabelSettings, label


def main(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate label`."""
    parser = make_parser("label", label, skip={"run", "settings"}, settings=LabelSettings)
    add_votes(parser)
    parsed = parse_with_votes(parser, args, preset)
    made = parser.instantiate(parsed)
    asked = LabelSettings(**{field.name: made[field.name] for field in fields(LabelSettings)})
    bring_votes(parser, parsed, made.data)
    run = open_run(parsed, without_votes(settings(parser, parsed)))
    label(run, asked)
    print((run.root / LABEL.outputs[-1]).read_text(), end="")
