"""The options of `pate label` that bring votes from elsewhere."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pate._commands.parsing import Preset, named_before
from pate._commands.suggestions import CommandParser
from pate._validation import require
from pate.data._source import DataSource

HELP = "help"
"""The origin for which `add_votes` adds the options of all origins."""

_OPTIONS: dict[str, tuple[Any, str]] = {
    "unit": (
        str | None,
        "with --votes or --silos: the statement's word for the unit that reaches one teacher"
        " (default: the run's, or record)",
    ),
    "data": (
        DataSource | None,
        "with --votes or --silos: source of the public and test records for a student, as in"
        " --config data.yaml; private ones are not needed",
    ),
    "ledger": (
        Path | None,
        "with --votes: ledger of the private data behind the votes, shared by all runs on them;"
        " None for votes.ledger.sqlite next to votes.npz, and ledger.sqlite in a folder; with"
        " --silos for the run's own",
    ),
    "teachers": (
        dict[str, int] | None,
        "with --silos: the public number of teachers of each, as in --teachers.north 60"
        " --teachers.south 80",
    ),
    "public_keys": (
        Path | None,
        "with --silos: a folder with NAME.pub, the public key of each silo, from `pate silo key`",
    ),
    "signing_key": (
        Path | None,
        "with --silos: the server's own signing key, from `pate silo key`. PRIVATE",
    ),
    "without": (
        list[str] | None,
        "with --silos: names of silos that dropped out, such as [west], to leave out of the sum",
    ),
    "wait": (
        float | None,
        "with --silos: seconds to wait for others, 0 to do only the steps that are possible now;"
        " None for no limit",
    ),
}
_FROM: dict[str, tuple[str, ...]] = {"votes": ("unit", "data", "ledger"), "silos": tuple(_OPTIONS)}
"""The options of each origin of votes; the votes of the run's own teachers need none."""


def votes_from_where(args: Sequence[str], preset: Preset) -> str | None:
    """Return the option with the origin of votes, ``votes`` or ``silos``; None for own teachers.

    Raises ``ValueError`` if both are given.
    """
    named = {name: named_before(name, args, preset) for name in _FROM}
    named = {name: value for name, value in named.items() if value not in (None, "null")}
    require(len(named) < 2, "--votes or --silos, not both", **named)
    return next(iter(named), None)


def add_votes(parser: CommandParser, origin: str | None) -> None:
    """Add the options of votes from an ``origin``, or from all origins for a page of help."""
    parser.add_argument(
        "--votes",
        type=Path | None,
        default=None,
        help="votes cast elsewhere, in place of the votes of `pate teachers vote`: an .npz with ids"
        " [N], label_names [C], either ballots [N, T, C], scores [N, T, C] or counts [N, C] with"
        " num_teachers, and features [N, F] if the aggregator needs them, or a folder with one such"
        " file for each silo. PRIVATE; copied to the run's private folder",
    )
    parser.add_argument(
        "--silos",
        type=Path | None,
        default=None,
        help="in place of --votes: a folder through which silos send shares of noisy counts, by"
        " `pate silo`",
    )
    elsewhere = {}
    for name, (kind, text) in _OPTIONS.items():
        origins = [f"--{place}" for place, names in _FROM.items() if name in names]
        if origin == HELP or name in _FROM.get(origin or "", ()):
            parser.add_argument(f"--{name}", type=kind, default=None, help=text)
        else:
            elsewhere[f"--{name}"] = f"{' or '.join(origins)} with --{name}"
    parser.elsewhere = elsewhere.get
