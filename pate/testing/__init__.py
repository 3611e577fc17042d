"""Checks to inherit: what every aggregator must show, ours and yours.

    from pate.testing import AggregatorContract

    class TestMine(AggregatorContract): ...

They run under pytest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pate.testing.aggregators import AggregatorContract, SoftReleaseContract

_HOME = {"AggregatorContract": "pate.testing.aggregators", "SoftReleaseContract": "pate.testing.aggregators"}

__all__ = ["AggregatorContract", "SoftReleaseContract"]

pytest.register_assert_rewrite(*_HOME.values())


def __getattr__(name: str) -> Any:
    """Import a contract when it is asked for, once pytest knows that its assertions are to be explained."""
    if name not in _HOME:
        raise AttributeError(f"module 'pate.testing' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
