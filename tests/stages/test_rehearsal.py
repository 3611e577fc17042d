"""What an aggregator refuses is refused before any vote is read."""

from typing import Any

import numpy as np
import pytest

from pate.aggregators import ConfidentScreen, NoisyVotes, StableTopK
from pate.aggregators.base import Release
from pate.stages.rehearsal import rehearse
from pate.votes import Panel


def test_votes_are_constant_and_noise_is_nobodys() -> None:
    """Each number of queries that a screen may leave is tried."""
    seen: list[Any] = []

    class Watched(NoisyVotes):
        def aggregate(self, votes: Any, *, generator: np.random.Generator) -> Release:
            key = generator.bit_generator.state["state"]["key"].tolist()
            seen.append((votes.num_queries, votes.counts.tolist(), key))
            return super().aggregate(votes, generator=generator)

    rehearse(Watched(sigma_votes=1.0), Panel(8, 2))
    assert [queries for queries, _, _ in seen] == [0, 1, 6]
    assert seen[-1][1] == [[0, 0], [8, 8], [4, 4], [0, 0], [8, 8], [4, 4]]
    assert {tuple(key) for _, _, key in seen} == {(0, 0)}


def test_what_an_aggregator_refuses_is_raised() -> None:
    refusing = StableTopK(scale_gap=1, sigma_test=1, delta_test=0.1, allow_empty=False)
    with pytest.raises(ValueError, match="Expected"):
        rehearse(refusing, Panel(8, 1))


def test_a_screen_is_rehearsed_with_what_it_asks() -> None:
    rehearse(ConfidentScreen(answers=NoisyVotes(sigma_votes=1), sigma_confident=1, threshold_confident=2), Panel(8, 3))
