"""Functions and classes of a higher zone, which a lower one finds by name and never imports.

They are entry points of the group ``pate.parts``: lower zones work without the higher ones, and
training of networks alone imports torch.
"""

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pate._core.lazy import naming_extra


@cache
def find(name: str) -> Any:
    """Import the function or class ``name`` of a higher zone."""
    (entry,) = entry_points(group="pate.parts", name=name)
    try:
        return entry.load()
    except ModuleNotFoundError as error:
        raise naming_extra(error) from None
