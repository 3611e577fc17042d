"""Permute-and-flip by proposals in bands, beside the law of all coins."""

import math
from collections import Counter

import numpy as np
import pytest

from pate._core.mechanisms import flips
from pate._core.mechanisms.flips import FlipRounds
from pate._core.mechanisms.ranking import Rows
from pate._core.testing.laws import chi_square_p_value
from pate.mechanisms import seeded_generator
from tests.core.mechanisms import oracles

SCORES = {
    "near": np.array([7, 6, 6, 4, 3]),
    "tied": np.array([5, 5, 5, 5]),
    "tied below": np.array([4.25, 2.5, 2.5, 2.5, -1e9]),
    "two levels": np.array([81.0, 80.5, 80.0, 1.0, 0.3, 0.0]),
    "beyond reach": np.array([2**63 + 4, 2**63 + 3, 3, 2, 2], dtype=np.uint64),
}
# whose differences floats hold; those between the two groups are as good as infinite
NEARER = (1e6 + 1, 1e6, 3.0, 2.0, 2.0)


def peeled(
    scores: Rows, k: int, seed: int | np.random.Generator, *, scale: float = 1.0
) -> tuple[int, ...]:
    generator = seeded_generator(seed) if isinstance(seed, int) else seed
    rounds = FlipRounds(scores, scale, generator)
    return tuple(rounds.choose() for _ in range(k))


@pytest.mark.parametrize("levels", [48, 2, 1])
@pytest.mark.parametrize("name", SCORES)
def test_rounds_follow_the_law_of_all_coins(
    name: str, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few levels, nearly all items share the last band. The law of the exponential mechanism
    is another one."""
    monkeypatch.setattr(flips, "_LEVELS", levels)
    scores, draws = SCORES[name], 1000
    listing = oracles.sequences(len(scores), 3)
    generator = seeded_generator(0)
    seen = Counter(peeled(scores, 3, generator) for _ in range(draws))
    observed = np.array([seen[sequence] for sequence in listing])
    utilities = NEARER if name == "beyond reach" else tuple(scores.tolist())
    law = oracles.peel_law(utilities, listing, oracles.flip_law)
    assert chi_square_p_value(observed, draws * law) > 1e-4
    if name != "tied":
        other = oracles.peel_law(utilities, listing, oracles.softmax)
        assert chi_square_p_value(observed, draws * other) < 1e-6


def test_every_item_is_proposed_at_the_rate_of_its_band(monkeypatch: pytest.MonkeyPatch) -> None:
    """All marks are listed: each item has as many as its band says, and that is enough."""
    monkeypatch.setattr(flips, "_LEVELS", 5)
    scores = np.array([9, 9, 8, 8, 6, 5, 4, 2, 0, -30])
    rounds = FlipRounds(scores, 1.5, seeded_generator(4))
    taken = [rounds.choose() for _ in range(3)]
    proposals = [rounds._proposed(mark) for mark in range(1 << rounds._weight.bit_length())]
    marks = Counter(found.rank for found in proposals if found is not None)
    assert sorted(marks) == sorted({*range(10)} - {*taken})
    for found in proposals:
        if found is not None:
            chance = math.exp((scores[found.rank] - 9) / 1.5)
            assert marks[found.rank] == 2 ** (5 - found.level)
            assert chance <= 2.0**-found.level and (
                found.level == 5 or chance > 2.0**-found.level / 2.01
            )


def test_an_item_of_the_last_band_is_proposed_until_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flips, "_LEVELS", 1)
    rounds = FlipRounds(np.array([3, 0, 0, 0]), 2.0, seeded_generator(0))
    first = [rounds.choose(), rounds.choose()]
    found = [rounds._proposed(mark) for mark in range(8)]
    assert {each.rank for each in found if each is not None} == {0, 1, 2, 3} - {*first}


def test_what_floats_decide_is_what_digits_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to floats in the second half, and all comes out the same."""
    scores = np.sort(seeded_generator(0).integers(0, 60, 40))[::-1]
    expected = [peeled(scores, 8, seed, scale=7.0) for seed in range(12)]
    assert len({*expected}) == 12
    for name in ("MARGIN", "_FAINT"):
        with monkeypatch.context() as patch:
            patch.setattr(flips, name, math.inf)
            assert [peeled(scores, 8, seed, scale=7.0) for seed in range(12)] == expected


def test_bands_are_made_anew_where_the_best_one_left_has_fallen() -> None:
    """In the order of scores, where each lies 50 scales below the one before."""
    scores = 50 * np.arange(100)[::-1]
    assert peeled(scores, 100, 0) == tuple(range(100))


@pytest.mark.parametrize("num_items", [1, 2, 1500])
def test_all_items_are_peeled_in_the_end(num_items: int) -> None:
    scores = np.sort(seeded_generator(1).integers(0, 300, num_items))[::-1]
    assert sorted(peeled(scores, num_items, 2, scale=10.0)) == list(range(num_items))


def test_a_longer_list_takes_no_more_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred times as many items, all far below, hardly any is proposed."""
    monkeypatch.setattr(flips, "_BATCH", 1)

    class Counted(np.random.Generator):
        words = 0

        def integers(self, *args: object, **settings: object) -> object:  # type: ignore[override]
            self.words += 1
            return super().integers(*args, **settings)  # type: ignore[call-overload]

    used = []
    for rest in (100, 10_000):
        generator = Counted(np.random.Philox(0))
        rounds = FlipRounds(np.append(np.arange(60)[::-1], np.full(rest, -40)), 3.0, generator)
        for _ in range(30):
            rounds.choose()
        used.append(generator.words)
    assert used[0] < 30 * 20 and abs(used[1] - used[0]) < 60
