"""The command `pate label`."""

from collections.abc import Sequence
from functools import cache

from jsonargparse import Namespace

from pate._commands.parsing import (
    NO_PRESET,
    Preset,
    from_options,
    make_parser,
    parse,
    settings_of,
    shows_help,
    with_saved_data,
)
from pate._commands.suggestions import CommandParser
from pate._commands.votes import HELP, add_votes, votes_from_where
from pate._files import Json
from pate._pipeline import Pipeline
from pate._planning.unanswered import describe_unanswered
from pate._registry import find
from pate._release.label_settings import LabelSettings
from pate._release.labels import StatedLabels, label
from pate._validation import AwaitedError, require
from pate.aggregators import load_plugins


def main(args: Sequence[str], preset: Preset = NO_PRESET) -> None:
    """Run `pate label`."""
    try:
        released = _release(args, preset)
        print(released.describe(), end="")
        _print_advice(released)
    except AwaitedError as error:
        print(f"Waiting for {error}. Nothing is lost: the same command continues from here.")


def release(args: Sequence[str], preset: Preset = NO_PRESET) -> None:
    """Release the labels of `pate label`, and print only advice."""
    _print_advice(_release(args, preset))


def _print_advice(released: StatedLabels) -> None:
    for text in (describe_unanswered(released), released.unlike):
        if text is not None:
            print(text)


def _release(args: Sequence[str], preset: Preset) -> StatedLabels:
    origin = HELP if shows_help(args) else votes_from_where(args, preset)
    parser = _parser(origin)
    # votes from elsewhere come with the data that the run has
    options = parser.instantiate(
        parse(parser, args, preset if origin is None else with_saved_data(args, preset))
    )
    settings, overwrite = from_options(LabelSettings, options), options.overwrite
    if origin is None:
        return Pipeline(options.run, overwrite=overwrite).label(settings)
    pipeline = Pipeline(options.run, options.data, ledger=options.ledger, overwrite=overwrite)
    if origin == "votes":
        return pipeline.label(settings, options.votes, unit=options.unit)
    require(options.teachers, "--teachers with a number for each silo", teachers=options.teachers)
    keys = {"public_keys": options.public_keys, "signing_key": options.signing_key}
    require(
        None not in keys.values(),
        "--public_keys of the silos and the server's --signing_key",
        **keys,
    )
    request = find("SiloSum")(
        exchange=options.silos,
        teachers=options.teachers,
        **keys,
        without=options.without or (),
        wait=options.wait,
    )
    return find("label_silos")(pipeline, settings, request, unit=options.unit)


def settings_for(args: Sequence[str], preset: Preset) -> LabelSettings:
    """Return the settings of `pate label` for the future votes of a recipe's own teachers.

    Raises:
        ValueError: in one line, if nothing could be released with these settings.
    """
    parser, parsed = _own_votes(args, preset)
    return from_options(LabelSettings, parser.instantiate(parsed))


def read_content(args: Sequence[str], preset: Preset) -> Json:
    """Return the settings of `pate label` as plain data. Ends with status 2 on a wrong option."""
    return settings_of(*_own_votes(args, preset))


def _own_votes(args: Sequence[str], preset: Preset) -> tuple[CommandParser, Namespace]:
    """Return the parser and the parsed options of labels by the votes of the run's own teachers."""
    origin = votes_from_where(args, preset)
    require(
        origin is None, "labels by the votes of the recipe's own teachers", option=f"--{origin}"
    )
    parser = _parser(None)
    return parser, parse(parser, args, preset)


def _parser(origin: str | None) -> CommandParser:
    load_plugins()  # also those that were installed after the parser was built
    return _built_parser(origin)


@cache  # `pate run` asks several times
def _built_parser(origin: str | None) -> CommandParser:
    parser = make_parser(
        "label", label, skip={"run", "votes", "settings", "total"}, settings=LabelSettings
    )
    add_votes(parser, origin)
    return parser
