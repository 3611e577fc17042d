"""Time 100,000 distinct events, composed and converted, here, by autodp and by dp_accounting.

    python scripts/bench_accounting.py [--events 100000] [--repeats 5]

Prints a Markdown table of medians of processor time, for all libraries with the making of their
objects and without. The events are Gaussian ones of distinct noise; dp_accounting composes zCDP
events of the same cost fastest. The other kinds of events are timed only here.
"""

import argparse
import gc
import math
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pate.accounting import (
    DEFAULT_ORDERS,
    BoundedRangeEvent,
    Event,
    GaussianEvent,
    NeighboringRelation,
    PureDPEvent,
    RDPAccountant,
)

RELATION = NeighboringRelation.REPLACE_RECORD
DELTA = 1e-6


class Times(NamedTuple):
    """Median seconds, and the epsilon that took them."""

    made: float
    """With the making of the events."""
    composed: float
    """For events that are made: composition and conversion."""
    epsilon: float


def timed(make: Callable[[], Any], epsilon_of: Callable[[Any], float], repeats: int) -> Times:
    """Return the time to make events and state their epsilon, and to state it for made events.

    Every sum is of new events, so that no cache is timed.
    """
    seconds = []
    for _ in range(repeats):
        gc.collect()  # of what was timed before
        start = time.process_time()
        events = make()
        made = time.process_time()
        epsilon = epsilon_of(events)
        seconds.append((time.process_time() - start, time.process_time() - made))
    whole, composed = (statistics.median(column) for column in zip(*seconds, strict=True))
    return Times(whole, composed, epsilon)


def by_pate(events: list[Event]) -> float:
    """Epsilon of all events together."""
    return RDPAccountant(relation=RELATION).compose(events).get_epsilon(delta=DELTA)


def by_autodp(mechanisms: list[Any]) -> float:
    """The same by autodp."""
    from autodp.transformer_zoo import Composition

    return float(Composition()(mechanisms, [1] * len(mechanisms)).get_approxDP(DELTA))


def by_dp_accounting(events: list[Any]) -> float:
    """The same by dp_accounting, on the same orders."""
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=DEFAULT_ORDERS.tolist())
    for event in events:
        accountant.compose(event)
    return float(accountant.get_epsilon(DELTA))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from autodp.mechanism_zoo import GaussianMechanism
    from dp_accounting import GaussianDpEvent, ZCDpEvent

    count, repeats = options.events, options.repeats
    noises = np.random.default_rng(0).uniform(500, 5000, count).tolist()
    etas = np.random.default_rng(1).uniform(1e-4, 1e-2, count).tolist()

    def gaussians() -> list[Event]:
        return [
            GaussianEvent(noise_multiplier=noise, neighboring_relation=RELATION) for noise in noises
        ]

    def bounded() -> list[Event]:
        return [BoundedRangeEvent(eta=eta, neighboring_relation=RELATION) for eta in etas]

    def pure() -> list[Event]:
        return [PureDPEvent(epsilon=eta, neighboring_relation=RELATION) for eta in etas]

    by_pate(gaussians())  # imports and caches
    rows = {
        "pate, Gaussian": timed(gaussians, by_pate, repeats),
        "autodp, Gaussian": timed(
            lambda: [GaussianMechanism(sigma=s) for s in noises], by_autodp, min(repeats, 3)
        ),
        "dp_accounting, zCDP": timed(
            lambda: [ZCDpEvent(1 / (2 * s**2)) for s in noises], by_dp_accounting, repeats
        ),
    }
    share = min(count, 2_000)  # the Gaussian events of dp_accounting are slow: timed on a share
    part = timed(lambda: [GaussianDpEvent(s) for s in noises[:share]], by_dp_accounting, 1)
    scaled = Times(part.made * count / share, part.composed * count / share, math.nan)
    rows[f"dp_accounting, Gaussian ({share:,} events, scaled up)"] = scaled
    rows["pate, bounded range"] = timed(bounded, by_pate, repeats)
    rows["pate, pure"] = timed(pure, by_pate, repeats)
    first = rows["pate, Gaussian"]
    print(
        f"| {count:,} distinct events | made and composed, s | times the first | composed, s | times | epsilon |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for name, row in rows.items():
        shown = "" if math.isnan(row.epsilon) else f"{row.epsilon:.4f}"
        made, composed = (
            f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
            for ratio in (row.made / first.made, row.composed / first.composed)
        )
        print(f"| {name} | {row.made:.3f} | {made} | {row.composed:.3f} | {composed} | {shown} |")
    # the time of one epsilon once all is composed
    total = RDPAccountant(relation=RELATION).compose(gaussians())
    start = time.process_time()
    for _ in range(1000):
        total.get_epsilon(delta=DELTA)
    print(f"\nOne more epsilon of the same sum takes {(time.process_time() - start) * 1e3:.1f} us.")


if __name__ == "__main__":
    main()
