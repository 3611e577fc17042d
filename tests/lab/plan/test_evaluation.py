"""Figures of releases, students and references."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pate import Outlook
from pate._core.accounting.charges import account
from pate.accounting import NeighboringRelation
from pate.aggregators import (
    Aggregator,
    InteractiveScreen,
    NoisyVotes,
    ScoreVotes,
    StableTopK,
    TauVoting,
)
from pate.lab.plan.frontier import (
    Comparison,
    frontier,
    label_quality,
    measure,
    references,
    with_first_round,
)
from pate.lab.plan.sources import Simulation, simulated

SMALL = Simulation(num_labels=5, num_teachers=60, num_public=150, num_features=6)


def test_label_quality_of_the_majority_itself_is_perfect() -> None:
    votes = simulated(Simulation(num_labels=5, num_teachers=61, num_public=150)).votes  # no ties
    release = NoisyVotes(sigma_votes=1e-3).aggregate(votes, generator=np.random.default_rng(0))
    assert label_quality(release, votes) == {
        "answered": 1.0,
        "label_accuracy": 1.0,
        "label_macro_f1": 1.0,
    }
    nothing = release._replace(labels=0 * release.labels, mask=release.mask & False)
    assert math.isnan(label_quality(nothing, votes)["label_accuracy"])


@pytest.mark.parametrize(
    ("relation", "names"),
    [
        (NeighboringRelation.REPLACE_RECORD, ("noisy", "tau")),
        (NeighboringRelation.ADD_REMOVE_TEACHER, ("stable",)),
        # the curve of a screen takes seconds
        *(
            pytest.param(relation, ("noisy", "stable", "tau", "screen"), marks=pytest.mark.slow)
            for relation in NeighboringRelation
        ),
    ],
)
def test_all_rounds_together_cost_what_a_point_says(
    relation: NeighboringRelation, names: tuple[str, ...]
) -> None:
    task = simulated(SMALL)
    common: dict[str, Any] = {"neighboring_relation": relation}
    noisy = NoisyVotes(sigma_votes=1.0, **common)
    comparison = Comparison(
        epsilons=(3.0,), delta=1e-5, num_queries=150, neighboring_relation=relation, seeds=1
    )
    outlook = Outlook.of(task.votes, delta=comparison.delta, relation=relation)
    listed: dict[str, Aggregator] = {
        "noisy": noisy,
        "stable": StableTopK(scale_gap=1.0, sigma_test=1.0, delta_test=1e-8, **common),
        "tau": TauVoting(
            tau=1.5, sigma_tau=1.0, threshold_tau=30.0, around_predictions=True, **common
        ),
        "screen": InteractiveScreen(
            answers=noisy, sigma_interactive=1.0, threshold_interactive=7.5, **common
        ),
    }
    for name in names:
        aggregator = listed[name]
        complete = with_first_round(aggregator, outlook)
        point = measure(task, complete.display_name, complete, 3.0, comparison)
        assert point is not None
        assert point["aggregator"].startswith("Rounds (ClippedVotes, ") == (
            name in ("tau", "screen")
        )
        assert 0.998 * 3.0 < point["epsilon"] <= 3.0 * (1 + 1e-9)
        assert point["realised_epsilon"] <= point["epsilon"] * (1 + 1e-9)
        calibrated = with_first_round(aggregator, outlook).calibrated(
            comparison.target(3.0, 150), task.votes.shape
        )
        assert calibrated is not None
        charge = ({relation: calibrated.event(task.votes.shape, relation)}, 150)
        total = account([charge], relation, in_order=False)
        assert total.get_epsilon(delta=1e-5) == pytest.approx(3.0, rel=1e-5)
        # noise by fewer orders may be a little more than is needed, never less
        for noise, needed in zip(
            json.loads(point["parameters"]).values(), calibrated.noise.values(), strict=True
        ):
            assert needed - 1e-4 <= noise <= 1.003 * needed + 1e-4


def test_a_target_that_no_noise_meets_is_left_out() -> None:
    task, leaky = simulated(SMALL), StableTopK(scale_gap=1.0, sigma_test=1.0, delta_test=0.01)
    assert measure(task, "leaky", leaky, 3.0, Comparison(delta=1e-5, num_queries=150)) is None


def test_teachers_are_voters_by_their_ballots_where_they_are_compared() -> None:
    comparison = Comparison(epsilons=(50.0,), delta=1e-5, num_queries=150, seeds=1, student=True)
    found = frontier(simulated(SMALL), comparison, [ScoreVotes(multiplier_scores=1.0)])
    (point,) = found.rows
    assert point["aggregator"] == "ScoreVotes" and 49.9 < point["epsilon"] <= 50
    assert point["student_accuracy"] > found.references["constant answer"]["student_accuracy"]


def test_references_lie_between_a_constant_and_exact_counts() -> None:
    task = simulated(Simulation(num_labels=5, num_teachers=61, num_public=400, num_features=6))
    found = references(task, student=True, cutoff=0.5)
    assert list(found) == ["constant answer", "noiseless majority", "noiseless counts"]
    constant, majority, counts = found.values()
    shares = task.test_labels.mean(axis=0)
    assert constant["student_accuracy"] == pytest.approx(np.maximum(shares, 1 - shares).mean())
    assert constant["student_mAP"] == pytest.approx(shares.mean())
    assert majority["label_accuracy"] == counts["label_accuracy"] == 1
    assert constant["label_accuracy"] < 1
    for name in ("student_accuracy", "student_macro_f1", "student_mAP"):
        assert constant[name] + 0.05 < majority[name] < counts[name] + 0.02
    # what is learned from votes cannot depend on test labels, and a constant answer to them must
    flipped = references(replace(task, test_labels=1 - task.test_labels), student=True, cutoff=0.5)
    assert flipped["constant answer"]["label_accuracy"] == constant["label_accuracy"]
    assert flipped["constant answer"]["student_macro_f1"] > 0.8 > constant["student_macro_f1"]


def test_other_numbers_of_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected votes on 100 queries, got num_queries=150"):
        frontier(simulated(SMALL), Comparison(num_queries=100))
