"""Teachers: many trained at once on disjoint partitions, and their votes."""

from typing import TYPE_CHECKING

from pate._lazy import lazy_names

if TYPE_CHECKING:
    from pate._closed_form_plan import ClosedFormPlan as ClosedFormPlan, Plan as Plan
    from pate._votes.store import VoteManifest as VoteManifest, VoteStore as VoteStore
    from pate.teachers._executors import run_jobs as run_jobs
    from pate.teachers._jobs import ChunkJob as ChunkJob, Execution as Execution
    from pate.teachers._plan import (
        AsymmetricLoss as AsymmetricLoss,
        BinaryCrossEntropy as BinaryCrossEntropy,
        EntryLoss as EntryLoss,
        FocalLoss as FocalLoss,
        PartitionedRecords as PartitionedRecords,
        TeacherPlan as TeacherPlan,
    )
    from pate.teachers._training import (
        TeacherChunk as TeacherChunk,
        TrainJob as TrainJob,
        VoteJob as VoteJob,
        cast_votes as cast_votes,
        load_chunk as load_chunk,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
