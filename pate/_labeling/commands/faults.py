"""Faults on a command line in our words: errors of jsonargparse, fields as options, names meant."""

import argparse
import re
import sys
from collections.abc import Iterable

from pate._core.validation import did_you_mean
from pate._labeling.aggregators.base import Aggregator
from pate._labeling.data.records import FeatureMap
from pate._labeling.data.source import DataSource

_HEADINGS = re.compile(
    r"Does not validate against any of the Union subtypes|Subtypes: .*|Errors:"
    r"|- Expected a <class 'NoneType'>.*|Given value type: .*|Given value: .{80,}|\.\.\."
)
"""Lines of jsonargparse's errors without information about the fault."""


_WITHIN_A_CLASS = re.compile(
    r'Parser key "([\w.]+)": Problem with given class_path \'[\w.]+\': Parser key "([\w.]+)"'
)
_VALUE_OF_A_LIST = re.compile(r"(Got value: .+?) Given value: \[.*\]")

_OPTIONS = re.compile(
    r"`((?:aggregators?|data)(?:\.\w+)+|aggregator|chunk_size|code|confirm|counts|data|delta|items|ledger"
    r"|max_each|max_epsilon|max_items|mechanism|noise_seed|num_teachers|overwrite|pairs|predictions"
    r"|public_keys|run|silos|target_epsilon|teachers|trust|unit|unreadable|votes|without|workers)"
    r"(=\w+)?`"
)
"""Fields and arguments that errors of other rooms mark and commands take as options."""


def with_options(message: str) -> str:
    """Return an error of another room with options in place of the fields that it marks.

    >>> with_options("Expected no `predictions`, which NoisyVotes does not use")
    'Expected no --predictions, which NoisyVotes does not use'
    """
    return with_own_code(_OPTIONS.sub(r"--\1\2", message))


def with_own_code(line: str) -> str:
    """Return an error with the option for code of one's own, where a module is missing.

    >>> with_own_code("No module named 'mine'")
    "No module named 'mine'; --code FOLDER names the folder of your own modules"
    """
    if "No module named" not in line or "No module named 'lightning'" in line:
        return line
    return f"{line}; --code FOLDER names the folder of your own modules"


def brief(message: str) -> str:
    """Return a message of jsonargparse in one line, with the objection of each type but None."""
    lines = [line.strip() for line in message.split("\n")]
    telling = [line.removeprefix("- ") for line in lines if not _HEADINGS.fullmatch(line)]
    words = " ".join(" ".join(telling or lines).split())
    return _VALUE_OF_A_LIST.sub(r"\1", _WITHIN_A_CLASS.sub(r'Parser key "\1.\2"', words))


def in_our_words(line: str, options: Iterable[argparse.Action]) -> str:
    """Return a brief error of jsonargparse or argparse with options and kinds of values, no types.

    Args:
        line: the error.
        options: the options of the command.
    """
    named = {option.dest: option.option_strings for option in options}
    if missing := re.fullmatch("the following arguments are required: (.*)", line):
        # an option of a subcommand is named behind it
        names = [
            behind if (behind := name.partition(".")[2]) in named else name
            for name in missing[1].split(", ")
        ]
        names = [f"--{name}" if named.get(name, [""]) else name for name in names]
        return f"Expected the argument{'s' * (len(names) > 1)} {', '.join(names)}"
    if extra := re.fullmatch("unrecognized arguments: (.*)", line):
        word = extra[1].partition(" ")[0]
        meant = did_you_mean(f"--{word}", (name for names in named.values() for name in names))
        return f"Expected options, each with -- before its name, got {extra[1]}{meant}"
    if config := re.fullmatch("Unexpected config: ?(.*)", line):
        return (
            "Expected settings in each file of --config, as `name: value`, got"
            f" {config[1] or 'none'}"
        )
    if bare := re.fullmatch(r"argument (\S+): expected .*arguments?", line):
        return f"Expected a value behind {bare[1]}"
    if chosen := re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", line):
        return _among(chosen[1], re.findall(r"'([^']*)'", chosen[3]), chosen[2])
    if (fault := re.fullmatch(r'Parser key "([\w.]+)": (.*)', line)) is None:
        return line
    option, reason = f"--{fault[1]}", _NESTED.sub(r"\1=\2", fault[2])
    while inner := re.search(r'Parser key "([\w.]+)": (.*)', reason):
        option, reason = f"{option}.{inner[1]}", inner[2]
    reason = reason.replace("Does not validate against any of the Union subtypes", "")
    said = (r"Got value: (.*?)(?= G| Expected |\.?$)", r"Given value: (.*)", r" string: (\S+)")
    values = (re.search(pattern, reason) for pattern in said)
    value = next((found[1] for found in values if found), "")
    if members := re.search(r"Expected a (?:typing\.Literal\[|member of .*\{)(.*?)[\]}]", reason):
        return _among(option, [name.strip(" '") for name in members[1].split(",")], value)
    if "is abstract" in reason:
        return f"Expected a class for {option}, which takes these settings"
    reason = re.sub(r"Expected a path but .*? either not accessible or invalid", "", reason)
    if called := re.search(r"^ *Type \S*Callable\[.*\] expects a[^:]*: (.*?)\.? Got value", reason):
        return f"Expected a class or function for {option}, got {value} ({called[1]})"
    kinds = [_KINDS[kind] for kind in dict.fromkeys(_KIND.findall(reason)) if kind in _KINDS]
    others = _KIND.sub("", re.sub(r"(Got|Given) value: .*?(?= Expected |$)", "", reason))
    if kinds and not re.search(r"\w{2}", others.replace(value, "")):
        return f"Expected {' or '.join(kinds)} for {option}, got {value}"
    plain = _KIND.sub(lambda kind: f"Expected {_KINDS.get(kind[1], kind[1])}", reason)
    return f"Expected another {option}: {' '.join(plain.split())}"


def _among(option: str, names: Iterable[str], value: str) -> str:
    known = [*names]
    return f"Expected {option} among {', '.join(known)}, got {value}{did_you_mean(value, known)}"


_NESTED = re.compile(r"NestedArg\(key='(.*?)', val='?(.*?)'?\)")
_KIND = re.compile(r"Expected a (?:<class '(?:\w+\.)*)?(\w+(?: import)?)(?:'>| path string:?)?")
_KINDS = {
    "float": "a finite number",
    "int": "a whole number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list such as [a,b]",
    "tuple": "a list such as [a,b]",
    "dict": "a mapping such as {a: b}",
    "Path": "a path",
    "dot import": "a class, by name or import path,",
}
"""Kinds of values, by their types or what jsonargparse calls them."""


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


def class_meant(message: str, words: Iterable[str]) -> str:
    """Return a question with the class meant by a misspelled word of ``message``, or nothing."""
    for word in words:
        value = word.partition("=")[2] if word.startswith("--") else word
        module, _, name = value.rpartition(".")
        if not name.isidentifier() or value not in message:
            continue
        if module:
            known = sys.modules.get(module)
            classes = {key for key in dir(known) if isinstance(getattr(known, key, None), type)}
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
