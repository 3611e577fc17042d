"""Settings from Python in the form that a file for ``--config`` has them, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar, get_type_hints

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from pate.described import plain

Settings = TypeVar("Settings")


def as_configured(kind: Any, value: Any) -> Any:
    """Return ``value`` as a configuration keeps a setting of the type ``kind``, with every default filled in.

    Raises:
        ValueError: in one line, if a file could not hold it, or it is not of that type.
    """
    return _configured({"value": kind}, {"value": value})["value"]


def configuration_of(settings: Any) -> dict[str, Any]:
    """Return a frozen dataclass of settings as the command that takes them writes it down.

    Raises:
        ValueError: in one line, if a file could not hold a setting.
    """
    kinds = get_type_hints(type(settings))
    names = [field.name for field in fields(settings)]
    return _configured({name: kinds[name] for name in names}, {name: getattr(settings, name) for name in names})


def settings_from(kind: type[Settings], content: dict[str, Any]) -> Settings:
    """Return the dataclass ``kind`` of what `configuration_of` returned, or of a command's settings.

    Raises:
        ValueError: in one line, if something that is named cannot be imported, or is not of its type.
    """
    # earlier versions knew fewer settings
    names = [field.name for field in fields(kind) if field.name in content]  # type: ignore[arg-type]
    kinds = get_type_hints(kind)
    parser = _parser({name: kinds[name] for name in names})
    try:
        made = parser.instantiate(parser.parse_object({name: content[name] for name in names}))
    except ArgumentError as error:
        raise ValueError(f"Expected settings that can be used here, got {_in_one_line(error)}") from None
    return kind(**{name: made[name] for name in names})


def _configured(kinds: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    content = {}
    for name, value in values.items():
        try:
            content[name] = plain(value)
        except ValueError as error:
            raise ValueError(f"{error} ({name})") from None
    parser = _parser(kinds)
    try:
        parsed = parser.parse_object(content)
    except ArgumentError as error:
        raise ValueError(f"Expected settings that a configuration can hold, got {_in_one_line(error)}") from None
    found: dict[str, Any] = yaml.safe_load(parser.dump(parsed, skip_unset=False))
    return {name: found[name] for name in values}


def _parser(kinds: dict[str, Any]) -> ArgumentParser:
    """Return a parser without defaults: jsonargparse would mix those of one class into another's arguments."""
    parser = ArgumentParser(exit_on_error=False)
    for name, kind in kinds.items():
        parser.add_argument(f"--{name}", type=kind)
    return parser


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
