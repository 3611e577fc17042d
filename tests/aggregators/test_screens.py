"""Screens keep the contract, and settle for what was asked."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from pate.accounting.curves import cost
from pate.accounting.relation import NeighboringRelation as Relation
from pate.aggregators import Aggregator, Confident, FixedStableTopK, Interactive, NoisyVotes, Peeling, StableTopK
from pate.aggregators.screens import Over
from pate.votes import Votes
from tests.aggregators.oracles import counts, fixed_law, gaussian_labels_law, unanswered
from tests.contracts.aggregator_contract import AggregatorContract, Grid, Law, Outcome

_SCREEN = "a screen that answers no more than pass or not costs 2 / pi of its Gaussian noise"


class TestConfident(AggregatorContract):
    loose_because = _SCREEN
    over: Over = "mean"
    threshold = 1.2

    def answers(self, relation: Relation) -> Aggregator:
        return NoisyVotes(sigma_votes=1.5, neighboring_relation=relation)

    def answers_law(self, votes: Votes, relation: Relation) -> Law:
        return gaussian_labels_law([h - votes.num_teachers / 2 for h in counts(votes)], 1.5)

    def make(self, relation: Relation) -> Aggregator:
        return Confident(
            answers=self.answers(relation),
            sigma_confident=0.8,
            threshold_confident=self.threshold,
            over=self.over,
            neighboring_relation=relation,
        )

    def statistic(self, votes: Votes) -> float:
        margins = [abs(h - votes.num_teachers / 2) for h in counts(votes)]
        return min(margins) if self.over == "worst" else sum(margins) / len(margins)

    def law(self, votes: Votes, relation: Relation) -> Law:
        asked = float(ndtr((self.statistic(votes) - self.threshold) / 0.8))
        law = defaultdict(float, {self.refused(votes): 1 - asked})
        for outcome, chance in self.answers_law(votes, relation).items():
            law[(*outcome[:-1], outcome[-1] + 1)] += asked * chance
        return law

    def refused(self, votes: Votes) -> Outcome:
        return unanswered(self.num_labels)

    def malformed(self) -> list[dict[str, Any]]:
        (other,) = set(Relation) - {Relation.REPLACE_RECORD}
        return [{"over": "median"}, {"answers": NoisyVotes(sigma_votes=1.0, neighboring_relation=other)}]


class TestConfidentOfTheWorst(TestConfident):
    over: Over = "worst"
    num_teachers = 3
    grid: Grid = (((1, 1), (1, 1), (1, 1)), ((0, 1), (1, 1), (0, 1)))


class TestConfidentBeforeSteps(TestConfident):
    """Steps of the screen and of what answers add up."""

    num_labels = 3
    num_teachers = 3
    grid: Grid = (((1, 1, 0), (1, 1, 0), (1, 1, 0)), ((0, 0, 1), (0, 1, 1), (1, 1, 1)))

    def answers(self, relation: Relation) -> Aggregator:
        return FixedStableTopK(
            k=2,
            pull=0.5,
            scale_gap_fixed=2.0,
            sigma_test_fixed=1.5,
            delta_test_fixed=0.05,
            scale_peel_fixed=1.2,
            neighboring_relation=relation,
        )

    def answers_law(self, votes: Votes, relation: Relation) -> Law:
        return fixed_law(
            votes,
            k=2,
            pull=0.5,
            scale=2.0,
            sigma=1.5,
            delta=0.05,
            shift=relation.count_window,
            scale_peel=1.2,
        )


class TestInteractive(TestConfident):
    predictions = (0.9, 0.35)
    min_confidence = 0.7
    threshold = 1.0

    def make(self, relation: Relation) -> Aggregator:
        return Interactive(
            answers=self.answers(relation),
            sigma_interactive=0.8,
            threshold_interactive=self.threshold,
            min_confidence=self.min_confidence,
            over=self.over,
            neighboring_relation=relation,
        )

    def statistic(self, votes: Votes) -> float:
        assert self.predictions is not None
        found = [abs(h - votes.num_teachers * p) for h, p in zip(counts(votes), self.predictions, strict=True)]
        return max(found) if self.over == "worst" else sum(found) / len(found)

    def refused(self, votes: Votes) -> Outcome:
        return (1, 0, 1, 0, 0)  # the first prediction is sure, the second is not

    def malformed(self) -> list[dict[str, Any]]:
        return [*super().malformed(), {"min_confidence": 0.4}, {"min_confidence": 1.1}]


class TestInteractiveOfTheWorst(TestInteractive):
    over: Over = "worst"
    threshold = 2.0


def test_only_what_is_asked_is_paid() -> None:
    counts = np.repeat([[40, 0, 39], [20, 21, 19]], 50, axis=0)
    screen = Confident(answers=Peeling(k=1, scale_peel=3.0), sigma_confident=2.0, threshold_confident=12.0)
    release = screen.aggregate(Votes.from_counts(counts, 40), generator=np.random.default_rng(0))
    assert release.steps is not None
    np.testing.assert_array_equal(release.steps, np.repeat([1, 0], 50))
    np.testing.assert_array_equal(release.mask.any(axis=1), release.steps > 0)
    sizes: dict[str, Any] = {"num_teachers": 40, "num_labels": 3}
    alone, whole = (cost(screen.realised_event(steps, **sizes)).rdp for steps in (0, 1))
    peeling = cost(Peeling(k=1, scale_peel=3.0).event(**sizes)).rdp
    np.testing.assert_allclose(whole, alone + peeling)


def test_a_screen_of_a_screen_pays_both() -> None:
    inner = Confident(answers=Peeling(k=1, scale_peel=3.0), sigma_confident=2.0, threshold_confident=12.0)
    outer = Interactive(answers=inner, sigma_interactive=2.0, threshold_interactive=5.0)
    assert outer.needs_predictions and not outer.needs_ballots
    votes = Votes.from_counts(np.array([[40, 0, 39], [20, 21, 19], [40, 0, 40]]), 40)
    votes = replace(votes, predictions=np.array([[0.0, 1.0, 0.0], [0.9, 0.1, 0.9], [0.97, 0.02, 0.99]]))
    release = outer.aggregate(votes, generator=np.random.default_rng(0))
    assert release.steps is not None
    assert release.steps.tolist() == [2, 1, 0]
    assert release.labels[2].tolist() == [1, 0, 1] and release.mask[2].all()
    sizes: dict[str, Any] = {"num_teachers": 40, "num_labels": 3}
    ladder = [cost(outer.realised_event(steps, **sizes)).rdp for steps in (0, 1, 2)]
    assert (ladder[0] < ladder[1]).all() and (ladder[1] < ladder[2]).all()
    np.testing.assert_allclose(ladder[2], cost(outer.event(**sizes)).rdp)


def test_a_refused_query_and_one_that_fails_the_test_look_alike() -> None:
    """Who is not answered learns no more than the screen's own bit, which it pays for."""
    stable = StableTopK(scale_gap=2.0, sigma_test=3.0, delta_test=1e-6)
    screen = Confident(answers=stable, sigma_confident=1.0, threshold_confident=0.5)
    votes = Votes.from_counts(np.repeat([[5, 5, 4]], 300, axis=0), 10)
    release = screen.aggregate(votes, generator=np.random.default_rng(0))
    assert release.steps is not None and {0, 1} == set(release.steps.tolist())
    failed = np.flatnonzero(~release.mask.any(axis=1))
    assert (release.steps[failed] == 1).any() and not release.labels[failed].any()


def test_scaling_reaches_what_answers() -> None:
    screen = Confident(answers=Peeling(k=1, scale_peel=3.0), sigma_confident=2.0, threshold_confident=12.0)
    twice = screen.scaled(2.0)
    assert (twice.sigma_confident, twice.threshold_confident) == (4.0, 12.0)
    assert twice.answers == Peeling(k=1, scale_peel=6.0)


def test_a_screen_for_another_relation_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected answers for add_remove_teacher, as the screen, got"):
        Confident(
            answers=Peeling(k=1, scale_peel=3.0),
            sigma_confident=2.0,
            threshold_confident=12.0,
            neighboring_relation=Relation.ADD_REMOVE_TEACHER,
        )
