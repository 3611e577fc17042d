"""What installed packages declare, and the functions and classes of a higher zone among it.

A lower zone finds these by name and never imports them, as the folders of the lab do with each
other. They are entry points of the group ``pate.parts``: lower zones work without the higher ones,
and training of networks alone imports torch.
"""

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

from pate._core.lazy import naming_extra

version_of = cache(version)


def declared(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group. Packages on a path are looked through once."""
    return _declared(group, tuple(sys.path))


@cache
def _declared(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def part(name: str) -> EntryPoint:
    """Return the entry point of the function or class ``name`` of a higher zone."""
    (entry,) = (entry for entry in declared("pate.parts") if entry.name == name)
    return entry


@cache
def find(name: str) -> Any:
    """Import the function or class ``name`` of a higher zone."""
    try:
        return part(name).load()
    except ModuleNotFoundError as error:
        raise naming_extra(error) from None
