"""The command `pate completion`: a script with which a shell completes commands, options and what they may be."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from jsonargparse import ArgumentParser, capture_parser

from pate.commands.help import BriefHelp, choices_of, example
from pate.commands.mistakes import OneLineParser

# of `pate run`: the options of these commands, behind the name of a part of the recipe
_PARTS = {"teachers": "teachers fit", "label": "label", "student": "student fit"}
_NO_SETTINGS = ("--help", "--config", "--print_config", "--run", "--overwrite", "--data", "--ledger")

_SCRIPT = """\
# bash completion of `pate`, made by `pate completion bash`
_pate() {
    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command options=""
    # bash takes --x=y for three words
    if [[ $word == "=" ]]; then word=""
    elif [[ $before == "=" ]]; then before="${COMP_WORDS[COMP_CWORD-2]}"; fi
    if (( COMP_CWORD == 1 )); then
        COMPREPLY=($(compgen -W "%(first)s" -- "$word")); return
    fi
    command="${COMP_WORDS[1]}"
    case "$command" in
%(groups)s
    esac
    case "$command $before" in
%(values)s
    esac
    case "$command" in
%(options)s
    esac
    if [[ $word == -* ]]; then COMPREPLY=($(compgen -W "$options" -- "$word")); fi
}
complete -o default -F _pate pate
"""


def main(args: Sequence[str], commands: Mapping[str, tuple[str, str, str]]) -> None:
    """Run `pate completion`.

    Args:
        args: the arguments.
        commands: the module, the function and the summary of each command.
    """
    parser = OneLineParser(
        prog="pate completion",
        description="Print a script with which bash completes commands, options and what they may be.\n\nIt is made"
        " from what `--help` of all commands lists, and so is made again after an update.",
        epilog=example("completion"),
        formatter_class=BriefHelp,
        print_config=None,
    )
    parser.add_argument("shell", choices=["bash"], help="the shell")
    parser.parse_args(list(args))
    others = {name: entry for name, entry in commands.items() if name != "completion"}
    options = {name: _options(getattr(import_module(f"pate.commands.{m}"), f)) for name, (m, f, _) in others.items()}
    for part, stage in _PARTS.items():
        own = {name: values for name, values in options[stage].items() if name not in _NO_SETTINGS}
        options["run"] |= {f"--{part}.{name.removeprefix('--')}": values for name, values in own.items()}
    print(bash_script({"completion": {}, **options}), end="")


def bash_script(options: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Return the script for commands with their options, and what each option may be if that is known."""
    groups: dict[str, list[str]] = {}
    for name in options:
        first, _, second = name.partition(" ")
        groups.setdefault(first, []).extend([second] if second else [])
    inner = [
        f'        {first}) if (( COMP_CWORD == 2 )); then COMPREPLY=($(compgen -W "{" ".join(each)}" -- "$word"));'
        f' return; fi; command="{first} ${{COMP_WORDS[2]}}" ;;'
        for first, each in groups.items()
        if each
    ]
    values = [
        f'        "{name} {option}") COMPREPLY=($(compgen -W "{" ".join(found)}" -- "$word")); return ;;'
        for name, each in options.items()
        for option, found in each.items()
        if found
    ]
    listed = [f'        "{name}") options="{" ".join(each)}" ;;' for name, each in options.items()]
    parts = {"first": [" ".join(groups)], "groups": inner, "values": values, "options": listed}
    return _SCRIPT % {name: "\n".join(lines) for name, lines in parts.items()}


def _options(command: Callable[[Sequence[str]], Any]) -> dict[str, tuple[str, ...]]:
    """Return the options of a command, and what each may be if that is known; the command does not run."""
    parser: ArgumentParser = capture_parser(command, [])
    if parser._subcommands_action is not None:
        (parser,) = parser._subcommands_action.choices.values()
    return {name: choices_of(action) for action in parser._actions for name in _written(action)}


def _written(action: argparse.Action) -> Iterable[str]:
    """Yield the long names of an option, but for those that append or describe."""
    return (name for name in action.option_strings if name.startswith("--") and not name.endswith(("+", ".help")))
