"""Permute-and-flip from draws of the exponential mechanism."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.mechanisms._noise import seeded_generator
from pate.mechanisms._permute_flip import first_head, first_heads
from pate.testing._laws import chi_square_p_value
from tests.mechanisms import oracles


@pytest.mark.parametrize("envelope", [0.0, 3.0])
def test_winner_follows_the_law_through_an_envelope(envelope: float) -> None:
    """Candidates that the envelope rejects cost time but change nothing."""
    generator = seeded_generator(0)
    chance = np.array([1.0, 0.7, 0.2, 1e-3])
    cumulative = np.cumsum(chance)
    total = cumulative[-1] + envelope

    def propose() -> tuple[int, float] | None:
        item = int(np.searchsorted(cumulative, generator.random() * total, side="right"))
        return (item, chance[item]) if item < chance.size else None

    draws = 8_000
    won = [first_head(np.log(total), propose, generator) for _ in range(draws)]
    law = oracles.flip_law(np.log(chance))
    assert chi_square_p_value(np.bincount(won, minlength=4), draws * law) > 1e-4
    # the exponential mechanism has another law
    assert chi_square_p_value(np.bincount(won, minlength=4), draws * chance / chance.sum()) < 1e-9


def test_rows_are_drawn_each_by_its_own_law() -> None:
    draws = 20_000
    chances = np.array([[1.0, 0.5, 0.0], [0.1, 1.0, 0.9]])
    rows = np.repeat([0, 1], draws)
    cumulative = np.cumsum(chances, axis=1)
    generator = seeded_generator(1)

    def propose(at: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        mass = generator.random(at.size) * cumulative[rows[at], -1]
        item = (cumulative[rows[at]] <= mass[:, None]).sum(axis=1)
        return item[:, None], chances[rows[at], item]

    won = first_heads(np.log(cumulative[rows, -1]), propose, generator)[:, 0]
    for row in (0, 1):
        with np.errstate(divide="ignore"):
            law = oracles.flip_law(np.log(chances[row]))
        assert chi_square_p_value(np.bincount(won[rows == row], minlength=3), draws * law) > 1e-4


def test_a_thousand_equal_items_need_few_candidates() -> None:
    """About two candidates are needed, however many items there are."""
    generator = seeded_generator(2)
    asked = 0

    def propose() -> tuple[int, float]:
        nonlocal asked
        asked += 1
        return int(generator.integers(1000)), 1.0

    won = [first_head(np.log(1000.0), propose, generator) for _ in range(1000)]
    assert len(set(won)) > 500
    assert asked < 2300


def test_no_rows() -> None:
    assert first_heads(np.zeros(0), lambda at: (at[:, None], np.ones(at.size)), seeded_generator(0)).size == 0
