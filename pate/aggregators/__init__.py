"""Aggregator plug-ins: votes in, released labels out, and the event that they cost."""

from pate.aggregators.base import Aggregator, Release
from pate.aggregators.stable_topk import StableTopK

__all__ = ["Aggregator", "Release", "StableTopK"]
