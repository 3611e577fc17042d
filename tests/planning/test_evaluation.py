"""Figures of releases and students."""

import math

import numpy as np

from pate.aggregators import NoisyVotes
from pate.planning.evaluation import label_quality
from pate.planning.simulation import Simulation, simulated


def test_label_quality_of_the_majority_itself_is_perfect() -> None:
    votes = simulated(Simulation(num_labels=5, num_teachers=61, num_public=150)).votes  # no ties
    release = NoisyVotes(sigma_votes=1e-3).aggregate(votes, generator=np.random.default_rng(0))
    assert label_quality(release, votes) == {"answered": 1.0, "label_accuracy": 1.0, "label_macro_f1": 1.0}
    nothing = release._replace(labels=0 * release.labels, mask=release.mask & False)
    assert math.isnan(label_quality(nothing, votes)["label_accuracy"])
