"""Screens keep the contract, and settle for what was asked."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from pate import Votes, VoteShape
from pate._core.accounting.curves import gaussian_rdp
from pate._labeling.testing.aggregators import Grid, Law, Outcome
from pate.accounting import DEFAULT_ORDERS, GaussianThresholdEvent, NeighboringRelation as Relation
from pate.aggregators import (
    Aggregator,
    ConfidentScreen,
    Counts,
    FixedStableTopK,
    InteractiveScreen,
    NoisyVotes,
    Peeling,
    StableTopK,
)
from pate.testing import AggregatorContract
from tests.labeling.aggregators.oracles import counts, fixed_law, gaussian_labels_law, unanswered

_SIGNS = "the labels that answer tell the signs of noisy counts alone"


class TestConfidentScreen(AggregatorContract):
    loose_because = _SIGNS
    threshold = 1.2

    def answers(self, relation: Relation) -> Aggregator:
        return NoisyVotes(sigma_votes=1.5, neighboring_relation=relation)

    def answers_law(self, votes: Votes, relation: Relation) -> Law:
        return gaussian_labels_law([h - votes.num_teachers / 2 for h in counts(votes)], 1.5)

    def make(self, relation: Relation) -> Aggregator:
        return ConfidentScreen(
            answers=self.answers(relation),
            sigma_confident=0.8,
            threshold_confident=self.threshold,
            neighboring_relation=relation,
        )

    def statistic(self, votes: Votes) -> float:
        margins = [abs(h - votes.num_teachers / 2) for h in counts(votes)]
        return sum(margins) / len(margins)

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
        return [{"answers": NoisyVotes(sigma_votes=1.0, neighboring_relation=other)}]


class TestConfidentScreenBeforeCheapAnswers(TestConfidentScreen):
    """Next to nothing is told but by the screen: its own curve is reached."""

    loose_because = ""

    def answers(self, relation: Relation) -> Aggregator:
        return NoisyVotes(sigma_votes=60.0, neighboring_relation=relation)

    def answers_law(self, votes: Votes, relation: Relation) -> Law:
        return gaussian_labels_law([h - votes.num_teachers / 2 for h in counts(votes)], 60.0)

    def test_a_fifth_less_noise_is_caught(self) -> None:
        """That of the screen; a fifth of 60 more or less shows in no label."""
        whole: Any = self.make(Relation.REPLACE_RECORD)
        less = replace(whole, **{whole.noise_parameters[0]: 0.64})
        assert self._p_value(less, self.draws) < 1e-6


class TestConfidentScreenBeforeTiers(TestConfidentScreen):
    """Tiers of the screen and of what answers add up."""

    loose_because = "the worst case of k rounds of peeling is not what most ranks lead to"
    num_labels = 3
    num_teachers = 3
    grid: Grid = (((1, 1, 0), (1, 1, 0), (1, 1, 0)), ((0, 0, 1), (0, 1, 1), (1, 1, 1)))

    def answers(self, relation: Relation) -> Aggregator:
        return FixedStableTopK(
            k=2,
            rank_penalty=0.5,
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
            rank_penalty=0.5,
            scale=2.0,
            sigma=1.5,
            delta=0.05,
            shift=relation.score_range,
            scale_peel=1.2,
        )


class TestInteractiveScreen(TestConfidentScreen):
    predictions = (0.9, 0.35)
    min_confidence = 0.7
    threshold = 1.0

    def make(self, relation: Relation) -> Aggregator:
        return InteractiveScreen(
            answers=self.answers(relation),
            sigma_interactive=0.8,
            threshold_interactive=self.threshold,
            min_confidence=self.min_confidence,
            neighboring_relation=relation,
        )

    def statistic(self, votes: Votes) -> float:
        assert self.predictions is not None
        found = [
            abs(h - votes.num_teachers * p)
            for h, p in zip(counts(votes), self.predictions, strict=True)
        ]
        return sum(found) / len(found)

    def refused(self, votes: Votes) -> Outcome:
        return (1, 0, 1, 0, 0)  # the first prediction is sure, the second is not

    def malformed(self) -> list[dict[str, Any]]:
        return [*super().malformed(), {"min_confidence": 0.4}, {"min_confidence": 1.1}]


@pytest.mark.parametrize("contract", [TestConfidentScreen, TestInteractiveScreen])
@pytest.mark.parametrize("relation", Relation)
def test_an_answer_for_the_price_of_the_screen_is_refuted(
    contract: type[AggregatorContract], relation: Relation
) -> None:
    assert contract().unpaid(relation, relation, lambda tier: 0) > 0.01


@pytest.mark.parametrize("relation", Relation)
def test_a_screen_costs_two_over_pi_of_its_noise(relation: Relation) -> None:
    """Sensitivity 1 under either relation, and one bit of it."""
    common: dict[str, Any] = {"answers": NoisyVotes(sigma_votes=1.0, neighboring_relation=relation)}
    common |= {"neighboring_relation": relation}
    confident = ConfidentScreen(sigma_confident=7.0, threshold_confident=3.0, **common)
    interactive = InteractiveScreen(sigma_interactive=7.0, threshold_interactive=3.0, **common)
    for screen in (confident, interactive):
        for stated in Relation:
            event = screen.screen_event(stated)
            assert event == GaussianThresholdEvent(
                neighboring_relation=stated, noise_multiplier=7.0
            )
        share = screen.screen_event(relation).cost().rdp / gaussian_rdp(DEFAULT_ORDERS, 7.0)
        assert share[0] == pytest.approx(2 / np.pi, rel=1e-3)
        assert screen.event(VoteShape(9, 3), tier=0) == screen.screen_event(relation)
        with pytest.raises(ValueError, match="Expected an integer tier >= 0, got tier=-1"):
            screen.event(VoteShape(9, 3), tier=-1)


def test_most_is_answered_where_all_agree() -> None:
    shape = VoteShape(40, 3)
    screen = ConfidentScreen(
        sigma_confident=5.0, threshold_confident=14.0, answers=NoisyVotes(sigma_votes=1.0)
    )
    votes = Votes.from_counts(np.tile([40, 0, 40], (4000, 1)), 40)
    answered = screen.aggregate(votes, generator=np.random.default_rng(0)).mask[:, 0].mean()
    expected = screen.max_answer_probability(shape)
    assert expected == pytest.approx(ndtr(6 / 5)) and abs(answered - expected) < 4 * np.sqrt(
        0.1 / 4000
    )
    stable = StableTopK(scale_gap=2.0, sigma_test=9.0, delta_test=1e-6)
    assert 0 < stable.max_answer_probability(shape) < 0.9
    both = replace(screen, answers=stable).max_answer_probability(shape)
    assert both == pytest.approx(ndtr(6 / 5) * stable.max_answer_probability(shape))


def test_statistics_are_compared_with_the_threshold_itself() -> None:
    """A statistic at the threshold is asked half of the time, and never far below it."""
    votes = Votes.from_counts(np.repeat([[10, 6], [10, 5], [10, 4]], 4000, axis=0), 10)
    votes = replace(votes, predictions=np.tile([1.0, 0.2], (12_000, 1)))
    noisy = NoisyVotes(sigma_votes=1.0)
    for screen, shares in (
        (
            ConfidentScreen(answers=noisy, sigma_confident=0.01, threshold_confident=3.0),
            (0.5, 0.0, 0.5),
        ),
        (
            InteractiveScreen(answers=noisy, sigma_interactive=0.01, threshold_interactive=1.5),
            (1.0, 0.5, 0.0),
        ),
    ):
        tiers = screen.aggregate(votes, generator=np.random.default_rng(0)).tiers
        assert tiers is not None
        np.testing.assert_allclose(tiers.reshape(3, -1).mean(axis=1), shares, atol=0.04)


def test_what_a_student_is_sure_of_is_confirmed_with_its_own_share() -> None:
    """Soft values of what was not asked are the student's shares of the teachers, noiseless and
    public."""
    votes = Votes.from_counts(np.repeat([[9, 1, 6, 5]], 20, axis=0), 10)
    votes = replace(votes, predictions=np.tile([0.9, 0.1, 0.65, 0.5], (20, 1)))
    common: dict[str, Any] = {"answers": NoisyVotes(sigma_votes=1.0), "sigma_interactive": 0.01}
    release = InteractiveScreen(threshold_interactive=2.0, min_confidence=0.65, **common).aggregate(
        votes, generator=np.random.default_rng(0)
    )
    assert (
        release.noisy_counts is not None and release.tiers is not None and not release.tiers.any()
    )
    np.testing.assert_array_equal(release.mask, np.tile([True, True, True, False], (20, 1)))
    np.testing.assert_array_equal(release.labels, np.tile([1, 0, 1, 0], (20, 1)))
    np.testing.assert_allclose(release.noisy_counts, np.tile([9, 1, 6.5, 0], (20, 1)))
    assert InteractiveScreen(threshold_interactive=2.0, **common).min_confidence == 0.5
    for min_confidence, answered in ((0.5, True), (1.0, False)):
        screen = InteractiveScreen(
            threshold_interactive=2.0, min_confidence=min_confidence, **common
        )
        release = screen.aggregate(votes, generator=np.random.default_rng(0))
        assert (release.mask == answered).all()
        assert (release.labels == [answered, False, answered, False]).all()


def test_a_screen_of_a_screen_pays_both() -> None:
    inner = ConfidentScreen(
        answers=Peeling(k=1, scale_peel=3.0), sigma_confident=2.0, threshold_confident=12.0
    )
    outer = InteractiveScreen(answers=inner, sigma_interactive=2.0, threshold_interactive=5.0)
    assert outer.needs == {Counts, "predictions"}
    votes = Votes.from_counts(np.array([[40, 0, 39], [20, 21, 19], [40, 0, 40]]), 40)
    votes = replace(
        votes, predictions=np.array([[0.0, 1.0, 0.0], [0.9, 0.1, 0.9], [0.97, 0.02, 0.99]])
    )
    release = outer.aggregate(votes, generator=np.random.default_rng(0))
    assert release.tiers is not None
    assert release.tiers.tolist() == [2, 1, 0]
    assert release.labels[2].tolist() == [1, 0, 1] and release.mask[2].all()
    shape = VoteShape(40, 3)
    ladder = [outer.event(shape, tier=tier).cost().rdp for tier in (0, 1, 2)]
    assert (ladder[0] < ladder[1]).all() and (ladder[1] < ladder[2]).all()
    np.testing.assert_allclose(ladder[2], outer.event(shape).cost().rdp)


def test_a_screen_for_another_relation_is_refused() -> None:
    with pytest.raises(
        ValueError, match="Expected answers for add_remove_teacher, as the screen, got"
    ):
        ConfidentScreen(
            answers=Peeling(k=1, scale_peel=3.0),
            sigma_confident=2.0,
            threshold_confident=12.0,
            neighboring_relation=Relation.ADD_REMOVE_TEACHER,
        )
