"""Simulated teachers learn as the curve says, and a part of an ensemble stands for all of it."""

from copy import copy
from dataclasses import replace

import numpy as np
import pytest

from pate import Votes
from pate.aggregators import ClippedVotes, GroupVoters, Moments, RecordVoters
from pate.lab.plan import sweep
from pate.lab.plan.sweep import (
    LearningCurve,
    TaskFacts,
    World,
    ensemble_votes,
    fit_learner,
    voters_task,
)

FACTS = TaskFacts(
    num_records=20_000, num_labels=8, num_public=1000, label_density=0.2, num_features=30
)


def test_the_learner_follows_its_curve() -> None:
    curve = {20: 0.80, 80: 0.83, 400: 0.86}
    facts = replace(FACTS, curve=curve)
    learner = fit_learner(facts)
    for records, accuracy in curve.items():
        assert learner.accuracy(facts, records) == pytest.approx(accuracy, abs=0.004)


def test_one_point_says_how_good_labels_can_be() -> None:
    low, high = (fit_learner(replace(FACTS, curve={100: accuracy})) for accuracy in (0.82, 0.88))
    assert low.signal < high.signal
    assert fit_learner(FACTS) == fit_learner(FACTS)


def test_a_curve_that_no_teacher_follows_is_refused() -> None:
    with pytest.raises(ValueError, match="a learning curve that a linear teacher can follow"):
        fit_learner(replace(FACTS, curve={20: 0.95, 2000: 0.75}))


@pytest.mark.parametrize("records", [10, 60, 1000])
def test_simulated_teachers_are_as_good_as_the_formula_says(records: float) -> None:
    """Ballots on the test samples, whose true labels are known."""
    facts = replace(FACTS, num_labels=40)
    learner = LearningCurve(signal=0.8, noise=1.5, ridge=1.0)
    world = World(facts, learner, num_queries=10, seed=1)
    judged = copy(world)
    judged.public = world.test
    task = ensemble_votes(judged, learner, num_teachers=52, records=records, seed=2)
    assert task.votes.ballots is not None and not task.private
    right = (task.votes.ballots == task.test_labels[:, None]).mean()
    # directions are drawn at random: the formula is their mean
    assert right == pytest.approx(learner.accuracy(facts, records), abs=0.01)


def test_fewer_records_make_teachers_err_and_shy() -> None:
    learner = LearningCurve(signal=0.9, noise=1.5, ridge=1.0)
    world = World(FACTS, learner, num_queries=400, seed=0)
    few, many = (
        ensemble_votes(world, learner, num_teachers=100, records=n, seed=0).votes
        for n in (20, 2000)
    )
    split = [float(np.minimum(each.counts, 100 - each.counts).mean()) for each in (few, many)]
    given = [float((2 * each.counts > 100).mean()) for each in (few, many)]
    assert split[0] > 2 * split[1]
    assert given[0] < 0.9 * given[1]


def test_a_part_stands_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the votes of a part is as close to what all would vote as the mean of all."""
    learner = LearningCurve(signal=0.8, noise=1.5, ridge=1.0)
    world = World(FACTS, learner, num_queries=200, seed=0)
    whole = ensemble_votes(world, learner, num_teachers=3000, records=15, seed=0).votes
    monkeypatch.setattr(sweep, "_ENTRIES", 200 * 8 * 300)
    part = ensemble_votes(world, learner, num_teachers=3000, records=15, seed=1).votes
    assert (whole.num_teachers, part.num_teachers) == (3000, 300)
    difference = part.counts / 300 - whole.counts / 3000
    # 300 votes have a standard deviation of 0.03 at most
    assert np.sqrt((difference**2).mean()) < 0.03
    assert abs(difference.mean()) < 0.003


def test_noise_scaled_down_with_the_ensemble_is_as_loud() -> None:
    """Twelve copies of each teacher at a noise, and one of each at a twelfth of it, release the
    same shares."""
    learner = LearningCurve(signal=0.8, noise=1.5, ridge=1.0)
    world = World(FACTS, learner, num_queries=60, seed=0)
    part = ensemble_votes(world, learner, num_teachers=50, records=30, seed=0).votes
    assert part.ballots is not None
    whole = Votes.from_ballots(np.repeat(part.ballots, 12, axis=1))
    loud = ClippedVotes(multiplier_clipped=60.0)
    shares = [
        aggregator.aggregate(votes, generator=np.random.default_rng(5)).noisy_counts  # type: ignore[operator]
        / votes.num_teachers
        for aggregator, votes in ((loud, whole), (loud.scaled(1 / 12), part))
    ]
    # noise lies on a grid of its own
    np.testing.assert_allclose(shares[0], shares[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("records", [1.0, 4.6])
def test_voters_in_closed_form_have_records_of_the_task(
    records: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_FEATURES", 2000 * FACTS.num_features)
    learner = LearningCurve(signal=0.8, noise=1.5, ridge=1.0)
    world = World(FACTS, learner, num_queries=60, seed=0)
    task = voters_task(world, learner, num_teachers=9000, records=records, seed=0)
    assert isinstance(task.votes, Moments)
    voters = task.votes.voters
    assert isinstance(voters, RecordVoters if records == 1 else GroupVoters)
    assert (
        voters.num_voters == voters.num_private == task.votes.num_teachers == 2000 // round(records)
    )
    shares = voters.labels.mean(axis=0)
    assert len(voters.labels) == voters.num_voters * round(records)
    # five standard errors of 2,000 records and of all test samples
    assert np.abs(shares - world.test_labels.mean(axis=0)).max() < 5 * np.sqrt(
        0.25 / 2000 + 0.25 / 4000
    )
    few = voters_task(world, learner, num_teachers=7, records=records, seed=0).votes
    assert few.num_teachers == 7
