"""Speed of exact Gaussian noise: milliseconds for a million numbers, as ratios to numpy's.

python scripts/bench_noise.py [--runs 7]
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from pate.mechanisms import add_gaussian, exceeds, private_generator

NUM = 10**6


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7, help="runs that a median is taken of")
    runs = parser.parse_args(arguments).runs
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {threads} thread(s).\n")
    print(
        "| generator | numpy's normal | `add_gaussian` | ratio | `exceeds` | ratio |\n| --- |"
        + " ---: |" * 5
    )
    counts = np.arange(NUM) % 800
    for name, generator in (
        ("Philox", np.random.Generator(np.random.Philox(0))),
        ("ChaCha20", private_generator()),
    ):
        draws: list[Callable[[], object]] = [
            lambda: generator.standard_normal(NUM),  # noqa: B023 (called before the next one)
            lambda: add_gaussian(counts, sigma=80.0, generator=generator),  # noqa: B023
            lambda: exceeds(counts, 400.0, sigma=80.0, generator=generator),  # noqa: B023
        ]
        plain, rounded, compared = (milliseconds(draw, runs) for draw in draws)
        print(
            f"| {name} | {plain:.0f} | {rounded:.0f} | {rounded / plain:.1f} "
            f"| {compared:.0f} | {compared / plain:.1f} |"
        )


def milliseconds(draw: Callable[[], object], runs: int) -> float:
    """Return the median time, after a first run."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        draw()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
