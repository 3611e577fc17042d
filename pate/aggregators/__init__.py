"""Aggregator plug-ins: they turn votes into released labels and describe the cost as an event."""

from pate.aggregators._base import Aggregator as Aggregator
from pate.aggregators._base import Release as Release
from pate.aggregators._clipped_votes import ClippedVotes as ClippedVotes
from pate.aggregators._listed import LimitedDomainTopK as LimitedDomainTopK
from pate.aggregators._listed import TopStableTopK as TopStableTopK
from pate.aggregators._noisy_votes import NoisyVotes as NoisyVotes
from pate.aggregators._of_mechanism import MechanismAggregator as MechanismAggregator
from pate.aggregators._peeled_votes import PeeledVotes as PeeledVotes
from pate.aggregators._plugins import load_plugins as load_plugins
from pate.aggregators._plugins import registered as registered
from pate.aggregators._powerset import Powerset as Powerset
from pate.aggregators._rounds import Rounds as Rounds
from pate.aggregators._score_votes import ScoreVotes as ScoreVotes
from pate.aggregators._screens import ConfidentScreen as ConfidentScreen
from pate.aggregators._screens import InteractiveScreen as InteractiveScreen
from pate.aggregators._stable_majority import StableMajority as StableMajority
from pate.aggregators._stable_topk import FixedStableTopK as FixedStableTopK
from pate.aggregators._stable_topk import StableTopK as StableTopK
from pate.aggregators._tau_voting import TauVoting as TauVoting
from pate.aggregators._top_k import Canonical as Canonical
from pate.aggregators._top_k import Joint as Joint
from pate.aggregators._top_k import Peeling as Peeling
from pate.aggregators._top_k import PermuteAndFlip as PermuteAndFlip
