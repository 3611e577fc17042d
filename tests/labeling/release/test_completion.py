"""A target completes a partial aggregator; without a target it is refused."""

import pytest

from pate import ClosedFormPlan, LabelSettings, Partial, VoteShape
from pate._core.accounting.charges import account
from pate._core.settings import decode, encode
from pate._core.validation import MOST_VOTERS
from pate._labeling.release.forecast import describe_hopeless
from pate._labeling.release.label_settings import complete_aggregator, resolve_settings
from pate.accounting import NeighboringRelation, Target, epsilon_of
from pate.aggregators import (
    Aggregator,
    ConfidentScreen,
    FixedStableTopK,
    NoisyVotes,
    Peeling,
    Rounds,
    StableTopK,
)

PANEL = VoteShape(60, 6)
TARGET = Target(epsilon=4.0, delta=1e-4, num_queries=50)


def test_missing_noise_is_one_and_what_is_given_stays() -> None:
    found = complete_aggregator(Partial(NoisyVotes, soft=False), TARGET, PANEL)
    assert found == NoisyVotes(sigma_votes=1.0, soft=False)
    assert complete_aggregator(found, TARGET, PANEL) is found
    assert complete_aggregator(Partial(Peeling, k=2), TARGET, PANEL) == Peeling(k=2, scale_peel=1.0)


def test_other_parameters_are_what_the_class_chooses() -> None:
    fixed = complete_aggregator(Partial(FixedStableTopK, k=2), TARGET, PANEL)
    assert isinstance(fixed, FixedStableTopK) and fixed.delta_test_fixed == 1e-4 / 100
    screen = complete_aggregator(Partial(ConfidentScreen, threshold_confident=7.0), TARGET, PANEL)
    assert isinstance(screen, ConfidentScreen) and screen.answers == NoisyVotes(sigma_votes=1.0)
    assert screen.threshold_confident == 7.0
    relation = NeighboringRelation.ADD_REMOVE_TEACHER
    other = Target(epsilon=4.0, delta=1e-4, num_queries=50, neighboring_relation=relation)
    rounds = complete_aggregator(None, other, PANEL)
    assert (
        isinstance(rounds, Rounds)
        and len(rounds.rounds) == 2
        and rounds.neighboring_relation is relation
    )


@pytest.mark.parametrize("aggregator", [Partial(StableTopK, delta_test=1e-6), None])
def test_without_a_target_nothing_may_be_missing(aggregator: Aggregator | None) -> None:
    with pytest.raises(
        ValueError, match=r"^Expected [^\n]*, or `target_epsilon`, which finds (it|one)"
    ):
        LabelSettings(aggregator, delta=1e-3)
    assert LabelSettings(aggregator, delta=1e-3, target_epsilon=1.0).aggregator == aggregator


def test_what_lies_within_is_completed() -> None:
    screen = Partial(ConfidentScreen, answers=Partial(NoisyVotes, soft=False))
    assert screen.missing == ("sigma_confident", "threshold_confident", "answers.sigma_votes")
    assert decode(Aggregator, encode(Aggregator, screen)).missing == screen.missing
    found = complete_aggregator(screen, TARGET, PANEL)
    assert found == ConfidentScreen(
        answers=NoisyVotes(sigma_votes=1.0, soft=False),
        sigma_confident=1.0,
        threshold_confident=20.0,
    )
    rounds = Partial(Rounds, rounds=(Partial(NoisyVotes), Partial(Peeling, k=2)))
    found = complete_aggregator(rounds, TARGET, PANEL)
    assert found == Rounds(rounds=(NoisyVotes(sigma_votes=1.0), Peeling(k=2, scale_peel=1.0)))
    mixed = Partial(ConfidentScreen, answers=Partial(NoisyVotes), sigma_confident=2.0)
    with pytest.raises(
        ValueError,
        match=r"^Expected all noise of ConfidentScreen or none of it, .*`aggregator.answers.sigma_votes`",
    ):
        complete_aggregator(mixed, TARGET, PANEL)


@pytest.mark.parametrize(
    ("plan", "delta", "number", "message"),
    [
        (ClosedFormPlan(), 1e-3, 1000, "delta = 0.001, not below one over their number"),
        (ClosedFormPlan(), 1e-3, 999, None),
        (
            ClosedFormPlan(),
            1e-5,
            14,
            "14 private records (or groups), each with a vote, for noise of 3",
        ),
        (ClosedFormPlan(), 1e-5, 15, None),
    ],
)
def test_what_shows_or_promises_nothing_is_told(
    plan: object, delta: float, number: int, message: str | None
) -> None:
    settings = LabelSettings(NoisyVotes(sigma_votes=3.0), delta=delta, num_queries=5)
    lines = [*describe_hopeless(plan, settings, number)]
    if message is None:
        assert not lines
    else:
        (line,) = lines
        assert message in line


@pytest.mark.parametrize(("aggregator", "gain"), [(StableTopK, 1.04), (NoisyVotes, 1.0)])
def test_a_target_is_what_a_statement_says_in_the_end(
    aggregator: type[Aggregator], gain: float
) -> None:
    """By the order of releases, where it tells more than their sum."""
    settings = LabelSettings(Partial(aggregator), delta=1e-5, target_epsilon=8.0)
    found, panel = resolve_settings(settings, VoteShape(120, 40), 40), VoteShape(120, 40)
    stated = account([found.charge(panel)], found.relation).get_epsilon(delta=1e-5)
    assert 8 * (1 - 1e-5) < stated <= 8
    (events, count) = found.charge(panel)
    assert epsilon_of(events[found.relation], count=count, delta=1e-5) >= stated * gain
    assert resolve_settings(found, panel, 40) == found


def test_a_target_over_an_earlier_release_is_for_records_or_the_same_voters() -> None:
    """An earlier release had other teachers, so that no total for one teacher covers both."""
    relation = NeighboringRelation.ADD_REMOVE_TEACHER
    settings = LabelSettings(
        Partial(NoisyVotes, neighboring_relation=relation), delta=1e-10, target_epsilon=8.0
    )
    before = [(NoisyVotes(sigma_votes=1e5, neighboring_relation=relation).events(PANEL), 10)]
    with pytest.raises(ValueError, match=r"^Expected an aggregator for replace_record with a"):
        resolve_settings(settings, PANEL, 40, before=before)
    # records that vote are the same ones in both
    panel = VoteShape(MOST_VOTERS, 6)
    found = resolve_settings(settings, panel, 40, before=before)
    assert found.mechanism.noise["sigma_votes"] > 0
