"""One target for two releases, and the number of teachers that it suggests."""

import pytest

from pate import LabelSettings, Partial, VoteShape
from pate._labeling.release.label_settings import (
    first_settings,
    resolve_settings,
    teachers_for,
)
from pate.accounting import NeighboringRelation, RDPAccountant
from pate.aggregators import Moments, NoisyVotes, ScoreVotes

SHAPE, FIRST_SHAPE, SIZE = VoteShape(2000, 5), VoteShape(1 << 23, 5), 400


def asked(epsilon: float = 1.0, reach: int = 1) -> LabelSettings:
    return LabelSettings(
        Partial(NoisyVotes),
        delta=1e-6,
        target_epsilon=epsilon,
        num_queries=50,
        max_teachers_per_unit=reach,
    )


@pytest.mark.parametrize("reach", [1, 2])
def test_both_releases_together_meet_the_target(reach: int) -> None:
    settings = asked(reach=reach)
    first = resolve_settings(first_settings(settings), FIRST_SHAPE, SIZE, Moments)
    assert isinstance(first.aggregator, ScoreVotes)
    before = first.charge(FIRST_SHAPE)
    second = resolve_settings(settings, SHAPE, SIZE, before=[before])
    accountant = RDPAccountant(relation=NeighboringRelation.REPLACE_RECORD)
    after = second.charge(SHAPE)
    assert after is not None
    for events, count in (before, after):
        event = events[NeighboringRelation.REPLACE_RECORD].for_group_size(reach)
        accountant.compose(event, count)
    assert 0.999 < accountant.get_epsilon(delta=1e-6) <= 1.0
    alone = resolve_settings(settings, SHAPE, SIZE).mechanism
    ratio = second.mechanism.sigma_votes / alone.sigma_votes  # type: ignore[attr-defined]
    assert 1.41 < ratio < 1.42


def test_half_of_the_squared_budget_is_for_the_first() -> None:
    def whole(epsilon: float) -> ScoreVotes:
        settings = LabelSettings(Partial(ScoreVotes), delta=1e-6, target_epsilon=epsilon)
        chosen = resolve_settings(settings, FIRST_SHAPE, SIZE, Moments).aggregator
        assert isinstance(chosen, ScoreVotes)
        return chosen

    first = first_settings(asked())
    assert first.target_epsilon is not None
    ratio = whole(first.target_epsilon).multiplier_scores / whole(1.0).multiplier_scores
    assert ratio**2 == pytest.approx(2, rel=1e-4)


def test_more_budget_needs_fewer_teachers() -> None:
    numbers = [teachers_for(asked(epsilon), 5, SIZE, []) for epsilon in (0.5, 1.0, 4.0)]
    assert numbers == sorted(numbers, reverse=True) and numbers[0] > 2 * numbers[-1]
    assert all(number % 10 == 0 or number < 100 for number in numbers)


def test_the_first_release_is_paid_before_teachers_start_from_it() -> None:
    first = resolve_settings(first_settings(asked()), FIRST_SHAPE, SIZE, Moments)
    number = teachers_for(asked(), 5, SIZE, [first.charge(FIRST_SHAPE)])
    assert 1.3 < number / teachers_for(asked(), 5, SIZE, []) < 1.6
