"""Teachers: many trained at once on disjoint partitions, and their votes."""

from pate._core.package import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from pate._labeling.runs.vote_store import VoteManifest as VoteManifest, VoteStore as VoteStore
    from pate._labeling.teachers import (
        ClosedFormPlan as ClosedFormPlan,
        Execution as Execution,
        Plan as Plan,
    )
    from pate._networks.teachers.executors import ChunkJob as ChunkJob, run_jobs as run_jobs
    from pate._networks.teachers.plan import (
        BinaryCrossEntropy as BinaryCrossEntropy,
        EntryLoss as EntryLoss,
        PartitionedRecords as PartitionedRecords,
        TeacherPlan as TeacherPlan,
    )
    from pate._networks.teachers.training import (
        TeacherChunk as TeacherChunk,
        TrainJob as TrainJob,
        VoteJob as VoteJob,
        cast_votes as cast_votes,
        load_chunk as load_chunk,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
