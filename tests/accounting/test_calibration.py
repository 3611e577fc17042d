"""Calibration ends on the private side of its target, and close to it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from pate.accounting.calibration import (
    calibrate_scale,
    calibrate_stable_top_k,
    epsilon_of,
    gap_needed,
    stable_top_k_cost,
)
from pate.accounting.events import BoundedRangeEvent, Event, FailureEvent, GaussianEvent, PureDPEvent
from pate.accounting.relation import NeighboringRelation
from pate.aggregators.stable_topk import StableTopK
from pate.votes import Votes

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
FAMILIES: dict[str, Callable[[float], Event]] = {
    "gaussian": lambda scale: GaussianEvent(noise_multiplier=scale, neighboring_relation=REPLACE),
    "bounded range": lambda scale: BoundedRangeEvent(eta=2 / scale, neighboring_relation=REPLACE),
    "pure": lambda scale: PureDPEvent(epsilon=2 / scale, neighboring_relation=REPLACE),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("target", "count"), [(0.01, 1), (1.0, 600), (30.0, 5), (8.0, 10**6)])
def test_scale_is_on_the_private_side_of_the_target(family: str, target: float, count: int) -> None:
    event_of = FAMILIES[family]
    scale = calibrate_scale(event_of, target_epsilon=target, delta=1e-6, num_queries=count)
    assert epsilon_of(event_of(scale), count=count, delta=1e-6) <= target
    assert epsilon_of(event_of(scale * (1 - 2e-6)), count=count, delta=1e-6) > target


def test_a_target_that_no_noise_reaches_is_refused() -> None:
    def failing(scale: float) -> Event:
        return FailureEvent(delta=1e-7, neighboring_relation=REPLACE)

    with pytest.raises(ValueError, match="Expected a target that some noise reaches"):
        calibrate_scale(failing, target_epsilon=1.0, delta=1e-6, num_queries=100)
    for wrong in ({"target_epsilon": 0.0}, {"delta": 1.0}, {"num_queries": 0}):
        arguments: dict[str, Any] = {"target_epsilon": 1.0, "delta": 1e-6, "num_queries": 1} | wrong
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
            calibrate_scale(FAMILIES["pure"], **arguments)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_cost_that_ignores_the_scale_ends_in_one_line(epsilon: float) -> None:
    scales: list[float] = []

    def constant(scale: float) -> Event:
        scales.append(scale)
        assert len(scales) < 100
        return PureDPEvent(epsilon=epsilon, neighboring_relation=REPLACE)

    message = "some noise exceeds" if epsilon < 1 else "some noise reaches, with delta = 1e-06"
    with pytest.raises(ValueError, match=f"^Expected a target that {message}, got target_epsilon=1.0$"):
        calibrate_scale(constant, target_epsilon=1.0, delta=1e-6, num_queries=1)
    assert min(scales) < 1e-50 or max(scales) > 1e50


def test_event_is_that_of_the_aggregator() -> None:
    for relation in NeighboringRelation:
        aggregator = StableTopK(scale_gap=7.0, sigma_test=5.0, delta_test=1e-9, neighboring_relation=relation)
        assert aggregator.event(num_teachers=40, num_labels=6) == stable_top_k_cost(
            scale_gap=7.0, sigma_test=5.0, delta_test=1e-9, num_teachers=40, relation=relation
        )


def test_predicted_gap_is_answered_as_often_as_predicted() -> None:
    answered = 0.7
    gap = gap_needed(
        scale_gap=20.0, sigma_test=30.0, delta_test=1e-6, num_labels=6, relation=REPLACE, answered=answered
    )
    aggregator = StableTopK(scale_gap=20.0, sigma_test=30.0, delta_test=1e-6)
    top = round(gap)
    # two labels on top, all others without votes; the gaps above the top and between the two are 0
    votes = Votes.from_counts(np.tile([top, top, 0, 0, 0, 0], (20_000, 1)), top)
    released = aggregator.aggregate(votes, generator=np.random.default_rng(0))
    right = (released.mask.all(axis=1) & (released.labels == [1, 1, 0, 0, 0, 0]).all(axis=1)).mean()
    assert right == pytest.approx(answered, abs=0.02)


def test_stable_top_k_splits_the_budget_for_the_narrowest_gap() -> None:
    arguments: dict[str, Any] = {"num_labels": 20, "relation": REPLACE, "delta_test": 5e-10}
    found = calibrate_stable_top_k(
        target_epsilon=4.0,
        delta=1e-6,
        num_queries=100,
        num_teachers=60,
        **arguments,
    )
    event = stable_top_k_cost(
        scale_gap=found.scale_gap,
        sigma_test=found.sigma_test,
        delta_test=found.delta_test,
        num_teachers=60,
        relation=REPLACE,
    )
    assert found.epsilon == epsilon_of(event, count=100, delta=1e-6) <= 4.0 < found.epsilon * 1.0001
    # no other split of the same budget needs a narrower gap
    for ratio in (0.3, 0.8, 3.0):
        scale_per_sigma = found.scale_gap / found.sigma_test * ratio

        def other(sigma: float, scale_per_sigma: float = scale_per_sigma) -> Event:
            return stable_top_k_cost(
                scale_gap=sigma * scale_per_sigma,
                sigma_test=sigma,
                delta_test=found.delta_test,
                num_teachers=60,
                relation=REPLACE,
            )

        sigma = calibrate_scale(other, target_epsilon=4.0, delta=1e-6, num_queries=100, tolerance=1e-3)
        assert gap_needed(scale_gap=sigma * scale_per_sigma, sigma_test=sigma, **arguments) > found.gap
    with pytest.raises(ValueError, match="Expected delta_test < 1e-08"):
        calibrate_stable_top_k(
            target_epsilon=4.0, delta=1e-6, num_queries=100, num_teachers=60, num_labels=20, delta_test=2e-8
        )


def test_gap_needed_is_that_of_the_test_where_the_choice_is_free() -> None:
    found = gap_needed(scale_gap=1e-3, sigma_test=10.0, delta_test=1e-9, num_labels=5, relation=TEACHER, answered=0.5)
    assert found == pytest.approx(1 - 10 * ndtri(1e-9), rel=1e-6)
    assert ndtr((found - 1) / 10 + ndtri(1e-9)) >= 0.5
