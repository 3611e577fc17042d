"""Test classes to inherit, with the checks that every mechanism, event, aggregator and source must pass.

    from pate.testing import AggregatorContract

    class TestMine(AggregatorContract): ...

They run under pytest, which this package needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pate.testing.aggregators import AggregatorContract, SoftReleaseContract
    from pate.testing.batches import BatchContract
    from pate.testing.events import EventContract
    from pate.testing.mechanisms import MechanismContract
    from pate.testing.sources import SourceContract

_HOME = {
    "AggregatorContract": "pate.testing.aggregators",
    "BatchContract": "pate.testing.batches",
    "EventContract": "pate.testing.events",
    "MechanismContract": "pate.testing.mechanisms",
    "SoftReleaseContract": "pate.testing.aggregators",
    "SourceContract": "pate.testing.sources",
}

__all__ = [
    "AggregatorContract",
    "BatchContract",
    "EventContract",
    "MechanismContract",
    "SoftReleaseContract",
    "SourceContract",
]

pytest.register_assert_rewrite(*_HOME.values(), "pate.testing.contract", "pate.testing.laws")


def __getattr__(name: str) -> Any:
    """Import a contract when it is first used, after registering it for pytest's assertion rewriting."""
    if name not in _HOME:
        raise AttributeError(f"module 'pate.testing' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
