"""Aggregator plug-ins: they turn votes into released labels and describe the cost as an event."""

from pate._settings import Partial as Partial
from pate._votes import (
    Ballots as Ballots,
    Counts as Counts,
    MaskedTotal as MaskedTotal,
    Moments as Moments,
    Need as Need,
    NoisyTotal as NoisyTotal,
    Scores as Scores,
)
from pate._votes.voters import (
    Geometry as Geometry,
    GroupVoters as GroupVoters,
    MomentQuery as MomentQuery,
    RecordVoters as RecordVoters,
    ScoreVoters as ScoreVoters,
    Voters as Voters,
)
from pate.aggregators._base import (
    Aggregator as Aggregator,
    Gap as Gap,
    Release as Release,
)
from pate.aggregators._clipped_votes import ClippedVotes as ClippedVotes
from pate.aggregators._multi_winner import Powerset as Powerset, TauVoting as TauVoting
from pate.aggregators._noisy_votes import (
    ConfidentScreen as ConfidentScreen,
    InteractiveScreen as InteractiveScreen,
    NoisyVotes as NoisyVotes,
    SiloVotes as SiloVotes,
)
from pate.aggregators._of_mechanism import MechanismAggregator as MechanismAggregator
from pate.aggregators._outlook import Outlook as Outlook
from pate.aggregators._personal_votes import PersonalVotes as PersonalVotes
from pate.aggregators._plugins import load_plugins as load_plugins, registered as registered
from pate.aggregators._rounds import Rounds as Rounds
from pate.aggregators._score_votes import ScoreVotes as ScoreVotes
from pate.aggregators._stable_topk import (
    FixedStableTopK as FixedStableTopK,
    StableMajority as StableMajority,
    StableTopK as StableTopK,
)
from pate.aggregators._top_k import (
    Canonical as Canonical,
    Joint as Joint,
    LimitedDomainTopK as LimitedDomainTopK,
    PeeledVotes as PeeledVotes,
    Peeling as Peeling,
    PermuteAndFlip as PermuteAndFlip,
    TopStableTopK as TopStableTopK,
)
