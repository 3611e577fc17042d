"""Aggregators of other packages, found by their entry points."""

from importlib.metadata import entry_points

from pate.aggregators.base import Aggregator
from pate.validation import expect

GROUP = "pate.aggregators"


def load_plugins() -> dict[str, type[Aggregator]]:
    """Import the aggregators that installed packages offer in the group ``pate.aggregators``; by name.

    Raises ``ValueError`` where an entry point is not an aggregator.
    """
    found: dict[str, type[Aggregator]] = {}
    for entry in entry_points(group=GROUP):
        cls = entry.load()
        right = isinstance(cls, type) and issubclass(cls, Aggregator)
        expect(right, f"an Aggregator at the entry point {entry.name} of {GROUP}", found=cls)
        found[entry.name] = cls
    return found
