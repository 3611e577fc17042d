"""What was wrong with a command line, in one line that says what was meant and where help is."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, Namespace

from pate.aggregators import Aggregator
from pate.data.features import FeatureMap
from pate.data.source import DataSource
from pate.networks import annotation_hint
from pate.validation import did_you_mean

_PLUGINS = (Aggregator, DataSource, FeatureMap)
_UNNAMED = 'in "<unicode string>", '  # YAML's name of a text
_LONGEST = 80  # letters of a value that was given
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
}


class OneLineParser(ArgumentParser):
    """A parser that takes options by their whole names, and says in one line what was wrong with them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **({"allow_abbrev": False} | options))
        self._instead: dict[str, str] = {}

    def may_lack(self, option: str, ways: str, *, shown: bool = False) -> None:
        """Let an error say in which ``ways`` a required option may be given; help shows it as none that is required."""
        self._instead[option] = ways
        if shown:
            self._option_string_actions[option].required = False

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *rest: Any, **options: Any
    ) -> Namespace:
        """Return what the options say.

        An option that there is not is named before one that is missing, for which it may have been meant.
        """
        if args is not None and self._subcommands_action is None:
            unknown = unknown_option(args, self._option_string_actions)
            if unknown is not None:
                self.error(f"unrecognized arguments: {unknown}")
        try:
            parsed: Namespace = super().parse_args(args, *rest, **options)
        except UnicodeDecodeError:
            self.error("Problems parsing config: a file that is no text")
        return parsed

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, and tell of a pipe that nobody reads, of which argparse keeps silent."""
        stream = sys.stderr if file is None else file
        if message and stream is not None:
            stream.write(message)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """End with status 2 and one line on stderr; raise ``ArgumentError`` if the parser does not exit on errors."""
        if not self.exit_on_error:
            super().error(message, ex)
        parser = getattr(ex, "subcommand_parser", None) or self
        name = parser.prog.replace(" [options]", "")
        said = in_words(message, parser._option_string_actions, subcommand=getattr(parser, "subcommand", None))
        said += annotation_hint(message)
        for option, ways in self._instead.items():
            said = re.sub(rf"{option}(?![\w.])", ways, said) if "got none" in said else said
        sys.stderr.write(f"{name}: {said} (`{name} --help` lists what there is)\n")
        self.exit(2)


def unknown_option(args: Iterable[str], options: Iterable[str]) -> str | None:
    """Return the first word of ``args`` that looks like an option and is none of ``options``; None if there is none.

    Settings of what an option names, ``--aggregator.k`` of ``--aggregator``, are options too.
    """
    known = set(options)
    groups = {option.rpartition(".")[0] for option in known if not option.endswith(".help")}
    for word in args:
        name = word.partition("=")[0].removesuffix("+")
        if not re.fullmatch(r"--[A-Za-z][\w.]*", name) or name in known:
            continue
        above = [name[: dot.start()] for dot in re.finditer(r"\.", name)]
        if not any(each in known and each not in groups for each in above):
            return name
    return None


def in_words(message: str, options: Iterable[str], *, subcommand: str | None = None) -> str:
    """Return an error of jsonargparse as one line in the words of a command line.

    Args:
        message: the error.
        options: the options of the command.
        subcommand: a name that jsonargparse puts before each key; None for none.
    """
    return " ".join(_said(message.strip(), _Place(tuple(options), subcommand)).split())


@dataclass(frozen=True)
class _Place:
    """Where in the settings an error is: behind which key, in which class, with which value."""

    options: tuple[str, ...]
    subcommand: str | None = None
    key: str = ""
    owner: str | None = None
    value: str | None = None

    def at(self, key: str) -> _Place:
        """Return the place of ``key`` within this one."""
        own = key.removeprefix(f"{self.subcommand}.") if self.subcommand else key
        return replace(self, key=f"{self.key}.{own}".strip("."))

    def got(self, value: str | None) -> _Place:
        """Return this place with the value that was given there, if it is known."""
        return replace(self, value=value or self.value)

    @property
    def option(self) -> str:
        """The option, as it is written on a command line."""
        return f"--{self.key}"

    @property
    def shown(self) -> str:
        """The value, cut where it is long."""
        value = " ".join((self.value or "another value").split())
        return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."


def _said(text: str, place: _Place) -> str:
    """Return ``text`` in words: its outer parts say where something is wrong, and the innermost what it is."""
    if found := re.match(r'Parser key "([^"]+)":\s*(.*)', text, re.DOTALL):
        return _said(found[2], place.at(found[1]))
    if found := re.match(r"Problem with given class_path '([^']+)':\s*(.*)", text, re.DOTALL):
        return _said(found[2], replace(place, owner=found[1].rpartition(".")[-1], value=found[1]))
    callable_ = r"Type .*? expects a function or a callable class: (.*?)(?:\. Got value: (.*))?$"
    if found := re.match(callable_, text, re.DOTALL):
        named = re.search(r"class_path='([^']+)'", found[2] or "")
        owner = named[1].rpartition(".")[-1] if named else place.owner
        return _said(found[1], replace(place.got(found[2]), owner=owner))
    union = r"Does not validate against.*?Errors:\s*(.*?)\s*Given value type:.*?Given value: (.*)"
    if found := re.match(union, text, re.DOTALL):
        return _of_several(found[1], place.got(found[2]))
    if text.startswith("- "):
        return _of_several(text, place)
    return _innermost(text, place)


def _of_several(text: str, place: _Place) -> str:
    """Return, in words, what is wrong by each of several types: what a value lacks, or else what may stand there."""
    errors = [each.strip() for each in re.split(r"(?:^|\n)\s*- ", text) if each.strip()]
    errors = [each for each in errors if "NoneType" not in each and not each.startswith("Expected a path")] or errors
    kinds = [_kind(each) for each in errors]
    wrong = [error for error, kind in zip(errors, kinds, strict=True) if kind is None]
    if wrong:
        return _said(wrong[0], place)
    return f"Expected {' or '.join(filter(None, kinds))} for {place.option}, got {place.shown}"


def _kind(error: str) -> str | None:
    """Return the words for the type that an error asks for; None if it is about something else."""
    if found := re.match(r"Expected an? <class '(\w+)'>", error):
        return _TYPES.get(found[1])
    if found := re.match(r"Expected a (?:typing\.)?Literal\[(.*)\]", error):
        return found[1].replace("'", "").replace(", ", " or ")
    if found := re.match(r"Expected a member of <enum '\w+'>: {([^}]*)}", error):
        return found[1].replace(",", " or ")
    return None


def _innermost(text: str, place: _Place) -> str:
    place = place.got(found[1] if (found := re.search(r"Got value: (.*)", text, re.DOTALL)) else None)
    if (kind := _kind(text)) is not None:
        return f"Expected {kind} for {place.option}, got {place.shown}"
    if found := re.match(r"unrecognized arguments: (--[\w.]+)", text):
        return f"Expected an option that there is, got {found[1]}{did_you_mean(found[1], place.options)}"
    if found := re.match(r"unrecognized arguments: (.*)", text):
        return f"Expected options with their values behind them, got {found[1]}"
    if found := re.match(r"argument (\S+?)(?:/\S+)?: expected one argument", text):
        return f"Expected a value for {found[1]}, got none"
    if found := re.match(r"the following arguments are required: (.*)", text):
        names = [name.strip() for name in found[1].split(",")]
        options = [place.at(name).option for name in names]
        # what stands in its place needs no name
        shown = [o if place.key or o in place.options else n for o, n in zip(options, names, strict=True)]
        return f"Expected {_joined(shown)}{f' of {place.owner}' if place.owner else ''}, got none"
    if re.match(r"Not of type \w+: .*NoneType", text):
        return f"Expected {place.option}, got none"
    if found := re.match(r"Option '([^']+)' is not accepted", text):
        what = f"a setting of {place.owner}" if place.owner else "settings that the command has"
        return f"Expected {what}, got {place.at(found[1]).option if place.key else found[1]}"
    if found := re.search(r"Expected a dot import path string: (\w+)", text):
        known = {kind.__name__ for base in _PLUGINS for kind in _subclasses(base)}
        return f"Expected a class by its name or its path, got {found[1]}{did_you_mean(found[1], known)}"
    if found := re.match(r"module '([\w.]+)' has no attribute '(\w+)'", text):
        known = {name for name, value in vars(sys.modules[found[1]]).items() if isinstance(value, type)}
        return f"Expected a class of {found[1]} for {place.option}, got {found[2]}{did_you_mean(found[2], known)}"
    if found := re.match(r"(No module named '[\w.]+')", text):
        return f"Expected a class that can be imported for {place.option}, got {place.shown}: {found[1]}"
    if found := re.match(r"Import path (\S+) does not correspond to a subclass of (\w+)", text):
        return f"Expected a kind of {found[2]} for {place.option}, got {found[1]}"
    if re.match(r"Expected an instantiatable class, but \S+ is abstract", text):
        # settings came first, and the class that came behind them, if any, is none that there is
        return f"Expected a class by its name or its path for {place.option}, before its settings, got none"
    if found := re.match(r"File does not exist: '?([^']*)'?", text):
        return f"Expected a file for {place.option}, got {found[1]}, which is not there"
    if found := re.match(r"(?:Problems parsing config|Unexpected config): (.*)", text, re.DOTALL):
        return f"Expected a YAML file of settings for --config, got {found[1].replace(_UNNAMED, '')}"
    return f"{text} ({place.option})" if place.key else text


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _subclasses(base: type) -> list[type]:
    own: list[type] = base.__subclasses__()
    return [kind for each in own for kind in (each, *_subclasses(each))]
