"""Scores as exact distances below the largest, sorted with their indices."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from pate.mechanisms.noise import seeded_generator
from pate.mechanisms.ranking import as_rows, deficits, k_smallest, rank, sort_ascending


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
    np.testing.assert_array_equal(deficits(scores)[0], np.array(below, dtype=np.float64))
    order, ascending = rank(scores)
    assert order.dtype == np.int64 and ascending.dtype == np.float64
    np.testing.assert_array_equal(ascending[0], np.sort(np.array(below, dtype=np.float64)))


@pytest.mark.parametrize("spread", [5, 2**20, 2**40, 2**62])
@pytest.mark.parametrize("num_items", [1, 2, 33])
def test_keys_sort_as_a_stable_sort_does(spread: int, num_items: int) -> None:
    values = seeded_generator(0).integers(0, min(spread, 7), (20, num_items)) * (spread // 5)
    order, ascending = sort_ascending(values, largest=6 * (spread // 5))
    expected = np.argsort(values, axis=1, kind="stable")
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(ascending, np.take_along_axis(values, expected, axis=1))


def test_smallest_come_in_order() -> None:
    values = seeded_generator(1).random((10, 12))
    for k in (1, 5, 12):
        np.testing.assert_array_equal(k_smallest(values, k), np.argsort(values, axis=1)[:, :k])


def test_one_row_is_told_from_a_batch_of_one() -> None:
    assert as_rows([1, 2])[1] and as_rows([1, 2])[0].shape == (1, 2)
    assert not as_rows([[1, 2]])[1]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0, np.nan, 2.0], "Expected finite scores, got minimum=nan, maximum=nan"),
        ([1.0, -np.inf, 2.0], "Expected finite scores, got minimum=-inf, maximum=2.0"),
        ([-1.7e308, 1.7e308, 0], "Expected finite scores, got minimum=-1.7e+308, maximum=1.7e+308"),
        ([[1.0, 2.0, 3.0], [np.nan, 1.0, 2.0]], "Expected finite scores, got minimum=nan, maximum=nan"),
        ([True, False, True], "Expected integer or float scores, got dtype='bool'"),
        (["a", "b", "c"], "Expected integer or float scores, got dtype='<U1'"),
        ([1j, 2j, 3j], "Expected integer or float scores, got dtype='complex128'"),
        ([], "Expected scores of shape [d] or [batch, d], got shape=(0,)"),
        (3.0, "Expected scores of shape [d] or [batch, d], got shape=()"),
        ([[[1, 2, 3]]], "Expected scores of shape [d] or [batch, d], got shape=(1, 1, 3)"),
    ],
)
def test_scores_that_are_refused(scores: ArrayLike, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        as_rows(scores)
    assert str(caught.value) == message
