"""Aggregator plug-ins: votes in, released labels out, and the event that they cost."""

from pate.aggregators.base import Aggregator, Gap, Outlook, Release
from pate.aggregators.noisy_votes import GNThreshold, NoisyVotes
from pate.aggregators.plugins import load_plugins, propose, registered
from pate.aggregators.powerset import Powerset
from pate.aggregators.screens import Confident as Confident
from pate.aggregators.screens import ConfidentScreen, InteractiveScreen
from pate.aggregators.screens import Interactive as Interactive
from pate.aggregators.stable_majority import StableMajority
from pate.aggregators.stable_topk import FixedStableTopK, GaussianStableTopK, StableTopK
from pate.aggregators.tau_voting import TauVoting
from pate.aggregators.top_k import Canonical, Joint, Peeling

__all__ = [
    "Aggregator",
    "Canonical",
    "ConfidentScreen",
    "FixedStableTopK",
    "GNThreshold",
    "Gap",
    "GaussianStableTopK",
    "InteractiveScreen",
    "Joint",
    "NoisyVotes",
    "Outlook",
    "Peeling",
    "Powerset",
    "Release",
    "StableMajority",
    "StableTopK",
    "TauVoting",
    "load_plugins",
    "propose",
    "registered",
]
