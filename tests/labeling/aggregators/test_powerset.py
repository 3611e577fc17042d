"""Powerset voting keeps the contract."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from pate import Votes
from pate._core.mechanisms import exact_choice as race
from pate._labeling.aggregators import noisy_votes as powerset
from pate._labeling.testing.aggregators import Law
from pate.accounting import NeighboringRelation as Relation
from pate.aggregators import Aggregator, Ballots, Powerset
from pate.testing import AggregatorContract
from tests.core.mechanisms import oracles
from tests.labeling.aggregators.oracles import sets_law


class TestPowerset(AggregatorContract):
    scale = 1.0

    def make(self, relation: Relation) -> Aggregator:
        return Powerset(scale_powerset=self.scale, neighboring_relation=relation)

    def law(self, votes: Ballots, relation: Relation) -> Law:
        sets = list(itertools.product((0, 1), repeat=self.num_labels))
        said = [tuple(ballot) for ballot in votes.ballots[0].tolist()]
        chances = oracles.softmax(np.array([said.count(each) for each in sets]) / self.scale)
        return sets_law([np.flatnonzero(each).tolist() for each in sets], chances, self.num_labels)

    def malformed(self) -> list[dict[str, Any]]:
        return [{"scale_powerset": float("inf")}]


def test_64_labels_and_no_more() -> None:
    generator = np.random.default_rng(0)
    ballots = np.zeros((3, 30, 64), dtype=np.uint8)
    ballots[0], ballots[1, :, 63], ballots[2, :, ::2] = 1, 1, 1
    for num_labels in (12, 64):  # codes of two bytes and of eight
        some = ballots[..., :num_labels]
        release = Powerset(scale_powerset=0.1).aggregate(
            Votes.from_ballots(some), generator=generator
        )
        np.testing.assert_array_equal(release.labels, some[:, 0])
    wide = Votes.from_ballots(np.zeros((1, 2, 65), dtype=np.uint8))
    with pytest.raises(ValueError, match="Expected num_labels <= 64, got num_labels=65"):
        Powerset(scale_powerset=0.1).aggregate(wide, generator=generator)


@pytest.mark.parametrize("scale", [0.8, 3.0])
def test_chances_by_floats_are_those_of_fractions_one_by_one(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set is proposed by its share, and kept with its weight over that, and over a rate that all
    rows exceed."""
    ballots = (np.random.default_rng(0).random((300, 4, 3)) < 0.4).astype(np.uint8)
    places = set()

    def compare(log_rates: np.ndarray, propose: Any, *_: Any, **__: Any) -> Any:
        proposals = propose(np.arange(len(log_rates)))
        for place, log_chance in enumerate(proposals.log_chances.tolist()):
            factor, low, high = proposals.chance(place)
            falls = math.exp(-low) - (0 if high is None else math.exp(-high))
            assert (
                math.log(factor * falls) == pytest.approx(log_chance, abs=1e-9)
                and log_chance < -race.SLACK / 2
            )
            places.add(high is None)
        return proposals.outcomes

    monkeypatch.setattr(powerset, "draw", compare)
    votes = Votes.from_ballots(ballots)
    Powerset(scale_powerset=scale).aggregate(votes, generator=np.random.default_rng(1))
    assert places == {False, True}


def test_chances_by_floats_are_those_of_fractions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to floats in the second half, and all comes out the same, sets that nobody
    named included."""
    ballots = (np.random.default_rng(0).random((100, 4, 3)) < 0.4).astype(np.uint8)

    def drawn() -> np.ndarray:
        votes, generator = Votes.from_ballots(ballots), np.random.default_rng(1)
        return np.asarray(Powerset(scale_powerset=0.8).aggregate(votes, generator=generator).labels)

    expected = drawn()
    assert not (expected[:, None] == ballots).all(axis=2).any(axis=1).all()
    monkeypatch.setattr(race, "_LOG_MARGIN", math.inf)
    np.testing.assert_array_equal(drawn(), expected)
