"""The command `pate label`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from pate.commands.mistakes import CommandParser
from pate.commands.parsing import ALONE, Preset, make_parser, open_run, shows
from pate.commands.unscaled import completed
from pate.commands.votes import add_votes, bring_votes, parse_with_votes
from pate.runs import LABEL
from pate.stages.label import LabelSettings, label
from pate.validation import expect


def main(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate label`."""
    parser = label_parser()
    before = [] if shows(args) else completed(parser.read([*preset.options(), *args]))
    parsed = parse_with_votes(parser, args, preset, before=before)
    expect(parsed.aggregator is not None, "--aggregator, or --target_epsilon, which finds one", aggregator=None)
    made = parser.instantiate(parsed)
    asked = LabelSettings(**{field.name: made[field.name] for field in fields(LabelSettings)})
    bring_votes(parsed, made.data, asked)
    run = open_run(parsed)
    label(run, asked)
    print((run.root / LABEL.outputs[-1]).read_text(), end="")


def label_parser() -> CommandParser:
    """Return the parser of `pate label`, in which a target epsilon is enough to name an aggregator."""
    parser = make_parser("label", label, skip={"run", "settings"}, settings=LabelSettings)
    add_votes(parser)
    parser._option_string_actions["--aggregator"].required = False
    return parser
