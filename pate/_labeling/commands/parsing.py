"""The command line that all commands share, from their words to the arguments of a typed function.

First the layout of `--help`: required options, then paragraphs and an example. Then the refusal of
a setting, and the parser, whose short errors suggest the meant option or class. Then the options,
files and functions that parsers are made of.
"""

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from enum import Enum
from functools import wraps
from inspect import getdoc, signature
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, NoReturn, Self, TypeVar, Union, get_args, get_origin

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace
from jsonargparse._parameter_resolvers import get_signature_parameters
from jsonargparse._typehints import ActionTypeHint, NestedArg  # type: ignore[attr-defined]

from pate._core.files.reading import load_yaml
from pate._core.settings import SettingsParser
from pate._core.validation import did_you_mean, one_line, require
from pate._labeling.aggregators.base import load_plugins
from pate._labeling.commands.places import OPTION, OWNER, with_own_code
from pate._labeling.commands.table import commands
from pate._labeling.data.source import DataSource

_GENERAL = ("help", "config", "print_config")
_MOST_LETTERS = 800  # of the known subclasses of an option
_WIDEST = 100  # columns


def example(name: str) -> str | None:
    """Return the end of a command's help: own code, and an example in lines that a shell joins."""
    if name not in commands():
        return None
    lines = textwrap.wrap(
        commands()[name].example, 72, break_long_words=False, break_on_hyphens=False
    )
    example = "example:\n  " + " \\\n    ".join(lines)
    return f"{OPTION} FOLDER: {_CODE}.\n{OWNER}: {_SCREEN}.\n\n{example}"


_SCREEN = "print what concerns private records, too, which otherwise only private/notes.txt has"
_CODE = "modules of your own, which class paths in settings name"


