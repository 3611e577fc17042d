"""The command `pate label`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pate.aggregators import Aggregator
from pate.commands.parsing import ALONE, Preset, make_parser, open_run, settings, shows
from pate.commands.unscaled import completed
from pate.commands.votes import add_votes, bring_votes, parse_with_votes, without_votes
from pate.runs import LABEL
from pate.stages.label import LabelSettings, label
from pate.vote_store import finished_votes


def main(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate label`.

    With a target epsilon, the noise that meets it is found first: the run's settings hold what is found, and so mean
    the same when they are read again.
    """
    parser = make_parser("label", label, skip={"run", "settings"}, settings=LabelSettings)
    add_votes(parser)
    shown = shows(args)
    # a target is enough: it names an aggregator before the options are parsed
    parser.may_lack("--aggregator", "--target_epsilon (it finds mechanism and noise) or --aggregator", shown=shown)
    parsed = parse_with_votes(parser, args, preset, before=[] if shown else completed(args, preset))
    made = parser.instantiate(parsed)
    asked = LabelSettings(**{field.name: made[field.name] for field in fields(LabelSettings)})
    bring_votes(parser, parsed, made.data, asked)
    run = open_run(parsed, without_votes(settings(parser, parsed)))
    if asked.target_epsilon is not None:
        manifest = finished_votes(run).manifest()
        asked = asked.resolved(manifest.panel, len(manifest.ids))
        _write_noise(run.config["aggregator"], asked.aggregator)
    label(run, asked)
    print((run.root / LABEL.outputs[-1]).read_text(), end="")


def _write_noise(settings: Any, aggregator: Any) -> None:
    """Put the scales of an aggregator's noise, and of those within it, into its settings."""
    if isinstance(aggregator, tuple):
        for each, value in zip(settings, aggregator, strict=True):
            _write_noise(each, value)
    elif isinstance(aggregator, Aggregator):
        for field in fields(aggregator):
            value = getattr(aggregator, field.name)
            if field.name in aggregator.noise_parameters:
                settings["init_args"][field.name] = value
            else:
                _write_noise(settings["init_args"].get(field.name), value)
