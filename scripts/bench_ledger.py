"""Time a ledger of 100,000 releases: opening, verifying, one more release, eight processes at once.

    python scripts/bench_ledger.py [--releases 100000] [--repeats 3] [--processes 8]

Prints a Markdown table of medians, each also as a ratio to the time of
`SELECT` and `json.loads` of the same rows in the same run, the least that any reader needs.
"""

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from unittest import mock

from pate import VoteShape
from pate._core.accounting import ledger as _ledger
from pate._core.accounting.charges import Events
from pate.accounting import (
    Budget,
    GaussianEvent,
    Ledger,
    NeighboringRelation,
    PrivacyUnit,
    verify_ledger,
)
from pate.aggregators import StableTopK

DELTA = 1e-3
BUDGET = Budget(
    max_epsilon=50.0,
    delta=DELTA,
    neighboring_relation=NeighboringRelation.REPLACE_RECORD,
    max_delta0=5e-4,
)


def kinds() -> list[Events]:
    """Three kinds of release, cheap enough for all of them."""
    answers = [
        StableTopK(scale_gap=gap, sigma_test=test, delta_test=1e-9)
        for gap, test in ((4e5, 6e4), (2e5, 8e4))
    ]
    return [
        {
            r: GaussianEvent(noise_multiplier=6e4, neighboring_relation=r)
            for r in NeighboringRelation
        },
        *(
            {r: answer.event(VoteShape(800, 40), r) for r in NeighboringRelation}
            for answer in answers
        ),
    ]


def reserve(ledger: Ledger, events: Events) -> int:
    """Reserve one query."""
    return ledger.reserve(
        events,
        count=1,
        run="bench",
        description="",
        seeded=False,
        budget=BUDGET,
        delta=DELTA,
        privacy_unit=PrivacyUnit(unit="record"),
    )


def fill(path: Path, releases: int) -> None:
    """Reserve and settle many releases in one transaction, which saves a sync for each row."""
    events, ledger = kinds(), Ledger(path)
    with (
        _ledger.locked_log(path) as connection,
        mock.patch.object(_ledger, "locked_log", return_value=nullcontext(connection)),
    ):
        for i in range(releases):
            ledger.settle(reserve(ledger, events[i % len(events)]))


def timed(run: Callable[[], object], repeats: int) -> float:
    """Return the median of the seconds that ``run`` takes."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def plain_read(path: Path) -> None:
    """Read all rows and parse them, nothing else."""
    with closing(sqlite3.connect(path)) as connection:
        for (body,) in connection.execute("SELECT body FROM log ORDER BY row"):
            json.loads(body)


def together(path: Path, processes: int) -> float:
    """Let processes open the ledger and reserve at once; return the seconds until all have."""
    command = [sys.executable, __file__, "--reserve", str(path)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()  # all is imported
    start = time.perf_counter()
    for process in running:
        assert process.stdin is not None
        process.stdin.close()
    codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError(f"Expected {processes} processes to reserve, got exit codes {codes}")
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--releases", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--reserve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reserve is not None:
        print("ready", flush=True)
        sys.stdin.read()
        ledger = Ledger(options.reserve)
        ledger.settle(reserve(ledger, kinds()[0]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        fill(path, options.releases)
        plain = timed(lambda: plain_read(path), options.repeats)
        ledger, events = Ledger(path), kinds()
        reserve(ledger, events[0])  # from now on the sums are kept
        rows = [
            ("SELECT and json.loads", plain),
            ("verify_ledger", timed(lambda: verify_ledger(path), options.repeats)),
            ("open", timed(lambda: Ledger(path), options.repeats)),
            ("reserve", timed(lambda: reserve(ledger, events[1]), 21)),
            (
                f"{options.processes} processes open, reserve and settle at once",
                together(path, options.processes),
            ),
        ]
        assert len(verify_ledger(path).entries) == options.releases + 22 + options.processes
        size = path.stat().st_size / 2**20
    print(f"| {options.releases:,} releases, {size:.0f} MiB | seconds | times the first |")
    print("|---|---:|---:|")
    for name, seconds in rows:
        print(f"| {name} | {seconds:.3f} | {seconds / plain:.2f} |")


if __name__ == "__main__":
    main()
