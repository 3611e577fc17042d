"""Figures of releases and students."""

import math

import numpy as np
import torch
from torchmetrics.functional.classification import multilabel_average_precision

from pate.aggregators import NoisyVotes
from pate.planning.evaluation import average_precision, label_quality
from pate.planning.simulation import Simulation, simulated


def test_average_precision_is_that_of_a_peer() -> None:
    generator = np.random.default_rng(0)
    scores = generator.integers(0, 20, (300, 4)) / 20
    truth = generator.random((300, 4)) < scores
    expected = multilabel_average_precision(
        torch.from_numpy(scores), torch.from_numpy(truth.astype(int)), num_labels=4, average="none"
    )
    np.testing.assert_allclose(average_precision(scores, truth), expected.numpy(), rtol=1e-5)
    assert average_precision(scores, np.zeros((300, 4), dtype=np.bool_)).tolist() == [0, 0, 0, 0]


def test_label_quality_of_the_majority_itself_is_perfect() -> None:
    votes = simulated(Simulation(num_labels=5, num_teachers=61, num_public=150)).votes  # no ties
    release = NoisyVotes(sigma_votes=1e-3).aggregate(votes, generator=np.random.default_rng(0))
    assert label_quality(release, votes) == {"answered": 1.0, "label_accuracy": 1.0, "label_macro_f1": 1.0}
    nothing = release._replace(labels=0 * release.labels, mask=release.mask & False)
    assert math.isnan(label_quality(nothing, votes)["label_accuracy"])
