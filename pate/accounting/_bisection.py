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


def smallest_not_positive(value: Callable[[float], float], low: float, high: float) -> float:
    """Return the smallest x in ``low..high`` where ``value(x) <= 0``, which falls as x grows.

    It is the float that `smallest_where` returns, after a third of the calls where ``value`` is
    nearly a line.
    """
    positive, settled, above, below, kept = low, high, value(low), value(high), ""
    for _ in range(20):
        if not above > 0 >= below or settled - positive <= 1e-13 * settled:
            break
        # a secant, one end of which is weighed half if it stays twice (Illinois)
        root = positive + (settled - positive) * (above / (above - below))
        middle = min(max(root, positive + 5e-14 * root), settled - 5e-14 * root)
        at = value(middle)
        if at <= 0:
            settled, below, above = middle, at, above / 2 if kept == "positive" else above
            kept = "positive"
        else:
            positive, above, below = middle, at, below / 2 if kept == "settled" else below
            kept = "settled"
    return smallest_where(lambda x: x >= settled or (x > positive and value(x) <= 0), low, high)


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
