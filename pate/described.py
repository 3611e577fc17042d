"""Objects as plain data: the class path and arguments from which a configuration makes the same ones again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from inspect import Parameter, isfunction, signature
from pathlib import Path
from typing import Any, Self

import numpy as np


class Described:
    """Remembers the arguments that it was made with, so that `plain` can write them down. Subclasses do nothing."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make an object that knows its arguments."""
        # `__init__` may keep its arguments under any name, or not at all
        made = super().__new__(cls)
        made.__dict__["_made_with"] = (args, kwargs)
        return made


def plain(value: Any) -> Any:
    """Return a value as a configuration writes it: numbers, texts, lists, and mappings of these.

    A class or function becomes its path, a `functools.partial` of one with named arguments, a frozen dataclass and
    anything `Described` a ``class_path`` with ``init_args``.

    Raises:
        ValueError: in one line, if a file could not say how to make the value again.
    """
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, type):
        return {"class_path": path_of(value)}
    if isfunction(value):
        return path_of(value)
    if isinstance(value, partial):
        return _partial(value)
    if isinstance(value, Described):
        return _made(type(value), _arguments(value))
    if is_dataclass(value):
        return _made(type(value), {each.name: getattr(value, each.name) for each in fields(value) if each.init})
    raise ValueError(f"Expected settings that a file can hold (numbers, texts, paths), got a {type(value).__name__}")


def path_of(named: Any) -> str:
    """Return the shortest path by which a class or function can be imported, such as ``pate.data.CelebA``.

    Raises:
        ValueError: if there is none, as for what is defined within a function.
    """
    module, name = getattr(named, "__module__", None), getattr(named, "__qualname__", type(named).__name__)
    words = str(module).split(".")
    # the packages around a module often export what is in it
    for number in range(1, len(words) + 1):
        place = ".".join(words[:number])
        try:
            found = getattr(import_module(place), name, None)
        except ImportError:
            break
        if found is named:
            return f"{place}.{name}"
    raise ValueError(
        f"Expected a class or a function that can be imported by its name, or a functools.partial of one, got"
        f" {name} of {module}"
    )


def _partial(value: partial[Any]) -> Any:
    made: Any = value.func
    positional = value.args
    if made.__module__.startswith("jsonargparse."):
        # what a configuration makes of a class path: a partial of a function of its own, whose last argument it is
        made, positional = positional[-1], ()
    inner = plain(made)
    whole = {"class_path": inner} if isinstance(inner, str) else inner
    if positional:
        raise ValueError(f"Expected arguments of {whole['class_path']} by name, got {positional!r}")
    return whole | {"init_args": whole.get("init_args", {}) | plain(value.keywords)}


def _made(cls: type, arguments: Mapping[str, Any]) -> Any:
    path, given = path_of(cls), {}
    for name, value in arguments.items():
        try:
            given[name] = plain(value)
        except ValueError as error:
            raise ValueError(f"{error} for {name} of {cls.__name__}") from None
    return {"class_path": path, "init_args": given}


def _arguments(value: Described) -> dict[str, Any]:
    """Return the arguments that an object was made with by name, those of ``**options`` among them."""
    args, kwargs = value.__dict__["_made_with"]
    bound = signature(type(value)).bind(*args, **kwargs)
    found: dict[str, Any] = {}
    for name, each in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is Parameter.VAR_POSITIONAL:
            raise ValueError(f"Expected arguments of {type(value).__name__} by name, got {each!r}")
        found |= each if kind is Parameter.VAR_KEYWORD else {name: each}
    return found
