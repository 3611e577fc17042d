"""What the order of releases is worth: the table of docs/appendix/costs.md.

python scripts/measure_order.py
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

from pate import VoteShape
from pate._core.accounting.charges import Charge, account
from pate.accounting import NeighboringRelation, Target
from pate.aggregators import NoisyVotes, StableTopK

PANEL, DELTA = VoteShape(num_teachers=100, num_labels=40), 1e-6
RELATION = NeighboringRelation.REPLACE_RECORD
CASES = tuple((epsilon, queries) for epsilon in (1.0, 8.0) for queries in (5, 10, 60, 100))
"""Targets of all releases, and numbers of queries of the last."""
SHARE = 0.6
"""The part of epsilon of a first release of noisy votes."""


def releases(epsilon: float, queries: int, *, after_noise: bool) -> list[Charge]:
    """Return a release of `StableTopK` for a target, after one of `NoisyVotes` or alone."""
    before: list[Charge] = []
    if after_noise:
        first = Target(epsilon=SHARE * epsilon, delta=DELTA, num_queries=queries)
        noisy = NoisyVotes.for_target(first, PANEL)
        assert noisy is not None
        before = [(noisy.events(PANEL), queries)]
    target = Target(epsilon=epsilon, delta=DELTA, num_queries=queries, before=before)
    stable = StableTopK.for_target(target, PANEL, answered=0.5)
    assert stable is not None
    return [*before, (stable.events(PANEL), queries)]


def rows() -> Iterator[str]:
    """Yield the rows of the table."""
    for epsilon, queries in CASES:
        figures, seconds = [], 0.0
        for after_noise in (False, True):
            charges, began = releases(epsilon, queries, after_noise=after_noise), process_time()
            figures.append(account(charges, RELATION).get_epsilon(delta=DELTA))
            seconds = process_time() - began
        texts = " | ".join(f"{figure:.3f} | {1 - figure / epsilon:.1%}" for figure in figures)
        yield f"| {epsilon:g} | {queries} | {texts} | {seconds:.2f} |"


if __name__ == "__main__":
    for row in rows():
        print(row)