class BriefHelp(DefaultHelpFormatter):
    """Help with a brief usage, required options first and general options last."""

    def __init__(self, *args: Any, **options: Any) -> None:
        width = min(shutil.get_terminal_size().columns - 2, _WIDEST)
        super().__init__(*args, **{"width": width} | options)  # type: ignore[no-untyped-call, unused-ignore]
        # jsonargparse's name of a subcommand
        self._prog = self._prog.replace(" [options]", "")

    def start_section(self, heading: str | None) -> None:
        """Begin a group of options under a title within the width."""
        # a colon follows
        super().start_section(heading and textwrap.fill(heading, self._width - 1))

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], *args: Any, **options: Any
    ) -> None:
        """Add a line with the required options, and one word for all others."""
        others = argparse.Action([], "options", nargs="?")
        required = [action for action in actions if action.required]
        super().add_usage(usage, [*required, others], *args, **options)

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        """Add options: the required ones first, the general ones last."""
        super().add_arguments(
            sorted(
                actions, key=lambda action: 2 if action.dest in _GENERAL else not action.required
            )
        )

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap each paragraph by itself, and each line that is indented."""
        joined = re.sub(r"(?<!\n)\n(?![\n ])", " ", text.strip().replace("``", ""))
        lines = (textwrap.fill(line, width, break_on_hyphens=False) for line in joined.split("\n"))
        return textwrap.indent("\n".join(lines), indent) + "\n"

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        # Path, not <class 'Path'>; REPLACE_RECORD, not NeighboringRelation.REPLACE_RECORD
        text = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text)
        return re.sub(r"\b[A-Z]\w+\.([A-Z][A-Z_]+)\b", r"\1", text)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = (super()._get_help_string(action) or "").replace("``", "")
        head, listed, names = text.partition(", known subclasses: ")
        # torch and Lightning may have hundreds
        return f"{head})" if len(names) > _MOST_LETTERS and listed else text


class SettingError(TypeError):
    """A setting with a value that it does not take, or one that a class does not have.

    Attributes:
        field: the setting, with those that it is within.
        expected: what it takes.
        more: the rest of the line: the value, its reason, and what may be meant.
        kind: the class that lacks the setting. None if it is there.
    """

    def __init__(self, field: str, expected: str, more: str, kind: type | None = None) -> None:
        self.field, self.expected, self.more, self.kind = field, expected, more, kind
        of = f"got --{field}" if kind else f"for --{field}"
        super().__init__(f"Expected {expected}{',' * bool(kind)} {of}{more}")

    @classmethod
    def unknown(cls, field: str, kind: type, known: Sequence[str]) -> Self:
        """Return the refusal of a setting that a class does not have."""
        expected = f"a setting of {kind.__name__} ({', '.join(known)})"
        return cls(field, expected, did_you_mean(field, known), kind)

    @classmethod
    def of(cls, action: Any, value: Any, error: BaseException) -> Self:
        """Return the refusal of the value of an option, or of a setting within it."""
        causes = [*_causes(error)]
        within = next((each for each in causes if isinstance(each, cls)), None)
        if within is not None:
            return cls(f"{action.dest}.{within.field}", within.expected, within.more, within.kind)
        kinds = [*dict.fromkeys(_kinds(action._typehint))]
        if isinstance(value, NestedArg):
            return cls(action.dest, "a class", f", which takes these settings, got {value.key}")
        told = [word for kind in kinds for word in _names(kind) or [_KINDS.get(kind, _CLASS)]]
        names = [name for kind in kinds for name in _names(kind)]
        missing = next((each for each in causes if isinstance(each, ImportError)), None)
        reason = f" ({missing})" if missing is not None else ""
        meant = _meant_name(value, names, [*_classes(action._typehint)])
        expected = " or ".join(filter(None, [", ".join(told[:-1]), told[-1]]))
        return cls(action.dest, expected, f", got {value}{reason}{meant}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


_KINDS: dict[Any, str] = {
    float: "a finite number",
    int: "a whole number",
    bool: "true or false",
    str: "a text",
    list: "a list such as [a,b]",
    tuple: "a list such as [a,b]",
    dict: "a mapping such as {a: b}",
    Path: "a path",
}
_CLASS = "a class, by name or import path,"


def _kinds(hint: Any) -> Iterator[Any]:
    """Yield the types of a declaration, without None."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        for part in get_args(hint):
            yield from _kinds(part)
    elif hint is not NoneType:
        yield hint if origin in (None, Literal) else origin


def _names(kind: Any) -> list[str]:
    """Return the values of a choice by name; none of other types."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [*kind.__members__]
    return [*map(str, get_args(kind))] if get_origin(kind) is Literal else []


def _classes(hint: Any) -> Iterator[type]:
    """Yield the classes of a declaration, also of the items of its lists."""
    if isinstance(hint, type) and hint not in _KINDS:
        yield hint
    for part in get_args(hint):
        yield from _classes(part)


def _meant_name(value: Any, names: Sequence[str], classes: Sequence[type]) -> str:
    """Return what a value may mean, or the first part of a list that is not known."""
    for each in value if isinstance(value, list) else [value]:
        name = str(each.get("class_path") if isinstance(each, Mapping) else each)
        known = names or _class_names(name, classes)
        if name not in known and (meant := did_you_mean(name, known)):
            return meant
    return ""


def _class_names(value: str, bases: Iterable[type]) -> set[str]:
    """Return the names of classes and functions that a value may be a misspelling of."""
    module = value.rpartition(".")[0]
    if module:
        known = sys.modules.get(module)
        return (
            {f"{module}.{key}" for key, each in vars(known).items() if callable(each)}
            if known
            else set()
        )
    return {kind.__name__ for base in bases for kind in _subclasses(base)}


def _subclasses(base: type) -> list[type]:
    direct: list[type] = type.__subclasses__(base)
    return [kind for subclass in direct for kind in (subclass, *_subclasses(subclass))]


def _checked(action: Any, check: Callable[..., Any]) -> Callable[..., Any]:
    """Return the check of an option's type, with a refusal that knows field, value and reason."""

    @wraps(check)
    def checked(value: Any, *args: Any, **options: Any) -> Any:
        try:
            return check(value, *args, **options)
        except (TypeError, ValueError) as error:
            raise SettingError.of(action, value, error) from error

    checked.is_ours = True  # type: ignore[attr-defined]
    return checked


