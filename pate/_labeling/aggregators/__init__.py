"""Aggregator plug-ins."""

# aggregators are known by name once their module is imported
from pate._labeling.aggregators import (
    clipped_votes as clipped_votes,
    noisy_votes as noisy_votes,
    score_votes as score_votes,
    top_k as top_k,
)
