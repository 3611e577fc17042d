"""Multi-label classifiers with a differential-privacy guarantee, by Private Aggregation of Teacher Ensembles.

Most programs need no more than the names below; the packages hold the others. All are imported on
their first use.
"""

from pate._lazy import lazy_names
from pate._version import __version__ as __version__

TYPE_CHECKING = False  # as `typing` says it, which takes half of the time to start
if TYPE_CHECKING:
    from pate import accounting as accounting
    from pate import aggregators as aggregators
    from pate import data as data
    from pate import mechanisms as mechanisms
    from pate import models as models
    from pate import student as student
    from pate import teachers as teachers
    from pate import testing as testing
    from pate._estimator import PateClassifier as PateClassifier
    from pate._pipeline import Pipeline as Pipeline
    from pate._pipeline import label as label
    from pate._planning.gaps import Gap as Gap
    from pate._planning.gaps import gap_needed as gap_needed
    from pate._planning.outlook import Outlook as Outlook
    from pate._planning.proposals import for_target as for_target
    from pate._release.label_settings import LabelSettings as LabelSettings
    from pate._release.stating import StatedLabels as StatedLabels
    from pate._runs.released import ReleasedLabels as ReleasedLabels
    from pate._stages.student_steps import StudentPlan as StudentPlan
    from pate._votes import Votes as Votes
    from pate._votes import VoteShape as VoteShape
    from pate._votes_file import NamedVotes as NamedVotes
    from pate.accounting import Budget as Budget
    from pate.accounting import Ledger as Ledger
    from pate.accounting import NeighboringRelation as NeighboringRelation
    from pate.accounting import RDPAccountant as RDPAccountant
    from pate.accounting import Statement as Statement
    from pate.accounting import read_ledger as read_ledger
    from pate.accounting import verify_ledger as verify_ledger
    from pate.aggregators import Aggregator as Aggregator
    from pate.aggregators import NoisyVotes as NoisyVotes
    from pate.aggregators import Release as Release
    from pate.aggregators import Rounds as Rounds
    from pate.aggregators import StableTopK as StableTopK
    from pate.aggregators import TauVoting as TauVoting
    from pate.mechanisms import private_generator as private_generator
    from pate.student import CarriedStudent as CarriedStudent
    from pate.student import load_student as load_student
    from pate.teachers import ClosedFormPlan as ClosedFormPlan
    from pate.teachers import Execution as Execution
    from pate.teachers import TeacherPlan as TeacherPlan
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
