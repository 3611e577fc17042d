"""Bisection against conditions whose turning points are known to the last digit."""

import pytest

from pate._core.accounting.cost import largest_count_where, smallest_where

THIRD, LEAST = 1 / 3, 5e-324


@pytest.mark.parametrize(
    ("low", "high", "turn"),
    [
        (0.0, 1.0, THIRD),
        (0.0, 1.0, 0.5 + 1e-15),  # the grid of twice the tolerance is farther away
        (0.0, 1e300, 7.0),
        (-1.0, 1.0, -THIRD),
        (-8e307, 9e307, 1e307),
        (-3.0, -2.0, -2.5 + 1e-13),
        (0.0, 1.0, 1e-200),
    ],
)
def test_the_smallest_is_met_or_missed_by_the_tolerance(
    low: float, high: float, turn: float
) -> None:
    answer = smallest_where(lambda x: x >= turn, low, high)
    assert turn <= answer <= turn + 1e-13 * abs(turn)


def test_narrow_brackets_are_bisected_to_neighboring_floats() -> None:
    """The tolerance is relative to the bracket where that is narrower than its ends are large."""
    for low, high, turn in (
        (1.0, 1 + 1e-6, 1 + 3e-7),
        (-2.0, -2 + 1e-6, -2 + 3e-7),
        (0.0, 5 * LEAST, 3 * LEAST),
    ):
        assert smallest_where(lambda x, turn=turn: x >= turn, low, high) == turn  # type: ignore[misc]
    assert smallest_where(lambda x: x >= 0.3, 0.3, 0.3) == 0.3


@pytest.mark.parametrize("limit", [1, 2, 5, 8, 9, 2**53])
def test_the_largest_count_is_any_up_to_the_limit(limit: int) -> None:
    for largest in {0, 1, 2, 3, 6, limit - 1, limit, limit + 1}:
        found = largest_count_where(largest.__ge__, limit=limit)
        assert found == min(largest, limit)