class CommandParser(SettingsParser):
    """A parser that refuses abbreviated options and suggests names for unknown ones.

    Attributes:
        elsewhere: returns the requirement that an unknown option would meet elsewhere, if any.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, "formatter_class": BriefHelp, **options})
        self._made: type | None = None
        self.elsewhere: Callable[[str], str | None] = lambda option: None
        if self.epilog is None:
            self.epilog = example(self.prog.removeprefix("pate "))

    @property
    def shown(self) -> ArgumentParser:
        """The parser of the options that users see: of the only subcommand if any, or this one."""
        if self._subcommands_action is None:
            return self
        (parser,) = self._subcommands_action.choices.values()
        return parser

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *rest: Any, **settings: Any
    ) -> Namespace:
        """Return the parsed options.

        An unknown option is reported before a missing one, because it may be its misspelling.
        """
        self._check_by_ourselves()
        if args is None:
            return super().parse_args(args, *rest, **settings)
        options = self.shown._option_string_actions
        for file in _files_of_settings(args or ()):
            _content(file)  # jsonargparse would wait for a pipe, and print what is no settings
        bare = args[0] if args else ""
        if bare != "run" and f"--{bare}" in options and not Path(bare).exists():
            self.error(f"Expected --{bare}, got {bare}")
        words = [*_with_values(args, options)]
        # a command that reads a run alone takes it by its place, too
        places = [action for action in self._actions if not action.option_strings]
        if "--run" in options and not places and bare and not bare.startswith("-"):
            words = ["--run", *words]
        return super().parse_args(words, *rest, **settings)

    def _parse_known_args_internal(self, *args: Any, **options: Any) -> tuple[Any, list[str]]:
        """Return the parsed words, and end with status 2 on one that names no option."""
        parsed, unknown = super()._parse_known_args_internal(*args, **options)
        for word in unknown:
            if word.startswith("--"):
                self._refuse(word.partition("=")[0].removeprefix("--"))
        return parsed, unknown

    def instantiate(self, *args: Any, **settings: Any) -> Namespace:
        """Return the parsed options as objects. Raises ``ValueError`` in one line."""
        try:
            return super().instantiate(*args, **settings)
        except ValueError as error:
            refused = next((e for e in _causes(error) if isinstance(e, SettingError)), error)
            raise ValueError(one_line(str(refused))) from None

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, and raise if the pipe is closed, which argparse would ignore."""
        stream = sys.stderr if file is None else file
        if message and stream is not None:
            stream.write(message)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """End with status 2 and the message; without exits on errors, raise ``ArgumentError``."""
        if not self.exit_on_error:
            super().error(message, ex)
        refused = (
            next((e for e in _causes(ex) if isinstance(e, SettingError)), None) if ex else None
        )
        name, listing = self.shown.prog.replace(" [options]", ""), "--help"
        if refused is not None:
            message = str(refused)
            if refused.kind is not None:
                listing = f"--{refused.field.rpartition('.')[0]}.help {refused.kind.__name__}"
        sys.stderr.write(
            f"{name}: {one_line(with_own_code(message))} (`{name} {listing}` lists them)\n"
        )
        self.exit(2)

    def add_class_arguments(self, theclass: Any, *args: Any, **options: Any) -> list[str]:
        """Add the arguments of a class, which a refusal may name."""
        self._made = theclass if isinstance(theclass, type) else None
        return super().add_class_arguments(theclass, *args, **options)

    def _apply_actions(self, cfg: Any, *args: Any, **options: Any) -> Namespace:
        """Return the checked settings of a file, an object or a class."""
        self._check_by_ourselves()
        content = vars(cfg) if isinstance(cfg, Namespace) else cfg
        for name in content if isinstance(content, dict) and not any(args[:1]) else ():
            if not self._accepts(name):
                self._refuse(name)
        return super()._apply_actions(cfg, *args, **options)

    def _check_by_ourselves(self) -> None:
        """Let each option tell field, value and reason of what it refuses."""
        for action in self._actions:
            check: Any = getattr(action, "_check_type", None)
            if isinstance(action, ActionTypeHint) and not hasattr(check, "is_ours"):
                vars(action)["_check_type"] = _checked(action, check)

    def _refuse(self, name: str) -> None:
        """Refuse an unknown setting: of the class whose parser this is, or of the command."""
        needed = self.elsewhere("--" + name.partition(".")[0])
        require(needed is None, f"{needed}", option=f"--{name}")
        if self._made is not None and not self.exit_on_error:
            raise SettingError.unknown(name, self._made, [*signature(self._made).parameters])
        option, options = f"--{name}", self.shown._option_string_actions
        self.error(f"Expected a known option, got {option}{did_you_mean(option, options)}")


