"""Mechanisms by the names under which `pate topk` offers them, installed packages included."""

from importlib.metadata import entry_points
from typing import Any

from pate import mechanisms
from pate._validation import require
from pate.mechanisms import Mechanism

GROUP = "pate.mechanisms"

OWN: tuple[type[Mechanism[Any]], ...] = tuple(
    exported
    for exported in vars(mechanisms).values()
    if isinstance(exported, type) and issubclass(exported, Mechanism) and exported.short_name
)
"""The mechanisms that are exported under a short name."""


def choice(mechanism: str) -> type[Mechanism[Any]]:
    """Return the mechanism of a short name. Raises ``ValueError`` if there is none.

    Installed packages are asked for those that are not ours.
    """
    found = {cls.short_name: cls for cls in OWN}
    if mechanism not in found:
        found = choices()
    require(mechanism in found, f"a mechanism among {', '.join(found)}", mechanism=mechanism)
    return found[mechanism]


def choices() -> dict[str, type[Mechanism[Any]]]:
    """Return the mechanisms that choose items of a histogram, by their `Mechanism.short_name`.

    Raises:
        ValueError: where an entry point of the group ``pate.mechanisms`` is no such mechanism
            under its short name, or has the name of another.
    """
    found = {cls.short_name: cls for cls in OWN}
    for entry in entry_points(group=GROUP):
        cls = entry.load()
        valid = (
            isinstance(cls, type) and issubclass(cls, Mechanism) and cls.short_name == entry.name
        )
        require(valid, f"a mechanism of the short name {entry.name} at its entry point", object=cls)
        require(
            found.setdefault(entry.name, cls) is cls,
            f"one mechanism of the short name {entry.name}",
            another=entry.value,
        )
    return found
