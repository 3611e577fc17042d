"""The laws of the draws of a release, which an audit compares with what it shows."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pate import Votes
from pate.aggregators import (
    Aggregator,
    ConfidentScreen,
    InteractiveScreen,
    NoisyVotes,
    Peeling,
    Release,
    TauVoting,
)
from pate.mechanisms import NotStatedError

DRAWN = 4000
RANDOM = np.random.default_rng(0)
BALLOTS = Votes.from_ballots(RANDOM.integers(0, 2, (2, 12, 3))).with_public(
    predictions=RANDOM.random((2, 3))
)
ANSWERS = NoisyVotes(sigma_votes=2.0, soft=False)
AGGREGATORS: list[Aggregator] = [
    NoisyVotes(sigma_votes=2.0, soft=False, min_lead=1.0),
    TauVoting(tau=1.0, sigma_tau=1.5, threshold_tau=4.0),
    TauVoting(tau=1.0, sigma_tau=1.5, threshold_tau=4.0, around_predictions=True, norm="l1"),
    ConfidentScreen(answers=ANSWERS, sigma_confident=1.0, threshold_confident=1.5, num_top=2),
    InteractiveScreen(
        answers=ANSWERS, sigma_interactive=1.0, threshold_interactive=3.0, over="worst"
    ),
    Peeling(k=2, scale_peel=2.0),
]


def errors(aggregator: Aggregator, stated: Aggregator) -> float:
    """Return the largest distance of shares of outcomes from their chances, in standard errors."""
    draws, generator = stated.draws(BALLOTS), np.random.default_rng(1)
    shown = [
        draws.shown(aggregator.aggregate(BALLOTS, generator=generator)).tolist()
        for _ in range(DRAWN)
    ]
    assert min(map(min, shown)) >= 0
    found = np.zeros(draws.chances.shape)
    for place, outcomes in enumerate(zip(*shown, strict=True)):
        for outcome, times in Counter(outcomes).items():
            found[place, outcome] = times / DRAWN
    deviation = np.sqrt(draws.chances * (1 - draws.chances) / DRAWN) + 1e-9
    return float((np.abs(found - draws.chances) / deviation).max())


@pytest.mark.slow
@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=lambda each: type(each).__name__)
def test_outcomes_are_as_frequent_as_stated(aggregator: Aggregator) -> None:
    """And not as frequent as with seven tenths of the noise."""
    assert errors(aggregator, aggregator) < 5
    assert errors(aggregator.scaled(0.7), aggregator) > 5


@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=lambda each: type(each).__name__)
def test_each_draw_has_one_outcome(aggregator: Aggregator) -> None:
    chances = aggregator.draws(BALLOTS).chances
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (chances >= 0).all()


@dataclass(frozen=True, kw_only=True)
class Coins(NoisyVotes):
    """Draws otherwise than its base."""

    def aggregate(self, votes: Any, *, generator: np.random.Generator) -> Release:
        labels = generator.integers(0, 2, votes.counts.shape, dtype=np.uint8)
        return Release(labels, np.ones(labels.shape, dtype=np.bool_))


def test_who_draws_otherwise_has_no_law_of_its_base() -> None:
    with pytest.raises(NotStatedError, match="the law of Coins is not known"):
        Coins(sigma_votes=2.0).draws(BALLOTS)
