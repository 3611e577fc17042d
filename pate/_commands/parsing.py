"""Parsing for all commands: from YAML files and options to the arguments of a typed function."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import getdoc, signature
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import yaml
from jsonargparse import ArgumentParser, Namespace
from jsonargparse._parameter_resolvers import get_signature_parameters

from pate._commands.suggestions import CommandParser
from pate._files import read_yaml
from pate.aggregators import load_plugins
from pate.data._source import DataSource

Kind = TypeVar("Kind")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Settings of a command that its options override.

    Attributes:
        files: YAML files of settings, the later over the earlier.
        run: folder of the run.
        overwrite: whether a stage with changed settings runs again.
    """

    files: tuple[Path, ...] = ()
    run: Path | None = None
    overwrite: bool = False

    def options(self) -> list[str]:
        """Return the preset as options, to go before all others.

        Only a command line gives files and options one order of precedence: in
        ``default_config_files`` jsonargparse does not know short names of classes, `parse_object`
        refuses settings that a later option would complete, and LightningCLI takes its subcommand
        from the command line.
        """
        files = [word for file in self.files for word in ("--config", str(file))]
        run = [] if self.run is None else ["--run", str(self.run)]
        return [*files, *run, *(["--overwrite"] if self.overwrite else [])]


FLAG: Mapping[str, Any] = {"action": "store_true"}
"""The arguments of an option without a value."""
NO_PRESET = Preset()
"""The preset of a command that has only its options."""


def run_command(
    name: str,
    function: Callable[..., Any],
    args: Sequence[str],
    grouped: Mapping[str, type] | None = None,
    special: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> None:
    """Call ``function`` with the parsed arguments of the command ``name``, which writes no run.

    Its docstring describes the command and its options. Parameters before a ``*`` have no names on
    the command line. The parameters in ``grouped`` are dataclasses; their fields become options of
    the command. Those in ``special``, by option, have arguments of argparse, such as `FLAG`.
    """
    groups = grouped or {}
    others = {option.lstrip("-"): option for option in special}
    parser = _parser(name, function, {*groups, *others}, *groups.values())
    for parameter in get_signature_parameters(function):
        if option := others.get(parameter.name):
            parser.add_argument(option, **{"help": parameter.doc, **special[option]})
    options = parser.instantiate(parser.parse_args(list(args)))
    arguments = {key: value for key, value in options.items() if key != "config"}
    for name, cls in groups.items():
        arguments[name] = cls(
            **{field: arguments.pop(field) for field in signature(cls).parameters}
        )
    function(**arguments)


def make_parser(
    name: str, function: Callable[..., Any], *, skip: set[str | int], settings: type | None = None
) -> CommandParser:
    """Return the parser of a command on a run.

    Args:
        name: the command.
        function: the function that it calls; its docstring describes the command.
        skip: parameters of the function that are not options.
        settings: a dataclass with further options as fields.
    """
    parser = _parser(name, function, skip, *(() if settings is None else (settings,)))
    add_run(parser)
    return parser


def new_parser(name: str, summary: str) -> CommandParser:
    """Return the parser of the command ``name``, so far with ``--config`` only."""
    parser = CommandParser(prog=f"pate {name}", description=summary)
    parser.add_argument(
        "--config", action="config", help="YAML file of settings; may be given several times"
    )
    return parser


def add_run(parser: ArgumentParser) -> None:
    """Add the options ``--run`` and ``--overwrite``."""
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="redo a stage with changed settings, deleting its outputs",
    )


def _parser(
    name: str, function: Callable[..., Any], skip: set[str | int], *kinds: type
) -> CommandParser:
    """Return a parser of ``function``'s parameters except ``skip``, and ``kinds``' fields."""
    # docstrings describe the command up to "Args:"
    parser = new_parser(name, (getdoc(function) or "").split("\n\nArgs:")[0])
    _add_parameters(parser, function, skip=skip)
    for kind in kinds:
        _add_parameters(parser, kind, skip=set())
    return parser


def _add_parameters(
    parser: CommandParser, owner: Callable[..., Any], *, skip: set[str | int]
) -> None:
    if any(
        "Aggregator" in str(parameter.annotation)
        for parameter in signature(owner).parameters.values()
    ):
        load_plugins()  # gives plug-ins of other packages short names
    if isinstance(owner, type):
        parser.add_class_arguments(owner, as_group=False, skip=skip)
    else:
        parser.add_function_arguments(owner, as_group=False, as_positional=True, skip=skip)


def parse(parser: ArgumentParser, args: Sequence[str], preset: Preset) -> Namespace:
    """Return the parsed options ``args``, completed by ``preset``."""
    return parser.parse_args([*preset.options(), *args])


def with_saved(args: Sequence[str], preset: Preset, *saved: Path) -> Preset:
    """Return ``preset`` with the run's existing ``saved`` files of settings before its own."""
    run = run_folder(args) or preset.run
    files = [run / place for place in saved if (run / place).is_file()] if run is not None else []
    return replace(preset, files=(*files, *preset.files))


def with_saved_data(args: Sequence[str], preset: Preset) -> Preset:
    """Return ``preset`` with the run's ``data.yaml`` first, unless options or files name data.

    Settings that such data leave out have their defaults, not the values of the run.
    """
    named = named_before("data", args, preset) is not None
    return preset if named else with_saved(args, preset, Path("data.yaml"))


def named_before(name: str, args: Sequence[str], preset: Preset) -> Any:
    """Return a setting from options, else from files, before all others are parsed; None without.

    The setting decides how others are parsed. Dots in the name lead into groups of settings.
    """
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config", action="append", nargs="?", default=[])
    early.add_argument(f"--{name}", dest="named", nargs="?", const="")
    words, _ = early.parse_known_args([*preset.options(), *args])
    values: list[Any] = [_content(Path(file)) for file in words.config if file is not None]
    for part in name.split("."):
        values = [value.get(part) if isinstance(value, dict) else None for value in values]
    return next((value for value in (words.named, *reversed(values)) if value is not None), None)


def from_options(kind: type[Kind], options: Namespace) -> Kind:
    """Return the dataclass ``kind`` made from the options of a command, else of defaults."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: options[name] for name in names if name in options})


def settings_of(parser: CommandParser, parsed: Namespace) -> dict[str, Any]:
    """Return parsed settings as plain data, without ``run`` and ``overwrite``."""
    plain = parser.plain(parsed)
    return {name: value for name, value in plain.items() if name not in ("run", "overwrite")}


def _content(file: Path) -> dict[str, Any]:
    try:
        content = read_yaml(file.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}  # the parser reports the fault
    return content if isinstance(content, dict) else {}


def add_data(parser: ArgumentParser) -> None:
    """Add the settings of ``data.yaml``."""
    parser.add_argument("--data", type=DataSource, required=True, help="source of the records")
    parser.add_argument(
        "--ledger",
        type=Path | None,
        default=None,
        help="ledger of the private data set, shared by all runs on it; by default the file next to"
        " the data or, if there can be none, ledger.sqlite in the run's folder",
    )


def prints_and_exits(args: Sequence[str]) -> bool:
    """Return whether arguments ask for help or for settings in place of work."""
    return shows_help(args) or any(word.startswith("--print_config") for word in args)


def shows_help(args: Sequence[str]) -> bool:
    """Return whether arguments ask for help."""
    return any(word in ("-h", "--help") for word in args)


def run_folder(args: Sequence[str]) -> Path | None:
    """Return the value of ``--run`` in the arguments of a command, or None."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    # the command's own parser reports a missing value
    early.add_argument("--run", type=Path, nargs="?")
    return early.parse_known_args(args)[0].run
