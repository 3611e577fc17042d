"""Measures of the papers, on examples worked by hand."""

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
