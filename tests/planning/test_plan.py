"""A plan meets its target, with the student that comes first paid for."""

from typing import Any

import pytest

from pate.accounting.calibration import Target
from pate.accounting.charges import account
from pate.accounting.relation import NeighboringRelation
from pate.aggregators import InteractiveScreen, NoisyVotes, StableMajority, StableTopK, TauVoting
from pate.planning.plan import plan_for
from pate.planning.simulation import Simulation, simulated

SMALL = Simulation(num_labels=5, num_teachers=60, num_public=150, num_features=6)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_noise_is_calibrated_on_the_private_side(relation: NeighboringRelation) -> None:
    votes = simulated(SMALL).votes
    common: dict[str, Any] = {"neighboring_relation": relation}
    noisy = NoisyVotes(sigma_votes=1.0, **common)
    for aggregator in (
        noisy,
        StableMajority(sigma_majority=1.0, delta_majority=1e-8, **common),
        TauVoting(tau=1.5, sigma_tau=1.0, threshold_tau=30.0, around_predictions=True, **common),
        InteractiveScreen(answers=noisy, sigma_interactive=1.0, threshold_interactive=7.5, **common),
    ):
        target = Target(epsilon=3.0, delta=1e-5, num_queries=votes.num_queries, neighboring_relation=relation)
        plan = plan_for(aggregator, target, votes.panel)
        assert plan is not None
        event = plan.event(votes.panel, relation)
        spent = account([({relation: event}, votes.num_queries)], relation).get_epsilon(delta=1e-5)
        assert spent == pytest.approx(plan.epsilon(target, votes.panel))
        assert 0.999 * 3.0 < spent <= 3.0 * (1 + 1e-9)
        assert (plan.first is not None) == aggregator.needs_predictions


def test_a_target_that_no_noise_meets_is_left_out() -> None:
    votes = simulated(SMALL).votes
    leaky = StableTopK(scale_gap=1.0, sigma_test=1.0, delta_test=0.01)
    target = Target(epsilon=3.0, delta=1e-5, num_queries=votes.num_queries)
    assert plan_for(leaky, target, votes.panel) is None
