"""The command `pate label`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from jsonargparse import Namespace

from pate.commands.mistakes import CommandParser
from pate.commands.parsing import ALONE, Preset, make_parser, open_run, shows
from pate.commands.unscaled import completed
from pate.commands.votes import add_votes, bring_votes, parse_with_votes
from pate.release.label_settings import LabelSettings
from pate.release.labels import label
from pate.runs import LABEL
from pate.validation import expect
from pate.votes import Panel


def main(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate label`."""
    parser = label_parser()
    before = [] if shows(args) else completed(parser.read([*preset.options(), *args]))
    parsed = parse_with_votes(parser, args, preset, before=before)
    made = parser.instantiate(parsed)
    asked = _settings(parsed, made)
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


def settings_for(args: Sequence[str], preset: Preset, panel: Panel, size: int) -> LabelSettings:
    """Return the settings of `pate label`, resolved for votes of ``panel`` on ``size`` samples that are yet to be cast.

    Raises:
        ValueError: in one line, if nothing could be released by them.
    """
    parser = label_parser()
    options = parser.read([*preset.options(), *args])
    number = size if options.num_queries is None else options.num_queries
    expect(number <= size, f"num_queries <= {size}", num_queries=number)
    options.num_teachers, options.num_labels, options.num_queries = panel.num_teachers, panel.num_labels, number
    parsed = parse_with_votes(parser, args, preset, before=completed(options))
    return _settings(parsed, parser.instantiate(parsed)).resolved(panel, size)


def _settings(parsed: Namespace, made: Namespace) -> LabelSettings:
    expect(parsed.aggregator is not None, "--aggregator, or --target_epsilon, which finds one", aggregator=None)
    return LabelSettings(**{field.name: made[field.name] for field in fields(LabelSettings)})
