"""Test classes to inherit, with the checks of mechanisms, events, aggregators and sources; audits.

    from pate.testing import AggregatorContract

    class TestMine(AggregatorContract): ...

They run under pytest: pip install 'pate[testing]'.
"""

from typing import TYPE_CHECKING

try:
    import pytest
except ImportError:
    raise ImportError("pate.testing needs pytest: pip install 'pate[testing]'") from None

from pate._lazy import lazy_names

if TYPE_CHECKING:
    from pate.testing._aggregators import AggregatorContract as AggregatorContract
    from pate.testing._batches import (
        BatchContract as BatchContract,
        SoftReleaseContract as SoftReleaseContract,
    )
    from pate.testing._laws import (
        Audit as Audit,
        exact_epsilon as exact_epsilon,
        sampled_epsilon as sampled_epsilon,
    )
    from pate.testing._mechanisms import (
        EventContract as EventContract,
        MechanismContract as MechanismContract,
    )
    from pate.testing._sources import SourceContract as SourceContract
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)

# before any of them is imported
_REWRITTEN = ("_aggregators", "_batches", "_laws", "_mechanisms", "_sources")
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _REWRITTEN))
