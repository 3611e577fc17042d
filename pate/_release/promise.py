"""Guarantees that promise something: the largest delta of a release, and the meaning of a large epsilon."""

from __future__ import annotations

from pate._validation import MOST_VOTERS, require, require_in_open_unit_interval

LARGEST_DELTA = 1e-3


def require_promise(delta: float, *, num_units: int | None = None) -> None:
    """Raise ``ValueError`` unless a guarantee at ``delta`` protects each of the units that the private data consist of.

    A mechanism that publishes one of N units, drawn at random, is private at an epsilon of 0 and a
    delta of 1/N.

    Args:
        delta: the delta of a release or of a budget.
        num_units: how many units there are, if that number is public: nominal teachers, or the
            records of a plan. How many private records there are is no public number, and so
            decides nothing.
    """
    require_in_open_unit_interval(delta=delta)
    require(
        delta <= LARGEST_DELTA, f"delta <= {LARGEST_DELTA:g}, which promises something", delta=delta
    )
    if (
        num_units is not None and num_units < MOST_VOTERS
    ):  # which stands for a number that is private
        public = f"delta < 1 / {num_units}, one over the public number of teachers or records"
        require(delta * num_units < 1, public, delta=delta)
