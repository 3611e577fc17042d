"""The parser of all commands, with short errors that suggest the meant option or class."""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, Namespace
from jsonargparse._typehints import ActionTypeHint

from pate._commands.help import BriefHelp, example
from pate._settings import SettingsParser
from pate._validation import did_you_mean, one_line, require
from pate.aggregators import Aggregator
from pate.data import DataSource, FeatureMap


class CommandParser(SettingsParser):
    """A parser that refuses abbreviated options and suggests names for unknown ones.

    Attributes:
        elsewhere: returns the requirement that an unknown option would meet elsewhere, if any.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        brief: dict[str, Any] = {"allow_abbrev": False, "formatter_class": BriefHelp}
        super().__init__(*args, **(brief | options))
        self._words: tuple[str, ...] = ()
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
        self._words = tuple(args or ())
        options = self.shown._option_string_actions
        plain = [name for name, action in options.items() if not isinstance(action, ActionTypeHint)]
        if (unknown := unknown_option(self._words, options, plain)) is not None:
            self._refuse_elsewhere(unknown)
            self.error(f"Expected a known option, got {unknown}{did_you_mean(unknown, options)}")
        return super().parse_args(args, *rest, **settings)

    def instantiate(self, *args: Any, **settings: Any) -> Namespace:
        """Return the parsed options as objects. Raises ``ValueError`` in one line."""
        try:
            return super().instantiate(*args, **settings)
        except ValueError as error:
            raise ValueError(brief(str(error))) from None

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, and raise if the pipe is closed, which argparse would ignore."""
        stream = sys.stderr if file is None else file
        if message and stream is not None:
            stream.write(message)

    def _refuse_elsewhere(self, option: str) -> None:
        """Raise ``ValueError`` if an option that is unknown here belongs with another one."""
        name = "--" + option.removeprefix("--").partition(".")[0]
        needed = self.elsewhere(name)
        require(needed is None, f"{needed}", option=option)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """End with status 2 and the message; without exits on errors, raise ``ArgumentError``."""
        if not self.exit_on_error:
            super().error(message, ex)
        if unknown := re.fullmatch(r"Option '([\w.]+)' is not accepted", message):
            self._refuse_elsewhere(unknown[1])
        name = self.shown.prog.replace(" [options]", "")
        line, listing = brief(message) + _class_meant(message, self._words), "--help"
        for key, path, setting in _OF_A_CLASS.findall(line)[-1:]:
            module, _, kind = path.rpartition(".")
            known = list(signature(getattr(sys.modules[module], kind)).parameters)
            line = f"Expected a setting of {kind} ({', '.join(known)}), got --{key}.{setting}"
            line, listing = line + did_you_mean(setting, known), f"--{key}.help {kind}"
        sys.stderr.write(f"{name}: {one_line(line)} (`{name} {listing}` lists them)\n")
        self.exit(2)


_HEADINGS = re.compile(
    r"Does not validate against any of the Union subtypes|Subtypes: .*|Errors:"
    r"|- Expected a <class 'NoneType'>.*|Given value type: .*|Given value: .{80,}|\.\.\."
)
"""Lines of jsonargparse's errors without information about the fault."""


_OF_A_CLASS = re.compile(
    r'key "([\w.]+)": Problem with given class_path \'([\w.]+)\': Option \'([\w.]+)\' is not'
    r" accepted"
)
"""An option and a class that lacks the setting given of it, in an error of jsonargparse."""

_WITHIN_A_CLASS = re.compile(
    r'Parser key "([\w.]+)": Problem with given class_path \'[\w.]+\': Parser key "([\w.]+)"'
)
_VALUE_OF_A_LIST = re.compile(r"(Got value: .+?) Given value: \[.*\]")

_OPTIONS = re.compile(
    r"`((?:aggregators?|data)(?:\.\w+)+|aggregator|chunk_size|confirm|counts|data|delta|items|ledger"
    r"|max_each|max_epsilon|max_items|mechanism|noise_seed|num_teachers|overwrite|pairs|predictions"
    r"|public_keys|run|silos|target_epsilon|teachers|trust|unit|unreadable|votes|without|workers)"
    r"(=\w+)?`"
)
"""Fields and arguments that errors of other rooms mark and commands take as options."""


def with_options(message: str) -> str:
    """Return an error of another room with options in place of the fields that it marks.

    >>> with_options("Expected no `predictions`, of which NoisyVotes makes no use")
    'Expected no --predictions, of which NoisyVotes makes no use'
    """
    return _OPTIONS.sub(r"--\1\2", message)


def brief(message: str) -> str:
    """Return a message of jsonargparse in one line, with the objection of each type but None."""
    lines = [line.strip() for line in message.split("\n")]
    telling = [line.removeprefix("- ") for line in lines if not _HEADINGS.fullmatch(line)]
    words = " ".join(" ".join(telling or lines).split())
    return _VALUE_OF_A_LIST.sub(r"\1", _WITHIN_A_CLASS.sub(r'Parser key "\1.\2"', words))


def unknown_option(
    args: Iterable[str], options: Iterable[str], plain: Iterable[str] = ()
) -> str | None:
    """Return the first word of ``args`` that looks like an option but is not known, or None.

    Settings within an option, such as ``--aggregator.k`` in ``--aggregator``, are known too;
    ``plain`` options have none.
    """
    valid = set(options)
    groups = {option.rpartition(".")[0] for option in valid if not option.endswith(".help")} | set(
        plain
    )
    for word in args:
        name = word.partition("=")[0].removesuffix("+")
        if not re.fullmatch(r"--[A-Za-z][\w.]*", name) or name in valid:
            continue
        above = [name[: dot.start()] for dot in re.finditer(r"\.", name)]
        if not any(outer in valid and outer not in groups for outer in above):
            return name
    return None


def _class_meant(message: str, words: Iterable[str]) -> str:
    """Return a question with the class meant by a misspelled word of ``message``, or nothing."""
    for word in words:
        value = word.partition("=")[2] if word.startswith("--") else word
        module, _, name = value.rpartition(".")
        if not name.isidentifier() or value not in message:
            continue
        if module:
            members = getattr(sys.modules.get(module), "__dict__", {})
            classes = {key for key, member in members.items() if isinstance(member, type)}
        else:
            classes = {
                kind.__name__
                for base in (Aggregator, DataSource, FeatureMap)
                for kind in _subclasses(base)
            }
        if name not in classes and (close := did_you_mean(name, classes)):
            return close
    return ""


def _subclasses(base: type) -> list[type]:
    direct: list[type] = base.__subclasses__()
    return [kind for subclass in direct for kind in (subclass, *_subclasses(subclass))]
