"""Seconds of one core for a sum of silos, with all parties in one process, one after another.

python -m scripts.bench_silos [--silos 40] [--queries 5000] [--labels 40] [--colluding 4]
[--dropouts 4]

One of the silos that may drop out does. The opened sum is compared with the sum of the shares, bit
by bit.
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pate.aggregators import SiloVotes
from pate.lab.silos.exchange import AwaitedError
from scripts.measure_silos import Meeting

NUM_TEACHERS = 50  # of each silo


def measure(
    *, silos: int, queries: int, labels: int, colluding: int, dropouts: int
) -> dict[str, float]:
    """Return the seconds of one core that each step takes, of all silos together.

    Raises ``AssertionError`` if the sum differs from the sum of the shares.
    """
    seconds = {}
    mechanism = SiloVotes(sigma_silos=100.0, silos=silos, colluding=colluding, dropouts=dropouts)
    with TemporaryDirectory() as temporary:
        meeting = Meeting(
            Path(temporary), mechanism, num_teachers=NUM_TEACHERS, queries=queries, labels=labels
        )
        gone, stayed = (meeting.names[:1], meeting.names[1:]) if dropouts else ([], meeting.names)
        for step in ("keys", "shares", "masked", "unmasking"):
            started = time.process_time()
            if step == "unmasking":
                with suppress(AwaitedError):  # of the silos, which are listed
                    meeting.server(*gone).open()
            # the first one masks in the third step, when all shares are there
            meeting.advance(meeting.names if step in ("keys", "shares") else stayed)
            seconds[step] = time.process_time() - started
        started = time.process_time()
        total, num_silos = meeting.server().open()
        seconds["sum"] = time.process_time() - started
        expected = np.zeros_like(total)
        for name in stayed:
            expected += meeting.share(name)
        assert np.array_equal(total, expected) and num_silos == len(stayed)
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in {
        "silos": 40,
        "queries": 5000,
        "labels": 40,
        "colluding": 4,
        "dropouts": 4,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    seconds = measure(**vars(parser.parse_args(arguments)))
    print("| step | seconds |\n| --- | ---: |")
    for step, spent in (seconds | {"all": sum(seconds.values())}).items():
        print(f"| {step} | {spent:.1f} |")


if __name__ == "__main__":
    main()
