"""Peeling, beyond the few items of the contract."""

from typing import Any

import numpy as np
import pytest

from pate import mechanisms as m
from pate._core.mechanisms import peeling
from pate._core.testing.laws import chi_square_p_value
from pate.accounting import NeighboringRelation, PureDPEvent, RepeatedEvent
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles
from tests.core.mechanisms.scripted import Scripted

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


@pytest.mark.parametrize(("shortest", "draws"), [(1024, 4000), (1, 600)])
def test_permute_and_flip_follows_its_law_to_the_last_choice(
    shortest: int, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All items of a row at once, and those alone whose first digits allow it, as of a long
    list."""
    monkeypatch.setattr(peeling, "_LONG", shortest)
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


def test_first_digits_leave_out_no_item_that_could_come_first() -> None:
    """By all digits of all items: those that a long list looks at, and others that come after the
    best one."""

    class Watched:
        def integers(self, high: int, *, size: int, dtype: type = np.int64) -> oracles.Array:
            drawn: oracles.Array = generator.integers(high, size=size, dtype=dtype)
            words.append(drawn)
            return drawn

    scores, scale, first = np.sort(m.seeded_generator(0).integers(0, 2000, 1500))[::-1], 3.0, 0
    for seed in range(200):
        generator, words = m.seeded_generator(seed), list[oracles.Array]()
        (chosen,) = m.PermuteAndFlipPeeling(k=1, scale=scale)._peel_long(scores[None], Watched())[0]  # type: ignore[arg-type]
        coins = words[0].view(np.uint16)[:1500].astype(float)
        # of what was not drawn, the digits that favour an item most
        keys = (scores[0] - scores) + scale * np.log(np.maximum(coins, 0.5) / 2**16)
        assert keys[chosen] <= 0
        first += int(chosen == np.argmin(keys))
    assert first >= 199  # the digits that follow hardly ever change the order


def test_long_lists_are_peeled_by_the_digits_of_their_coins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Items are looked at if 16 digits of their numbers leave it open, by one unit more; 37 digits
    follow."""
    scores, scale = np.array([10, 9, 7, 2, 0]), 2.0
    seen: list[tuple[list[float], list[float]]] = []

    def record(below: oracles.Array, k: int, *, tails: oracles.Array, **_: Any) -> oracles.Array:
        seen.append((below[0].tolist(), (tails[0] * 2.0**53).tolist()))
        return np.zeros((1, k), dtype=np.int64)

    monkeypatch.setattr(peeling, "sample_k_smallest", record)
    # the first time all coins are as large as they may be; then one is too large, and the first
    # item is taken
    first = np.floor(np.exp((scores - 10) / scale) * 2**16 + 1).astype(int).clip(max=2**16 - 1)
    second = np.floor(np.exp((scores - 9) / scale) * 2**16 + 1).astype(int).clip(max=2**16 - 1)
    second[[0, 3]] = 0, second[3] + 1
    script = [
        part
        for coins, digits in ((first, [0, 1, 2**37 - 1, 2**36, 5]), (second, [3, 2, 2**37 - 1]))
        for part in (np.concatenate((coins, [0, 0, 0])).astype(np.uint16).view(np.uint64), digits)
    ]
    generator = Scripted(*script)
    chosen = m.PermuteAndFlipPeeling(k=2, scale=scale)._peel_long(scores[None], generator)
    assert chosen.tolist() == [[0, 1]] and generator.ranges == [(0, 2**64), (0, 2**37)] * 2
    expected = [
        ([0, 1, 3, 8, 10], first, script[1], [0, 1, 2, 3, 4]),
        ([0, 2, 9], second, script[3], [1, 2, 4]),
    ]
    for (below, tails), (distances, coins, digits, places) in zip(seen, expected, strict=True):
        assert below == distances
        assert tails == [
            int(coins[at]) * 2**37 + digit for at, digit in zip(places, digits, strict=True)
        ]


@pytest.mark.parametrize("mechanism", [m.GumbelPeeling, m.PermuteAndFlipPeeling])
@pytest.mark.parametrize("shortest", [1024, 1])
def test_a_unit_changes_nothing(
    mechanism: Any, shortest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peeling, "_LONG", shortest)
    scores = np.tile(LEVELS, (50, 1))
    chosen, *others = (
        mechanism(k=5, scale=unit)(scores * unit, generator=np.random.default_rng(1))
        for unit in (1.0, 2.0**24, 2.0**-60)
    )
    for other in others:
        np.testing.assert_array_equal(chosen, other)


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


def test_event_of_one_round_is_not_repeated() -> None:
    relation = NeighboringRelation.REPLACE_RECORD
    choice = PureDPEvent(neighboring_relation=relation, epsilon=0.5)
    assert m.PermuteAndFlipPeeling(k=1, scale=4.0).event(relation) == choice
    assert m.PermuteAndFlipPeeling(k=7, scale=4.0).event(relation) == RepeatedEvent(
        event=choice, count=7
    )
