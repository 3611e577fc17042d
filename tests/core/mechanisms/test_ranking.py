"""Scores as exact distances from one of them, sorted with their indices, and sums with noise."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate._core.mechanisms.exact_choice import (
    NEAR,
    below_rank,
    has_near_ties,
    rank,
    sort_ascending,
)
from pate._core.mechanisms.noise import with_noise
from pate.mechanisms import seeded_generator


@pytest.mark.parametrize(
    ("scores", "below"),
    [
        (np.array([[3, 250, 0]], dtype=np.uint8), [247, 0, 250]),
        (np.array([[-128, 127]], dtype=np.int8), [255, 0]),
        (np.array([[2**63 - 1, 2**63 - 2, 2**63 - 1]]), [0, 1, 0]),
        (np.array([[-(2**63), 2**63 - 1]]), [2**64, 0]),
        (np.array([[2**64 - 1, 2**64 - 3, 5]], dtype=np.uint64), [0, 2, 2**64 - 6]),
        (np.array([[0.5, -0.25]], dtype=np.float32), [0, 0.75]),
    ],
)
def test_distances_neither_wrap_nor_lose_digits(scores: NDArray[Any], below: list[float]) -> None:
    np.testing.assert_array_equal(below_rank(scores, 1)[0], np.array(below, dtype=np.float64))
    order, ranked = rank(scores)
    assert order.dtype == np.int64 and ranked.dtype == scores.dtype
    np.testing.assert_array_equal(ranked[0], np.sort(scores[0])[::-1])
    np.testing.assert_array_equal(np.take_along_axis(scores, order, axis=1), ranked)


def test_distances_are_from_the_score_of_a_rank_and_end_at_their_reach() -> None:
    scores = np.array([[2**63 - 1, 2**53 + 1, 2**53, 7, -(2**63)]])
    exact = [2**53 - (2**63 - 1), -1, 0, 2**53 - 7, 2**53 + 2**63]
    np.testing.assert_array_equal(below_rank(scores, 3)[0], np.array(exact, dtype=np.float64))
    np.testing.assert_array_equal(below_rank(scores, 3, reach=9.0)[0], [-9, -1, 0, 9, 9])
    large = np.array([[2**64 - 1, 2**63 + 1, 2**63]], dtype=np.uint64)
    np.testing.assert_array_equal(below_rank(large, 2)[0], [2.0 - 2**63, 0, 1])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_distances_are_those_of_integers_at_every_rank(dtype: type[np.integer]) -> None:
    """Of all triples of numbers at the ends of a type and in its middle, each rounded once, as
    Python rounds it."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    for triple in itertools.product({low, low + 1, 0, 1, high - 1, high}, repeat=3):
        ordered, scores = sorted(triple, reverse=True), np.array([triple], dtype=dtype)
        for k in (1, 2, 3):
            exact = [float(ordered[k - 1] - score) for score in triple]
            np.testing.assert_array_equal(below_rank(scores, k)[0], exact)
        # a sum with noise is that of fractions, rounded once
        sums = [float(Fraction(score) + Fraction(3, 8)) for score in triple]
        np.testing.assert_array_equal(with_noise(scores, np.full((1, 3), 0.375))[0], sums)


def test_scores_of_a_batch_are_near_one_another_up_to_a_bound() -> None:
    rows = np.array([[3, 4], [3 - 7 * int(NEAR), 0]])
    assert has_near_ties(rows[:1], 1e-3) and has_near_ties(rows[:0], 1e-3)
    assert not has_near_ties(rows, 7.0) and has_near_ties(rows - [[1, 2], [0, 0]], 7.0)


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_clipped_distances_move_within_the_window_of_the_scores(window: int, k: int) -> None:
    """All scores of three items and all moves within the window, which contains no move at all."""
    scores = np.array(list(np.ndindex(6, 6, 6)))
    lowest = 0 if window == 1 else -1
    moves = np.array(list(np.ndindex((window + 1,) * 3))) + lowest
    pairs = scores[:, None] + moves
    for reach in (1.0, 2.0, 3.0, 8.0):
        before = below_rank(scores, k, reach=reach)[:, None]
        after = below_rank(pairs.reshape(-1, 3), k, reach=reach).reshape(pairs.shape)
        spread = np.ptp(after - before, axis=2)
        assert spread.max() == window, reach
        assert np.abs(after - before).max() <= window
    # gaps that are clipped one by one, as one might, leave the window
    descending = np.sort(pairs, axis=2)[..., ::-1]
    clipped = np.minimum(descending[..., :-1] - descending[..., 1:], 2).sum(axis=2)
    still = np.sort(scores)[:, ::-1]
    unmoved = np.minimum(still[:, :-1] - still[:, 1:], 2).sum(axis=1)[:, None]
    assert np.abs(clipped - unmoved).max() >= window


def test_a_sum_with_noise_is_rounded_once() -> None:
    scores, noise = np.array([[2**60 + 1, 2**60 + 127, 3]]), np.array([[0.25, 1.5, 0.25]])
    # rounded first, the second would have lost the vote that carries it to the next float
    np.testing.assert_array_equal(with_noise(scores, noise), [[2.0**60, 2.0**60 + 256, 3.25]])
    np.testing.assert_array_equal(
        with_noise(-scores, -noise), [[-(2.0**60), -(2.0**60) - 256, -3.25]]
    )
    np.testing.assert_array_equal(with_noise(np.array([[3, 4]]), noise[:, :2]), [[3.25, 5.5]])


@pytest.mark.parametrize("spread", [5, 2**16 // 6 * 5, 2**20, 2**32 // 6 * 5, 2**40, 2**62])
@pytest.mark.parametrize("num_items", [1, 2, 33, 4096])
def test_keys_and_digits_sort_as_a_stable_sort_does(spread: int, num_items: int) -> None:
    values = seeded_generator(0).integers(0, min(spread, 7), (20, num_items)) * (spread // 5)
    for rows in (values, values[:0]):
        order, ascending = sort_ascending(rows, largest=6 * (spread // 5))
        expected = np.argsort(rows, axis=1, kind="stable")
        np.testing.assert_array_equal(order, expected)
        np.testing.assert_array_equal(ascending, np.take_along_axis(rows, expected, axis=1))
        assert order.dtype == np.int64 and ascending.dtype.kind in "iu"
