"""Seconds and megabytes of commands on a ledger of many rows, beside one plain read of all rows.

python -m scripts.bench_ledger [--rows 100000] [--runs 3]
"""

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from pate._core.accounting.ledger import chained

PLAIN = "import sqlite3; sqlite3.connect('many.sqlite').execute('SELECT * FROM log').fetchall()"
LABEL = "label --votes=votes.npz --delta=1e-6 --num_queries=5 --aggregator=NoisyVotes"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each command: median seconds of processor, ratio to the read, megabytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=100_000, help="rows of the ledger, two a release"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs that a median is taken of")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_ledger(folder, options.rows // 2)
        pate, plain = [sys.executable, "-P", "-m", "pate"], 0.0
        for name, words in {
            "SELECT": [sys.executable, "-c", PLAIN],
            "ledger show": [*pate, "ledger", "show", "many.sqlite"],
            "label": [*pate, *_label("many", 10)],
            "verify": [*pate, "verify", "many.sqlite"],
        }.items():
            seconds, peaks = zip(*(spent(folder, words) for _ in range(options.runs)), strict=True)
            middle = statistics.median(seconds)
            plain = plain or middle
            print(
                f"{name:12}{middle:8.2f} s{middle / plain:8.1f} x{max(peaks):8.0f} MB", flush=True
            )
        for file in sorted(folder.glob("many/public/privacy.*")):
            print(
                f"{file.name}: {file.stat().st_size / 1e6:.2f} MB, {file.read_bytes().count(10)} lines"
            )


def _label(ledger: str, noise: float) -> list[str]:
    words = f"{LABEL} --aggregator.sigma_votes={noise} --run={ledger} --ledger={ledger}.sqlite"
    return [*words.split(), "--overwrite"]


def make_ledger(folder: Path, releases: int) -> None:
    """Write ``many.sqlite``, with the rows of four kinds of releases over and over."""
    ballots = np.random.default_rng(0).integers(0, 2, (12, 20, 3)).astype(np.uint8)
    ids, names = np.array([f"s{row}" for row in range(12)]), np.array(list("abc"))
    np.savez(folder / "votes.npz", ids=ids, label_names=names, ballots=ballots)
    for noise in (12, 14, 16, 18):
        words = [sys.executable, "-P", "-m", "pate", *_label("few", noise)]
        subprocess.run(words, cwd=folder, check=True, capture_output=True)
    with closing(sqlite3.connect(folder / "few.sqlite")) as few:
        home, *rows = [json.loads(body) for (body,) in few.execute("SELECT body FROM log")]
        home["path"] = str(folder.resolve() / "many.sqlite")
        (folder / "few.sqlite").rename(folder / "many.sqlite")
    log, digest = [json.dumps(home)], ""
    for number in range(releases):
        reserve, settle = rows[2 * (number % 4)], rows[2 * (number % 4) + 1]
        token, published = f"{number:032x}", settle["published"] | {"sha256": f"{number:064x}"}
        log.append(json.dumps(reserve | {"token": token}))
        log.append(json.dumps(settle | {"release": number + 1, "published": published}))
    with closing(sqlite3.connect(folder / "many.sqlite")) as many, many:
        triggers = [
            sql for (sql,) in many.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")
        ]
        for sql in triggers:
            many.execute(f"DROP TRIGGER {sql.split()[2]}")
        many.execute("DELETE FROM log")
        for row, body in enumerate(log, 1):
            digest = chained(digest, body)
            many.execute("INSERT INTO log VALUES (?, ?, ?)", (row, body, digest))
        for sql in triggers:
            many.execute(sql)


def spent(folder: Path, words: Sequence[str]) -> tuple[float, float]:
    """Run a command, and return its seconds of processor and its peak in megabytes."""
    # an installed package is compiled
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            words, cwd=folder, stdout=said, stderr=said, env=os.environ | compiled
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError((folder / "said").read_text()[-2000:])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


if __name__ == "__main__":
    main()
