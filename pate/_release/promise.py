"""The largest delta at which a release still promises something."""

import math

from pate._validation import MOST_VOTERS, require, require_in_open_unit_interval

LARGEST_DELTA = 1e-3


def suited_delta(num_units: int) -> float:
    """Return the power of ten at or below a tenth of one over the number of private units.

    >>> suited_delta(80_000)
    1e-06
    """
    return min(LARGEST_DELTA, 10.0 ** math.floor(-math.log10(10 * num_units)))


def require_promise(delta: float, *, num_units: int | None = None) -> None:
    """Raise ``ValueError`` unless a guarantee at ``delta`` protects every private unit.

    A mechanism that publishes one of N units, drawn at random, is private at epsilon 0 and delta
    1/N.

    Args:
        delta: the delta of a release or of a budget.
        num_units: the number of units if it is public: nominal teachers, or the records of a plan.
            The number of private records is not public, and decides nothing.
    """
    require_in_open_unit_interval(delta=delta)
    require(
        delta <= LARGEST_DELTA, f"delta <= {LARGEST_DELTA:g}, which promises something", delta=delta
    )
    # MOST_VOTERS stands for a private number
    if num_units is not None and num_units < MOST_VOTERS:
        require(
            delta * num_units < 1,
            f"delta < 1 / {num_units}, one over the public number of teachers or records",
            delta=delta,
        )
