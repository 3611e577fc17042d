"""Speed of the aggregators on a batch of votes: medians of several runs, as a Markdown table.

Those that read counts label 50,000 queries at once; those that read each teacher's ballot fewer,
because the ballots of all queries would not fit into memory. The noise is a tenth of the teachers.

    python scripts/bench_aggregators.py [--runs 5]
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Sequence

import numpy as np

from pate import Outlook, Votes
from pate._labeling.aggregators.base import registered
from pate._labeling.votes.kinds import serves
from pate.accounting import NeighboringRelation
from pate.aggregators import Aggregator, Ballots, Counts

NUM_QUERIES, NUM_WITH_BALLOTS, NUM_LABELS, NUM_TEACHERS = 50_000, 2_000, 40, 800


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="runs that a median is taken of")
    runs = parser.parse_args(arguments).runs
    generator = np.random.default_rng(0)
    chances = generator.beta(0.5, 2.0, size=(NUM_QUERIES, NUM_LABELS))
    counts = generator.binomial(NUM_TEACHERS, chances).astype(np.uint16)
    predictions = np.clip(chances + 0.1 * generator.standard_normal(chances.shape), 0, 1)
    few = chances[:NUM_WITH_BALLOTS, None]
    ballots = (
        generator.random((NUM_WITH_BALLOTS, NUM_TEACHERS, NUM_LABELS), dtype=np.float32) < few
    ).view(np.uint8)
    first = predictions[:NUM_WITH_BALLOTS]
    with_ballots = Ballots(ballots=ballots, predictions=first, features=first)
    counts_alone = Counts(counts=counts, num_teachers=NUM_TEACHERS, predictions=predictions)
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {threads} thread(s).")
    print(f"{NUM_LABELS} labels, {NUM_TEACHERS} teachers.\n")
    print("| aggregator | queries | queries per second |\n| --- | ---: | ---: |")
    outlook = Outlook.of(counts_alone, delta=1e-6, relation=NeighboringRelation.REPLACE_RECORD)
    for unscaled in (each for cls in registered().values() for each in cls.proposals(outlook)):
        aggregator = unscaled.scaled(NUM_TEACHERS / 10)
        votes = counts_alone if serves(Counts, aggregator.needs) else with_ballots
        rate = votes.num_queries / seconds(aggregator, votes, runs)
        print(f"| {aggregator.display_name} | {votes.num_queries:,} | {rate:,.0f} |", flush=True)


def seconds(aggregator: Aggregator, votes: Votes, runs: int) -> float:
    """Return the median time of labelling all queries, after a first run."""
    generator = np.random.default_rng(1)
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        aggregator.aggregate(votes, generator=generator)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
