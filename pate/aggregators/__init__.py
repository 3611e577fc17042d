"""Aggregator plug-ins: they turn votes into released labels and describe the cost as an event."""

from pate.aggregators.base import Aggregator as Aggregator
from pate.aggregators.base import Release as Release
from pate.aggregators.clipped_votes import ClippedVotes as ClippedVotes
from pate.aggregators.listed import LimitedDomainTopK as LimitedDomainTopK
from pate.aggregators.listed import TopStableTopK as TopStableTopK
from pate.aggregators.noisy_votes import NoisyVotes as NoisyVotes
from pate.aggregators.of_mechanism import MechanismAggregator as MechanismAggregator
from pate.aggregators.outlook import Gap as Gap
from pate.aggregators.outlook import Outlook as Outlook
from pate.aggregators.peeled_votes import PeeledVotes as PeeledVotes
from pate.aggregators.plugins import load_plugins as load_plugins
from pate.aggregators.plugins import registered as registered
from pate.aggregators.powerset import Powerset as Powerset
from pate.aggregators.rounds import Rounds as Rounds
from pate.aggregators.score_votes import ScoreVotes as ScoreVotes
from pate.aggregators.screens import ConfidentScreen as ConfidentScreen
from pate.aggregators.screens import InteractiveScreen as InteractiveScreen
from pate.aggregators.stable_majority import StableMajority as StableMajority
from pate.aggregators.stable_topk import FixedStableTopK as FixedStableTopK
from pate.aggregators.stable_topk import StableTopK as StableTopK
from pate.aggregators.tau_voting import TauVoting as TauVoting
from pate.aggregators.top_k import Canonical as Canonical
from pate.aggregators.top_k import Joint as Joint
from pate.aggregators.top_k import Peeling as Peeling
from pate.aggregators.top_k import PermuteAndFlip as PermuteAndFlip
