"""The command `pate label`."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pate.aggregators import Aggregator
from pate.commands.parsing import ALONE, Preset, make_parser, open_run, settings
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
    seen = {"-h", "--help"} & set(args)
    parsed = parse_with_votes(parser, args, preset, before=[] if seen else completed(args, preset))
    made = parser.instantiate(parsed)
    asked = LabelSettings(**{field.name: made[field.name] for field in fields(LabelSettings)})
    bring_votes(parser, parsed, made.data)
    run = open_run(parsed, without_votes(settings(parser, parsed)))
    if asked.target_epsilon is not None:
        asked = asked.meeting_target(finished_votes(run).manifest().panel)
        _write_noise(run.config["aggregator"]["init_args"], asked.aggregator)
    label(run, asked)
    print((run.root / LABEL.outputs[-1]).read_text(), end="")


def _write_noise(settings: dict[str, Any], aggregator: Aggregator) -> None:
    """Put the scales of an aggregator's noise, and of those within it, into its settings."""
    for field in fields(aggregator):
        value = getattr(aggregator, field.name)
        if isinstance(value, Aggregator):
            _write_noise(settings[field.name]["init_args"], value)
        elif field.name in aggregator.noise_parameters:
            settings[field.name] = value
