"""The command `pate label`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from jsonargparse import Namespace

from pate._commands.mistakes import CommandParser
from pate._commands.parsing import ALONE, Preset, make_parser
from pate._commands.votes import add_votes, parse_with_votes
from pate._pipeline import Pipeline
from pate._planning.completion import resolve_settings
from pate._release.label_settings import LabelSettings
from pate._release.labels import label
from pate._release.stating import StatedLabels
from pate._silos.invitation import AwaitedError, SiloSum
from pate._votes import Ballots, Panel


def main(args: Sequence[str], preset: Preset = ALONE) -> None:
    """Run `pate label`."""
    try:
        print(release(args, preset).describe(), end="")
    except AwaitedError as error:
        print(f"Waiting for {error}. Nothing is lost: the same command goes on from here.")


def release(args: Sequence[str], preset: Preset = ALONE) -> StatedLabels:
    """Release the labels of `pate label`, and print nothing."""
    parser = _parser()
    parsed = parse_with_votes(parser, args, preset)
    options = parser.instantiate(parsed)
    pipeline = Pipeline(options.run, options.data, ledger=options.ledger, overwrite=options.overwrite)
    if options.silos is None:
        return pipeline.label(_settings(options), options.votes, unit=options.unit)
    request = SiloSum(
        exchange=options.silos,
        teachers=options.teachers,
        public_keys=options.public_keys,
        signing_key=options.signing_key,
        without=options.without or (),
        wait=options.wait,
    )
    return pipeline._label_silos(_settings(options), request, unit=options.unit)


def settings_for(
    args: Sequence[str], preset: Preset, panel: Panel, size: int, ballots: Ballots = "bits"
) -> LabelSettings:
    """Return the settings of `pate label`, resolved for votes of ``panel`` on ``size`` samples that are yet to be cast.

    Raises:
        ValueError: in one line, if nothing could be released by them.
    """
    parser = _parser()
    return resolve_settings(_settings(parser.instantiate(parse_with_votes(parser, args, preset))), panel, size, ballots)


def _parser() -> CommandParser:
    parser = make_parser("label", label, skip={"run", "votes", "settings", "total"}, settings=LabelSettings)
    add_votes(parser)
    return parser


def _settings(options: Namespace) -> LabelSettings:
    return LabelSettings(**{field.name: options[field.name] for field in fields(LabelSettings)})
