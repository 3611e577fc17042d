"""Measures of the papers, on examples worked by hand."""

from typing import Any

import numpy as np
import pytest

from pate import mechanisms as m
from pate.accounting import NeighboringRelation

SCORES = [3, 10, 7, 7, 0]  # in order: items 1, 2, 3, 0, 4


def test_errors_of_a_sequence() -> None:
    chosen = [2, 1, 4]  # scores 7, 10, 0 against 10, 7, 7
    assert m.linf_error(SCORES, chosen) == 7
    assert m.l1_error(SCORES, chosen) == 3 + 3 + 7
    assert m.k_relative_error(SCORES, chosen) == 7
    assert m.recall(SCORES, chosen) == pytest.approx(2 / 3)


def test_ties_with_the_last_place_count_as_recalled() -> None:
    assert m.recall(SCORES, [1, 3]) == 1
    assert m.k_relative_error(SCORES, [3, 1]) == 0
    assert m.recall([3.0, 2.5, 2.0], [0, 2]) == 0.5, "half a vote below the last place is below it"
    assert m.k_relative_error([5, 5, 1], [0]) == 0


def test_unsigned_scores_do_not_wrap() -> None:
    scores = np.array([0, 250, 1], dtype=np.uint8)
    assert m.linf_error(scores, [0]) == 250
    assert m.l1_error(scores, [1, 0]) == 1


def test_batches_are_rows() -> None:
    scores, chosen = [SCORES, SCORES[::-1]], [[1, 2], [4, 0]]
    for measure in (m.linf_error, m.l1_error, m.k_relative_error, m.recall):
        alone = [measure(*pair) for pair in zip(scores, chosen, strict=True)]
        np.testing.assert_array_equal(measure(scores, chosen), alone)
    grades = m.grade(scores, chosen)
    assert [g.shape for g in grades] == [(2,)] * 3
    assert grades.top.tolist() == [True, False]


def test_grades_of_twenty_out_of_a_hundred() -> None:
    """Great: the best 2 and none beyond rank 22. Good: the best and none beyond rank 30."""
    scores = np.arange(100)[::-1]
    top = list(range(20))
    for chosen, expected in (
        (top, (True, True, True)),
        (top[::-1], (True, True, True)),
        ([*top[:-1], 21], (False, True, True)),
        ([*top[:-1], 22], (False, False, True)),
        ([0, *top[2:], 20], (False, False, True)),
        ([*top[:-1], 29], (False, False, True)),
        ([*top[:-1], 30], (False, False, False)),
        ([*top[1:], 20], (False, False, False)),
    ):
        assert tuple(bool(g) for g in m.grade(scores, chosen)) == expected


def test_all_items_are_the_top() -> None:
    assert all(m.grade([4], [0])) and m.recall(SCORES, [0, 1, 2, 3, 4]) == 1


@pytest.mark.parametrize(
    "measure", [m.grade, m.linf_error, m.l1_error, m.k_relative_error, m.recall]
)
@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ([0.0, 1.0], "Expected integer indices, got dtype='float64'"),
        ([[0, 1]], "Expected chosen of shape [k] or [batch, k] as the scores, got shape=(1, 2)"),
        ([0, 5], "Expected indices in 0..4, got minimum=0, maximum=5"),
        ([-1, 0], "Expected indices in 0..4, got minimum=-1, maximum=0"),
        ([1, 1], "Expected distinct indices, got repeated=[1]"),
        ([2, 0, 0], "Expected distinct indices, got repeated=[0]"),
        (np.zeros(0, dtype=int), "Expected an integer k >= 1, got k=0"),
        ([0, 1, 2, 3, 4, 0], "Expected k <= 5 for 5 items, got k=6"),
    ],
)
def test_choices_that_are_refused(measure: Any, chosen: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        measure(SCORES, chosen)
    assert str(caught.value) == message


def test_a_batch_of_choices_has_the_rows_of_the_scores() -> None:
    with pytest.raises(
        ValueError, match=r"^Expected chosen of shape \[k\] or \[batch, k\] as the scores"
    ):
        m.recall([SCORES, SCORES], [[0, 1]])


def test_recall_of_a_list_that_ended_early() -> None:
    """-1 stands for an item that was not chosen: it counts among the k, and is never right."""
    assert m.recall(SCORES, [1, -1, -1], k=3) == pytest.approx(1 / 3)
    assert m.recall(SCORES, [4, -1, 1], k=3) == pytest.approx(1 / 3)
    assert m.recall(SCORES, [-1, -1], k=2) == 0
    batch = m.recall([SCORES, SCORES], [[1, 2, -1], [1, 2, 3]], k=3)
    assert batch.tolist() == pytest.approx([2 / 3, 1])
    listed = m.LimitedDomain(
        k=3, kbar=4, scale=0.01, delta=1e-6, relation=NeighboringRelation.ADD_REMOVE_TEACHER
    )([50, 40, 0, 0, 0], generator=m.seeded_generator(0))
    assert m.recall([50, 40, 0, 0, 0], listed.items, k=3) == pytest.approx(2 / 3)


def test_recall_of_more_or_fewer_than_there_are_to_find() -> None:
    assert m.recall(SCORES, [1], k=2) == 0.5
    assert m.recall(SCORES, [1, 2, 3, 0], k=2) == 1  # 10, 7 and a second 7, which is as good
    assert m.recall(SCORES, [0, 1, 2, 3, 4], k=1) == 1
    for chosen in ([1, 3], [2, 0], [4, 1]):
        assert m.recall(SCORES, chosen, k=2) == m.recall(SCORES, chosen)


@pytest.mark.parametrize(
    ("chosen", "k", "message"),
    [
        ([-2, 0], 2, "Expected indices in -1..4, got minimum=-2, maximum=0"),
        ([1, 1], 2, "Expected distinct indices, got repeated=[1]"),
        ([1, -1], 6, "Expected k <= 5 for 5 items, got k=6"),
        ([1, -1], 0, "Expected an integer k >= 1, got k=0"),
    ],
)
def test_recall_that_is_refused(chosen: list[int], k: int, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        m.recall(SCORES, chosen, k=k)
    assert str(caught.value) == message
