"""Savings from counting choices and tests as many bits: the table of docs/appendix/costs.md.

python scripts/measure_bits.py
"""

from __future__ import annotations

from collections.abc import Iterator

from pate import VoteShape
from pate._core.accounting.accountant import TIGHTEST
from pate._core.accounting.cost import smallest_where
from pate._core.accounting.proofs import ManyBitsAccountant
from pate.accounting import RDPAccountant, Target
from pate.aggregators import (
    Aggregator,
    Canonical,
    ConfidentScreen,
    FixedStableTopK,
    NoisyVotes,
    PeeledVotes,
    Peeling,
    StableTopK,
)

PANEL, DELTA, EPSILON = VoteShape(num_teachers=800, num_labels=40), 1e-6, 4.0
CASES: tuple[tuple[Aggregator, int], ...] = (
    (StableTopK(scale_gap=39, sigma_test=60, delta_test=1e-10), 600),
    (StableTopK(scale_gap=39, sigma_test=60, delta_test=1e-10), 100),
    (
        FixedStableTopK(
            k=5,
            rank_penalty=0.0,
            scale_gap_fixed=39,
            sigma_test_fixed=60,
            delta_test_fixed=1e-10,
            scale_peel_fixed=60,
        ),
        600,
    ),
    (Peeling(k=5, scale_peel=60), 600),
    (Canonical(k=5, scale_canonical=60), 600),
    (PeeledVotes(k=5, scale_chosen=60, sigma_chosen=60), 600),
    (
        ConfidentScreen(
            answers=Peeling(k=1, scale_peel=60), sigma_confident=60, threshold_confident=0
        ),
        600,
    ),
    (NoisyVotes(sigma_votes=60), 600),
)


def epsilon_without(aggregator: Aggregator, count: int) -> float:
    """Return the epsilon of ``count`` queries if no bit is among many."""
    total = RDPAccountant(relation=aggregator.neighboring_relation).compose(
        aggregator.event(PANEL), count
    )
    others = [each for each in TIGHTEST if not isinstance(each, ManyBitsAccountant)]
    return total.guarantee(delta=DELTA, by=others).epsilon


def rows() -> Iterator[str]:
    """Yield the rows of the table: each aggregator's noise is found for `EPSILON`."""
    for aggregator, count in CASES:
        target = Target(epsilon=EPSILON, delta=DELTA, num_queries=count)
        calibrated = aggregator.calibrated(target, PANEL)
        assert calibrated is not None

        def within(factor: float, noise: Aggregator = calibrated, number: int = count) -> bool:
            return epsilon_without(noise.scaled(factor), number) <= EPSILON

        more = smallest_where(within, 1.0, 1.5, tolerance=1e-5)
        before = epsilon_without(calibrated, count)
        yield f"| `{type(aggregator).__name__}` | {count} | {before:.3f} | {100 - 100 / more:.1f}% |"


if __name__ == "__main__":
    for row in rows():
        print(row)
