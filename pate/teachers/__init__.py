"""Teachers: many trained at once on disjoint partitions, and their votes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pate.teachers.chunk import TeacherChunk
    from pate.teachers.executors import run_jobs
    from pate.teachers.jobs import Execution
    from pate.teachers.partitions import PartitionedRecords
    from pate.teachers.plan import NetworkFactory, TeacherPlan
    from pate.teachers.training import TrainJob, load_chunk
    from pate.teachers.voting import VoteJob, cast_votes

__all__ = [
    "Execution",
    "NetworkFactory",
    "PartitionedRecords",
    "TeacherChunk",
    "TeacherPlan",
    "TrainJob",
    "VoteJob",
    "cast_votes",
    "load_chunk",
    "run_jobs",
]

# modules without Lightning, which takes seconds to import, come first
_ROOMS = ("plan", "jobs", "partitions", "executors", "chunk", "training", "voting")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name in __all__:
        for room in (import_module(f"pate.teachers.{each}") for each in _ROOMS):
            if hasattr(room, name):
                globals()[name] = getattr(room, name)
                return globals()[name]
    raise AttributeError(f"module 'pate.teachers' has no attribute {name!r}")
