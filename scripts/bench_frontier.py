"""Speed of `pate frontier` with a student, as a multiple of one factorization of the features.

All proposed aggregators at the default epsilons on simulated votes, three draws of the noise each.
The least that any linear student costs is one singular value decomposition of its features, the
baseline.

    python scripts/bench_frontier.py [--num_features 500]
"""

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence

import numpy as np

from pate.lab.plan.frontier import Comparison, frontier
from pate.lab.plan.sources import Simulation, simulated

NUM_LABELS, NUM_TEACHERS, NUM_QUERIES = 22, 200, 1000


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num_features", type=int, default=500, help="features of a sample")
    num_features = parser.parse_args(arguments).num_features
    simulation = Simulation(
        num_labels=NUM_LABELS, num_teachers=NUM_TEACHERS, num_features=num_features
    )
    task, settings = (
        simulated(simulation).drawn(NUM_QUERIES, seed=0),
        Comparison(num_queries=NUM_QUERIES, student=True),
    )
    features = task.votes.features
    assert features is not None
    baseline = min(seconds(lambda: np.linalg.svd(features, full_matrices=False)) for _ in range(5))
    total = seconds(lambda: frontier(task, settings))
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {threads} thread(s).")
    print(
        f"{NUM_QUERIES} queries, {num_features} features, {NUM_LABELS} labels, {NUM_TEACHERS} teachers.\n"
    )
    print("| frontier | one decomposition | ratio |\n| ---: | ---: | ---: |")
    print(f"| {total:.1f} s | {baseline:.3f} s | {total / baseline:.0f} |")


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of some work, of all threads together."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
