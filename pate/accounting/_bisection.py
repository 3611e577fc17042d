"""Bisection for the point where a condition starts or stops holding, on the safe side."""

from collections.abc import Callable


def smallest_where(
    holds: Callable[[float], bool], low: float, high: float, *, tolerance: float = 1e-13
) -> float:
    """Return the smallest x in ``low..high`` where ``holds(x)``, which turns true as x grows.

    The condition is assumed to hold at ``high``. The result is never too small, and too large by a
    relative ``tolerance`` at most.
    """
    width = high - low
    while high - low > tolerance * min(width, max(abs(low), abs(high))):
        middle = low + (high - low) / 2  # the sum of both ends could overflow
        if not low < middle < high:
            break  # no float lies between them
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def largest_count_where(holds: Callable[[int], bool], *, limit: int = 2**53) -> int:
    """Return the largest n in ``0..limit`` where ``holds(n)``, which turns false as n grows."""
    low, high = 0, 1  # doubled until the condition fails, then bisected
    while high <= limit and holds(high):
        low, high = high, 2 * high
    if high > limit:
        return low if not holds(limit) else limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
