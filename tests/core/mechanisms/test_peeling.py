"""Peeling, beyond the few items of the contract."""

import numpy as np
import pytest

from pate import mechanisms as m
from pate._core.testing.laws import chi_square_p_value
from pate.accounting import NeighboringRelation
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles

# two levels so far apart that chances are computed anew when the first is used up
LEVELS = np.array([80.0, 0.3, 81.0, 0.0, 1.0, 80.5])


class TestGumbelPeeling(MechanismContract):
    num_items = 4
    max_count = 2
    grid = ((2, 2, 0, 1), (1, 1, 1, 1), (0, 2, 2, 0))

    def make(self, relation: NeighboringRelation) -> m.TopKMechanism:
        return m.GumbelPeeling(k=2, scale=2.0)

    def outcomes(self) -> list[tuple[int, ...]]:
        return oracles.sequences(self.num_items, 2)

    def law(self, mechanism: m.TopKMechanism, scores: oracles.Array) -> oracles.Array:
        return oracles.peel_law(tuple(scores / mechanism.scale), self.outcomes(), oracles.softmax)


class TestPermuteAndFlipPeeling(TestGumbelPeeling):
    def make(self, relation: NeighboringRelation) -> m.TopKMechanism:
        return m.PermuteAndFlipPeeling(k=2, scale=2.0)

    def law(self, mechanism: m.TopKMechanism, scores: oracles.Array) -> oracles.Array:
        return oracles.peel_law(tuple(scores / mechanism.scale), self.outcomes(), oracles.flip_law)


def test_one_shot_noise_is_peeling_without_its_order() -> None:
    peeled = m.GumbelPeeling(k=3, scale=20.0)(LEVELS, generator=m.seeded_generator(0))
    chosen = m.NoisyTopK(k=3, scale=20.0)(LEVELS, generator=m.seeded_generator(0))
    np.testing.assert_array_equal(np.sort(peeled), chosen)


def test_permute_and_flip_follows_its_law_to_the_last_choice() -> None:
    draws = 4000
    listing = oracles.sequences(len(LEVELS), 5)
    law = oracles.peel_law(tuple(LEVELS), listing, oracles.flip_law)
    index = {sequence: i for i, sequence in enumerate(listing)}
    drawn = m.PermuteAndFlipPeeling(k=5, scale=1.0)(
        np.tile(LEVELS, (draws, 1)), generator=m.seeded_generator(0)
    )
    observed = np.bincount([index[tuple(row)] for row in drawn.tolist()], minlength=len(listing))
    assert chi_square_p_value(observed, draws * law) > 1e-4
    other = oracles.peel_law(tuple(LEVELS), listing, oracles.softmax)
    assert chi_square_p_value(observed, draws * other) < 1e-9


def test_a_giant_count_does_not_drown_the_noise_of_later_choices() -> None:
    """Distances are taken from the best that is left."""
    scores = np.tile([2**50, 1, 0], (2000, 1))
    second = m.PermuteAndFlipPeeling(k=2, scale=1.0)(scores, generator=m.seeded_generator(0))[:, 1]
    assert np.bincount(second, minlength=3)[2] / 2000 == pytest.approx(np.exp(-1) / 2, abs=0.05)


def test_all_items_are_peeled_in_the_end() -> None:
    scores = m.seeded_generator(0).integers(0, 1000, 300)
    for mechanism in (m.GumbelPeeling(k=300, scale=3.0), m.PermuteAndFlipPeeling(k=300, scale=3.0)):
        assert sorted(mechanism(scores, generator=m.seeded_generator(1)).tolist()) == list(
            range(300)
        )
