"""Aggregators by name: our own, and the entry points of installed packages."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

from pate._validation import expecting, require
from pate.aggregators._base import Aggregator

GROUP = "pate.aggregators"

_ORDER = (
    *("Rounds", "ClippedVotes", "ScoreVotes", "NoisyVotes", "TauVoting"),
    *("StableTopK", "StableMajority", "FixedStableTopK"),
    *("Peeling", "PeeledVotes", "PermuteAndFlip", "LimitedDomainTopK", "TopStableTopK", "Joint"),
    *("ConfidentScreen", "InteractiveScreen", "Canonical", "Powerset"),
)
"""The order in which aggregators are compared; others of the package come last."""


def own() -> dict[str, type[Aggregator]]:
    """Return the aggregators of the package by name, in the order in which they are compared."""
    found = {
        cls.__name__: cls
        for cls in _below(Aggregator)
        if cls.offered and cls.__module__.startswith("pate.") and not inspect.isabstract(cls)
    }
    return {
        name: found[name] for name in sorted(found, key=lambda name: (*_ORDER, name).index(name))
    }


def _below(cls: type[Any]) -> Iterator[type[Aggregator]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _below(subclass)


def load_plugins() -> dict[str, type[Aggregator]]:
    """Return the aggregators of installed packages, from the group ``pate.aggregators``, by name.

    Raises:
        ValueError: where an entry point is not an aggregator under the name of its class, or has
            the name of another.
    """
    ours = own()
    aggregators = dict(ours)
    for entry in entry_points(group=GROUP):
        place = f"at the entry point {entry.name} of {GROUP}"
        with expecting(f"an Aggregator {place}", ImportError, AttributeError, got=entry.value):
            cls = entry.load()
        require(
            isinstance(cls, type) and issubclass(cls, Aggregator),
            f"an Aggregator {place}",
            object=cls,
        )
        # classes go by their own names in settings
        require(
            entry.name == cls.__name__,
            f"the name of the class, {cls.__name__}, {place}",
            name=entry.name,
        )
        namesake = aggregators.setdefault(entry.name, cls)
        require(
            namesake is cls,
            f"one aggregator {entry.name}, the one of {namesake.__module__}",
            another=entry.value,
        )
    return {name: cls for name, cls in aggregators.items() if name not in ours}


def registered() -> dict[str, type[Aggregator]]:
    """Return all aggregators by name: our own first, then the ones of installed packages.

    >>> registered()["StableTopK"] is StableTopK
    True
    """
    return own() | load_plugins()
