"""The options of `pate label` that bring votes from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from pate._commands.parsing import Preset, parse, with_saved_data
from pate._validation import expect
from pate.data._source import DataSource

_OPTIONS = ("votes", "unit", "data", "ledger", "teachers", "public_keys", "signing_key", "without")


def add_votes(parser: ArgumentParser) -> None:
    """Add the options of votes from elsewhere."""
    parser.add_argument(
        "--votes",
        type=Path | None,
        default=None,
        help="votes that were cast elsewhere, in place of those of `pate teachers vote`: an .npz with ids [N],"
        " label_names [C], either ballots [N, T, C], scores [N, T, C] or counts [N, C] with num_teachers, and features"
        " [N, F] if the aggregator needs them, or a folder with one such file for each silo. PRIVATE; copied into the"
        " run's private folder",
    )
    parser.add_argument(
        "--unit",
        type=str | None,
        default=None,
        help="with --votes or --silos: the statement's word for what reaches one teacher alone (default: the run's, or"
        " record)",
    )
    parser.add_argument(
        "--data",
        type=DataSource | None,
        default=None,
        help="with --votes or --silos: source of the public and test records for a student, as in --config data.yaml;"
        " private ones are not needed",
    )
    parser.add_argument(
        "--ledger",
        type=Path | None,
        default=None,
        help="with --votes: ledger of the private data behind the votes, shared by all runs on them; None for"
        " votes.ledger.sqlite beside votes.npz, and ledger.sqlite in a folder; with --silos for the run's own",
    )
    parser.add_argument(
        "--silos",
        type=Path | None,
        default=None,
        help="in place of --votes: a folder through which silos send what only adds up to noisy counts, by `pate silo`",
    )
    parser.add_argument(
        "--teachers",
        type=dict[str, int] | None,
        default=None,
        help="with --silos: the public number of teachers of each, as in --teachers.north 60 --teachers.south 80",
    )
    parser.add_argument(
        "--public_keys",
        type=Path | None,
        default=None,
        help="with --silos: a folder with NAME.pub, the public key of each silo, that `pate silo key` wrote",
    )
    parser.add_argument(
        "--signing_key",
        type=Path | None,
        default=None,
        help="with --silos: the server's own key, that `pate silo key` wrote, by which it signs. PRIVATE",
    )
    parser.add_argument(
        "--without",
        type=list[str] | None,
        default=None,
        help="with --silos: names of silos that dropped out, which are left out of the sum, such as [west]",
    )
    parser.add_argument(
        "--wait",
        type=float | None,
        default=None,
        help="with --silos: seconds to wait for others, 0 to do what can be done now; None for as long as it takes",
    )


def parse_with_votes(parser: ArgumentParser, args: Sequence[str], preset: Preset) -> Namespace:
    """Return the parsed options as `parse` does; for votes from elsewhere, completed by the data that the run has.

    Raises ``ValueError`` if options of votes are given without votes.
    """
    parsed = parse(parser, args, preset)
    if parsed.silos is not None:
        expect(parsed.votes is None, "--votes or --silos, not both", votes=str(parsed.votes))
        expect(parsed.teachers, "--teachers with a number for each silo", teachers=parsed.teachers)
        keys = {"public_keys": parsed.public_keys, "signing_key": parsed.signing_key}
        expect(None not in keys.values(), "--public_keys of the silos and the server's --signing_key", **keys)
    if parsed.votes is not None or parsed.silos is not None:
        return parse(parser, args, with_saved_data(args, preset))
    votes_options = [f"--{name}" for name in _OPTIONS if parsed.get(name) is not None]
    expect(not votes_options, "--votes with options that are for votes from elsewhere", options=votes_options)
    return parsed
