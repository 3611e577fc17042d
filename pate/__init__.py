"""Differentially private multi-label classifiers by Private Aggregation of Teacher Ensembles.

Most programs need only the names below. The packages hold the others. All are imported on first
use.
"""

from pate._core.package import __version__ as __version__, lazy_names

TYPE_CHECKING = False  # as `typing` says it, which takes half of the time to start
if TYPE_CHECKING:
    from pate import (
        accounting as accounting,
        aggregators as aggregators,
        data as data,
        mechanisms as mechanisms,
        models as models,
        student as student,
        teachers as teachers,
        testing as testing,
    )
    from pate._labeling.estimator import PateClassifier as PateClassifier
    from pate._labeling.plan import RunPlan as RunPlan, label as label
    from pate._labeling.release.label_settings import LabelSettings as LabelSettings
    from pate._labeling.release.labels import StatedLabels as StatedLabels
    from pate._labeling.runs.released import ReleasedLabels as ReleasedLabels
    from pate._labeling.stages.student import StudentPlan as StudentPlan
    from pate._labeling.stages.votes_import import NamedVotes as NamedVotes
    from pate._labeling.votes.kinds import Votes as Votes, VoteShape as VoteShape
    from pate.accounting import (
        Budget as Budget,
        Ledger as Ledger,
        NeighboringRelation as NeighboringRelation,
        RDPAccountant as RDPAccountant,
        Statement as Statement,
        read_ledger as read_ledger,
        verify_ledger as verify_ledger,
    )
    from pate.aggregators import (
        Aggregator as Aggregator,
        NoisyVotes as NoisyVotes,
        Outlook as Outlook,
        Partial as Partial,
        Release as Release,
        Rounds as Rounds,
        StableTopK as StableTopK,
        TauVoting as TauVoting,
    )
    from pate.mechanisms import private_generator as private_generator
    from pate.student import ExportedStudent as ExportedStudent, load_student as load_student
    from pate.teachers import (
        ClosedFormPlan as ClosedFormPlan,
        Execution as Execution,
        TeacherPlan as TeacherPlan,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
