"""Time 100,000 distinct events composed and converted, here, by autodp and by dp_accounting, in one run.

    python scripts/bench_accounting.py [--events 100000] [--repeats 5]

Prints a Markdown table of medians. The events are Gaussian ones of distinct noise; zCDP events of the same cost are
what dp_accounting composes fastest. The other kinds of events are timed here alone.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from pate.accounting._accountant import RDPAccountant
from pate.accounting._cost import DEFAULT_ORDERS
from pate.accounting._events import BoundedRangeEvent, Event, GaussianEvent, PureDPEvent
from pate.accounting._relation import NeighboringRelation

RELATION = NeighboringRelation.REPLACE_RECORD
DELTA = 1e-6


def timed(run: Callable[[], float], repeats: int) -> tuple[float, float]:
    """Return the median of the seconds that ``run`` takes, and what it returns."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        value = run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), value


def by_pate(events: list[Event]) -> float:
    """Epsilon of all events together."""
    return RDPAccountant(relation=RELATION).compose(events).get_epsilon(delta=DELTA)


def by_autodp(noises: np.ndarray) -> float:
    """The same by autodp: mechanisms made, composed, converted."""
    from autodp.mechanism_zoo import GaussianMechanism
    from autodp.transformer_zoo import Composition

    mechanisms = [GaussianMechanism(sigma=noise) for noise in noises.tolist()]
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from dp_accounting import GaussianDpEvent, ZCDpEvent

    count, repeats = options.events, options.repeats
    noises = np.random.default_rng(0).uniform(500, 5000, count)
    gaussians: list[Event] = [GaussianEvent(noise_multiplier=s, neighboring_relation=RELATION) for s in noises.tolist()]
    zcdp = [ZCDpEvent(1 / (2 * noise**2)) for noise in noises.tolist()]
    share = min(count, 2_000)  # the Gaussian events of dp_accounting are slow: timed on a share
    first, epsilon = timed(lambda: by_pate(gaussians), repeats)
    rows = [
        ("pate, Gaussian", first, epsilon),
        ("autodp, Gaussian", *timed(lambda: by_autodp(noises), min(repeats, 3))),
        ("dp_accounting, zCDP", *timed(lambda: by_dp_accounting(zcdp), repeats)),
    ]
    part, _ = timed(lambda: by_dp_accounting([GaussianDpEvent(s) for s in noises[:share].tolist()]), 1)
    rows.append((f"dp_accounting, Gaussian ({share:,} events, scaled up)", part * count / share, float("nan")))
    etas = np.random.default_rng(1).uniform(1e-4, 1e-2, count).tolist()
    bounded: list[Event] = [BoundedRangeEvent(eta=eta, neighboring_relation=RELATION) for eta in etas]
    pure: list[Event] = [PureDPEvent(epsilon=eta, neighboring_relation=RELATION) for eta in etas]
    rows.append(("pate, bounded range", *timed(lambda: by_pate(bounded), repeats)))
    rows.append(("pate, pure", *timed(lambda: by_pate(pure), repeats)))
    print(f"| {count:,} distinct events | seconds | times the first | epsilon |")
    print("|---|---:|---:|---:|")
    for name, seconds, value in rows:
        shown = "" if np.isnan(value) else f"{value:.4f}"
        print(f"| {name} | {seconds:.3f} | {seconds / first:,.0f} | {shown} |")
    # what one epsilon takes once all is composed
    total = RDPAccountant(relation=RELATION).compose(gaussians)
    again, _ = timed(lambda: [total.get_epsilon(delta=DELTA) for _ in range(1000)][-1], repeats)
    print(f"\nOne more epsilon of the same sum takes {again * 1e3:.1f} us.")


if __name__ == "__main__":
    main()
