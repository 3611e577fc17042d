"""Measures of the papers, on examples worked by hand."""

import numpy as np

from scripts.reproduction import gillenwater as m

SCORES = [3, 10, 7, 7, 0]  # in order: items 1, 2, 3, 0, 4


def test_errors_of_a_sequence() -> None:
    chosen = [2, 1, 4]  # scores 7, 10, 0 against 10, 7, 7
    assert m.linf_error(SCORES, chosen) == 7
    assert m.l1_error(SCORES, chosen) == 3 + 3 + 7
    assert m.k_relative_error(SCORES, chosen) == 7


def test_ties_with_the_last_place_count_as_recalled() -> None:
    assert m.k_relative_error(SCORES, [3, 1]) == 0
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
