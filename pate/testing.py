"""Test classes to inherit, with the checks of mechanisms, events, aggregators and sources; audits.

    from pate.testing import AggregatorContract

    class TestMine(AggregatorContract): ...

They run under pytest: pip install 'pate[testing]'.
"""

from pate._core.package import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from pate._core.testing.mechanisms import (
        EventContract as EventContract,
        MechanismContract as MechanismContract,
    )
    from pate._labeling.testing.aggregators import AggregatorContract as AggregatorContract
    from pate._labeling.testing.batches import (
        BatchContract as BatchContract,
        SoftReleaseContract as SoftReleaseContract,
        SourceContract as SourceContract,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
