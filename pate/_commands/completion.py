"""The command `pate completion`: a script for a shell to complete commands, options and values."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import shtab
from jsonargparse import capture_parser

from pate._commands.suggestions import CommandParser
from pate.aggregators import registered

# the options of these commands are options of `pate run`, after the name of a part of the recipe
_PARTS = {"teachers": "teachers fit", "label": "label", "student": "student fit"}
_NO_SETTINGS = (
    "--help",
    "--config",
    "--print_config",
    "--run",
    "--overwrite",
    "--data",
    "--ledger",
)


def main(args: Sequence[str], commands: Mapping[str, tuple[str, str, str]]) -> None:
    """Run `pate completion`.

    Args:
        args: the arguments.
        commands: the module, the function and the summary of each command.
    """
    parser = CommandParser(
        prog="pate completion",
        description="Print a script with which a shell completes commands, options and their"
        " values.\n\nIt follows from the `--help` of all commands, so make it again after an"
        " update.",
        print_config=None,
    )
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="the shell")
    shell = parser.parse_args(list(args)).shell
    print(shtab.complete(_tree(commands), shell))


def _tree(commands: Mapping[str, tuple[str, str, str]]) -> argparse.ArgumentParser:
    """Return a parser of all commands; each option has its names, its help and its choices."""
    others = {name: entry for name, entry in commands.items() if name != "completion"}
    actions = {
        name: _actions(getattr(import_module(f"pate._commands.{m}"), f))
        for name, (m, f, _) in others.items()
    }
    root = argparse.ArgumentParser("pate", add_help=False)
    parsers, levels = {"": root}, {"": root.add_subparsers()}
    for name, (_, _, summary) in commands.items():
        group, _, last = name.rpartition(" ")
        if group not in levels:
            # `silo` is a command as well as the group of `silo key` and `silo relay`
            text = commands[group][2] if group in commands else ""
            parsers[group] = levels[""].add_parser(group, add_help=False, help=text)
            levels[group] = parsers[group].add_subparsers()
        if name not in parsers:
            parsers[name] = levels[group].add_parser(last, add_help=False, help=summary)
        parser = parsers[name]
        if name == "completion":
            parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)
        for action in actions.get(name, ()):
            _add(parser, action)
        for part, stage in _PARTS.items() if name == "run" else ():
            for action in actions[stage]:
                if action.option_strings and action.option_strings[-1] not in _NO_SETTINGS:
                    _add(parser, action, part)
    return root


def _actions(command: Callable[[Sequence[str]], Any]) -> list[argparse.Action]:
    """Return the options of a command without running it."""
    parser = capture_parser(command, ["--help"])  # help lists the options of all modes
    assert isinstance(parser, CommandParser)
    return list(parser.shown._actions)


def _add(parser: argparse.ArgumentParser, action: argparse.Action, part: str = "") -> None:
    """Add an option, after the name of a ``part`` of a recipe, except ``+`` and ``.help``."""
    names = [
        name
        for name in action.option_strings
        if name.startswith("--") and not name.endswith(("+", ".help"))
    ]
    if action.help == argparse.SUPPRESS or (action.option_strings and not names):
        return
    if part:
        names = [f"--{part}.{name.removeprefix('--')}" for name in names]
    if action.nargs == 0 or action.dest == "print_config":
        parser.add_argument(*names, action="store_true")
        return
    added = parser.add_argument(*(names or [action.dest]))
    if choices := _choices(action):
        added.choices = choices
    else:
        added.complete = shtab.FILE  # type: ignore[attr-defined]


def _choices(action: argparse.Action) -> list[str]:
    """Return the values of an option: names of aggregators, or choices shown as {one,another}."""
    if "--aggregator" in action.option_strings:
        return sorted(registered())
    shown = str(action.metavar or "")
    return [
        str(choice)
        for choice in action.choices or (shown[1:-1].split(",") if shown.startswith("{") else ())
    ]
