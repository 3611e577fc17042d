"""Time and memory of what a table needs, each in a process that begins anew, as Markdown.

The table has 6,000 records, 20 features and 6 labels; two thirds are private. The first row, a
process that imports numpy and scipy, is what the others are compared with. Each row is the median
of several processes.

    python -m scripts.measure_start [--repeats 5] [--records 6000]
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

RECIPE = "table"
FIT = """
import numpy as np
import pate

with np.load("table.npz") as table:
    X, Y, split = table["X"], table["Y"], table["split"]
pate.PateClassifier().fit(X[split == 0], Y[split == 0], X_public=X[split == 1])
"""
PATE = ["-c", "import sys; from pate.cli import main; sys.exit(main())"]
RUN = [*PATE, "run", RECIPE, "--data.init_args.path=table.npz"]
LABELS = ["--delta=1e-6", "--num_queries=1000", "--num_labels=6", "--num_teachers=1000"]
NOISE = ["--aggregator=NoisyVotes", "--target_epsilon=2"]
MODEL = "run/public/student/model"
ROWS: dict[str, list[str]] = {
    "import numpy and scipy": ["-c", "import numpy, scipy.special"],
    "`pate account`": [*PATE, "account", *NOISE, *LABELS],
    f"`pate run {RECIPE}`": [*RUN, "--run=run", "--overwrite"],
    "`pate predict`": [*PATE, "predict", MODEL, "table.npz"],
    "`pate report`": [*PATE, "report", "run"],
    "`PateClassifier().fit`": ["-c", FIT],
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, help="processes for each row")
    parser.add_argument("--records", type=int, default=6000, help="records of the table")
    options = parser.parse_args(arguments)
    print("| | seconds | times the first row | MB |\n|---|---|---|---|")
    with TemporaryDirectory() as folder:
        write_table(Path(folder) / "table.npz", options.records)
        first = None
        for title, words in ROWS.items():
            measured = [measure(words, Path(folder)) for _ in range(options.repeats)]
            seconds, memory = (median(values) for values in zip(*measured, strict=True))
            first = seconds if first is None else first
            print(f"| {title} | {seconds:.2f} | {seconds / first:.1f} | {memory:.0f} |", flush=True)


def write_table(path: Path, num: int) -> None:
    """Write a table whose labels follow from its features but for some noise."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((num, 20)).astype(np.float32)
    scores = X @ generator.standard_normal((20, 6)) + generator.standard_normal((num, 6)) / 2
    private, public = 2 * num // 3, num // 5
    split = np.repeat([0, 1, 2], [private, public, num - private - public])
    ids = np.char.mod("patient-%05d", np.arange(num))
    np.savez(path, X=X, Y=(scores > 1).astype(np.uint8), ids=ids, split=split)


def measure(words: Sequence[str], folder: Path) -> tuple[float, float]:
    """Return the seconds and the megabytes of a new process of Python in a folder."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    with process.stderr as stream:
        said = stream.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(said)
    return time.perf_counter() - start, used.ru_maxrss / 1024


if __name__ == "__main__":
    main()
