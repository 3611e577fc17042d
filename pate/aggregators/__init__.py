"""Aggregator plug-ins: they turn votes into released labels and describe the cost as an event."""

from pate.aggregators.base import Aggregator, Gap, Outlook, Release
from pate.aggregators.noisy_votes import GNThreshold, NoisyVotes
from pate.aggregators.plugins import load_plugins, propose, registered
from pate.aggregators.powerset import Powerset
from pate.aggregators.screens import Confident, Interactive
from pate.aggregators.stable_majority import StableMajority
from pate.aggregators.stable_topk import FixedStableTopK, GaussianStableTopK, StableTopK
from pate.aggregators.tau_voting import TauVoting
from pate.aggregators.top_k import Canonical, Joint, Peeling

__all__ = [
    "Aggregator",
    "Canonical",
    "Confident",
    "FixedStableTopK",
    "GNThreshold",
    "Gap",
    "GaussianStableTopK",
    "Interactive",
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