def _with_values(words: Sequence[str], options: Mapping[str, argparse.Action]) -> Iterator[str]:
    """Yield words with and without the values of switches, as their options take them.

    Some switches are flags, others settings in files of YAML, where they are true or false. A user
    need not know which.
    """
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        action, follows = options.get(name), rest[0] if rest else ""
        if getattr(action, "_typehint", None) is bool and not equals:
            yield f"{name}={rest.pop(0) if follows in _SWITCHES else 'true'}"
        elif isinstance(action, argparse._StoreTrueAction) and (value or follows) in _SWITCHES:
            if (value or rest.pop(0)) == "true":
                yield name
        else:
            yield name + equals + value


_SWITCHES = ("true", "false")


Kind = TypeVar("Kind")


FLAG: Mapping[str, Any] = {"action": "store_true"}
"""The arguments of an option without a value."""


def run_command(
    name: str,
    function: Callable[..., Any],
    args: Sequence[str],
    grouped: Mapping[str, type] = MappingProxyType({}),
    special: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> None:
    """Call ``function`` with the parsed arguments of the command ``name``, which writes no run.

    Its docstring describes the command and its options. Parameters before a ``*`` have no names on
    the command line. The parameters in ``grouped`` are dataclasses. Their fields become options of
    the command. Those in ``special``, by option, have arguments of argparse, such as `FLAG`.
    """
    others = {option.lstrip("-"): option for option in special}
    parser = function_parser(name, function, {*grouped, *others}, *grouped.values())
    owners: list[Callable[..., Any]] = [function, *grouped.values()]
    for owner in owners:
        for parameter in get_signature_parameters(owner):
            if option := others.get(parameter.name):
                parser.add_argument(option, **{"help": parameter.doc, **special[option]})
    options = parser.instantiate(parser.parse_args(list(args)))
    arguments = {key: value for key, value in options.items() if key != "config"}
    for name, cls in grouped.items():
        arguments[name] = cls(
            **{field: arguments.pop(field) for field in signature(cls).parameters}
        )
    function(**arguments)


def function_parser(
    name: str, function: Callable[..., Any], skip: set[str | int], *kinds: type
) -> CommandParser:
    """Return the parser of a command that calls a function.

    Args:
        name: the command.
        function: the function; its docstring up to "Args:" describes the command.
        skip: parameters of the function that are not options.
        kinds: dataclasses with further options as fields.
    """
    parser = new_parser(name, (getdoc(function) or "").split("\n\nArgs:")[0])
    owners: list[Callable[..., Any]] = [function, *kinds]
    parameters = [each for owner in owners for each in signature(owner).parameters.values()]
    if any("Aggregator" in str(parameter.annotation) for parameter in parameters):
        load_plugins()  # gives plug-ins of other packages short names
    parser.add_function_arguments(function, as_group=False, as_positional=True, skip=skip)
    for kind in kinds:
        fields = skip & {*signature(kind).parameters}
        parser.add_class_arguments(kind, as_group=False, skip=fields)
    return parser


def new_parser(name: str, summary: str) -> CommandParser:
    """Return the parser of the command ``name``, so far with ``--config`` only."""
    parser = CommandParser(prog=f"pate {name}", description=summary)
    parser.add_argument(
        "--config", action="config", help="YAML file of settings; may be given several times"
    )
    return parser


def add_options(parser: ArgumentParser, options: Mapping[str, Mapping[str, Any]]) -> None:
    """Add ``options`` by their names, each with its arguments of argparse."""
    for name, arguments in options.items():
        parser.add_argument(name, **arguments)


RUN: Mapping[str, Mapping[str, Any]] = {
    "--run": {"type": Path, "required": True, "help": "folder of the run"},
    "--overwrite": {
        **FLAG,
        "help": "redo a stage with changed settings, deleting its outputs",
    },
}
"""The options of a command that writes a run."""
DATA: Mapping[str, Mapping[str, Any]] = {
    "--data": {"type": DataSource, "required": True, "help": "source of the records"},
    "--ledger": {
        "type": Path | None,
        "default": None,
        "help": "ledger of the private data set, shared by all runs on it; by default one next"
        " to the data or, if there can be none, in the run's folder",
    },
}
"""The settings of ``data.yaml``."""


def with_saved(args: Sequence[str], name: str | Path) -> list[str]:
    """Return arguments, below a file of settings that the run has, if it has it."""
    run = run_folder(args)
    if run is None or not (run / name).is_file():
        return [*args]
    return ["--config", str(run / name), *args]


def with_saved_data(args: Sequence[str]) -> list[str]:
    """Return arguments, below the run's ``data.yaml``, unless options or files name data.

    Settings that such data leave out have their defaults, not the values of the run.
    """
    return [*args] if named_before("data", args) is not None else with_saved(args, "data.yaml")


def named_before(name: str, args: Sequence[str]) -> Any:
    """Return a setting from options, else from files, before all others are parsed. None without.

    The setting decides how others are parsed. Dots in the name lead into groups of settings.
    """
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument(f"--{name}", dest="named", nargs="?", const="")
    words, _ = early.parse_known_args([*args])
    values: list[Any] = [_content(file) for file in _files_of_settings(args)]
    for part in name.split("."):
        values = [value.get(part) if isinstance(value, dict) else None for value in values]
    return next((value for value in (words.named, *reversed(values)) if value is not None), None)


def _files_of_settings(args: Sequence[str]) -> list[Path]:
    """Return the files that ``--config`` names."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config", action="append", nargs="?", default=[], type=Path)
    return [file for file in early.parse_known_args([*args])[0].config if file is not None]


def from_options(kind: type[Kind], options: Namespace) -> Kind:
    """Return the dataclass ``kind`` made from the options of a command, else of defaults."""
    return kind(
        **{
            field.name: options[field.name]
            for field in fields(kind)  # type: ignore[arg-type]
            if field.name in options
        }
    )


def settings_of(parser: CommandParser, parsed: Namespace) -> dict[str, Any]:
    """Return parsed settings as plain data, without ``run`` and ``overwrite``."""
    return {
        name: value
        for name, value in parser.plain(parsed).items()
        if name not in ("run", "overwrite")
    }


def _content(file: Path) -> dict[str, Any]:
    """Return the settings in a file. Raises ``ValueError`` if it is no YAML, or has no names."""
    with suppress(OSError):  # the parser reports the fault
        content = load_yaml(file)
        fits = isinstance(content, dict | None)
        require(fits, f"settings with names in {file}", kind=type(content).__name__)
        return content or {}
    return {}


def shows_help(args: Sequence[str]) -> bool:
    """Return whether arguments ask for help."""
    return any(word in ("-h", "--help") for word in args)


def run_folder(args: Sequence[str]) -> Path | None:
    """Return the folder of the run that options, or else files, name. None without."""
    named = named_before("run", args)
    return Path(named) if isinstance(named, str) and named else None
