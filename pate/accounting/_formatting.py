"""Formatting of the figures of a guarantee, never rounded down."""

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

_LARGE_EPSILON = 10
_DIGITS = Context(prec=400)  # more digits than a float has before and after the point


def format_epsilon(epsilon: float | None, digits: int = 3) -> str:
    """Return epsilon with ``digits`` digits after the point, rounded up, or ``unbounded``.

    >>> format_epsilon(8.02042), format_epsilon(0.0004), format_epsilon(None)
    ('8.021', '0.001', 'unbounded')
    """
    if epsilon is None or math.isinf(epsilon):
        return "unbounded"
    unit = Decimal(1).scaleb(-digits)
    return (
        f"{Decimal(repr(float(epsilon))).quantize(unit, rounding=ROUND_CEILING, context=_DIGITS):f}"
    )


def format_exact(value: float) -> str:
    """Return a number, such as a delta, with all of its digits.

    >>> format_exact(1e-6), format_exact(1.0000004e-6), format_exact(8.0)
    ('1e-06', '1.0000004e-06', '8')
    """
    return repr(float(value)).removesuffix(".0")


def explain_epsilon(epsilon: float | None) -> str | None:
    """Return a sentence on the weak protection of an epsilon above 10; None of smaller ones.

    Of two neighbors, each as likely, a guess is right with probability `e^epsilon / (1 +
    e^epsilon)` at most, as in `format_guess`, where the small delta is left out.

    >>> explain_epsilon(8.0)
    >>> explain_epsilon(10.5)
    'Above 10 an epsilon promises little: a guess between two neighbors may be right in all but 1 of
    36317 cases.'
    """
    if epsilon is not None and epsilon <= _LARGE_EPSILON:
        return None
    right = "in all cases"
    if epsilon is not None and epsilon < 700:  # beyond it floats end
        cases = math.ceil(math.exp(epsilon)) + 1
        right = f"in all but 1 of {cases if cases < 1e6 else f'{cases:.1e}'} cases"
    return (
        f"Above 10 an epsilon promises little: a guess between two neighbors may be right {right}."
    )


def format_guess(guarantee: Mapping[str, Any], total_variation: float = 1.0) -> str:
    """Return the largest success rate, in percent, of a guess between two equally likely neighbors.

    ``epsilon`` and ``delta`` bound it by `(e^epsilon + delta) / (e^epsilon + 1)`, from the bounds
    of Kairouz, Oh & Viswanath (2015) on both errors of a test. A ``total_variation``, the delta at
    epsilon 0, bounds it by `(1 + total_variation) / 2` (Neyman & Pearson (1933)), which is mostly
    less. The smaller one is rounded up.

    >>> guarantee = {"epsilon": 1.0, "delta": 1e-6}
    >>> format_guess(guarantee), format_guess(guarantee, 0.0942)
    ('73.2%', '54.8%')
    """
    epsilon = guarantee["epsilon"]
    decay = 0.0 if epsilon is None else math.exp(-epsilon)
    share = min((1.0 + guarantee["delta"] * decay) / (1.0 + decay), (1.0 + total_variation) / 2)
    return f"{format_epsilon(100 * share, 1)}%"
