"""Test classes to inherit, with the checks that every mechanism, event, aggregator and source must pass.

    from pate.testing import AggregatorContract

    class TestMine(AggregatorContract): ...

They run under pytest, which this package needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pate.testing._aggregators import AggregatorContract, SoftReleaseContract
    from pate.testing._batches import BatchContract
    from pate.testing._events import EventContract
    from pate.testing._mechanisms import MechanismContract
    from pate.testing._sources import SourceContract

_HOME = {
    "AggregatorContract": "pate.testing._aggregators",
    "BatchContract": "pate.testing._batches",
    "EventContract": "pate.testing._events",
    "MechanismContract": "pate.testing._mechanisms",
    "SoftReleaseContract": "pate.testing._aggregators",
    "SourceContract": "pate.testing._sources",
}

__all__ = [
    "AggregatorContract",
    "BatchContract",
    "EventContract",
    "MechanismContract",
    "SoftReleaseContract",
    "SourceContract",
]

pytest.register_assert_rewrite(*_HOME.values(), "pate.testing._contract", "pate.testing._laws")


def __getattr__(name: str) -> Any:
    """Import a contract when it is first used, after registering it for pytest's assertion rewriting."""
    if name not in _HOME:
        raise AttributeError(f"module 'pate.testing' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
