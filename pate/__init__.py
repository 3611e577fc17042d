"""Multi-label classifiers with a differential-privacy guarantee, by Private Aggregation of Teacher Ensembles.

Most programs need no more than the names below. ``pate.aggregators``, ``pate.mechanisms``, ``pate.accounting`` and
``pate.data`` hold the others, and ``pate.testing`` the contracts of plug-ins. All are imported on their first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pate._version import __version__ as __version__

if TYPE_CHECKING:
    from pate import accounting as accounting
    from pate import aggregators as aggregators
    from pate import data as data
    from pate import mechanisms as mechanisms
    from pate import testing as testing
    from pate._pipeline import Pipeline, label
    from pate._planning.gaps import gap_needed
    from pate._planning.outlook import Outlook
    from pate._planning.proposals import for_target
    from pate._release.label_settings import LabelSettings
    from pate._runs.released import ReleasedLabels
    from pate._stages.student_steps import StudentPlan
    from pate._votes import Panel, Votes
    from pate._votes_file import NamedVotes
    from pate.accounting import (
        Budget,
        Ledger,
        NeighboringRelation,
        RDPAccountant,
        Statement,
        read_ledger,
        verify_ledger,
    )
    from pate.aggregators import Aggregator, NoisyVotes, Release, Rounds, StableTopK, TauVoting
    from pate.mechanisms import private_generator
    from pate.student._carried import CarriedStudent, load_student
    from pate.teachers._jobs import Execution
    from pate.teachers._plan import TeacherPlan

__all__ = [
    "Aggregator",
    "Budget",
    "CarriedStudent",
    "Execution",
    "LabelSettings",
    "Ledger",
    "NamedVotes",
    "NeighboringRelation",
    "NoisyVotes",
    "Outlook",
    "Panel",
    "Pipeline",
    "RDPAccountant",
    "Release",
    "ReleasedLabels",
    "Rounds",
    "StableTopK",
    "Statement",
    "StudentPlan",
    "TauVoting",
    "TeacherPlan",
    "Votes",
    "for_target",
    "gap_needed",
    "label",
    "load_student",
    "private_generator",
    "read_ledger",
    "verify_ledger",
]

_PACKAGES = ("accounting", "aggregators", "data", "mechanisms", "testing")

_ROOMS = (
    "pate.accounting",
    "pate.aggregators",
    "pate.mechanisms",
    "pate._votes",
    "pate._runs.released",
    "pate._pipeline",
    "pate._planning.outlook",
    "pate._planning.gaps",
    "pate._planning.proposals",
    # these import torch
    "pate.student._carried",
    "pate.teachers._plan",
    "pate._stages.student_steps",
)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name in _PACKAGES:
        return import_module(f"pate.{name}")
    if name in __all__:
        for room in map(import_module, _ROOMS):
            if hasattr(room, name):
                globals()[name] = getattr(room, name)
                return globals()[name]
    raise AttributeError(f"module 'pate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
