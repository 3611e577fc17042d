"""The most memory of a worker of `pate teachers fit --shared true`, as Markdown rows.

python scripts/measure_records.py [--gigabytes 1] [--teachers 64]

The records are made up: one array in an `.npz`, of which a tenth is public and a tenth for tests,
first stored as it is and then compressed.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import Process
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

_WIDTH = 4096


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=1.0, help="size of the array")
    parser.add_argument(
        "--teachers", type=int, default=64, help="number of teachers, each a chunk of its own"
    )
    options = parser.parse_args(arguments)
    for write in (np.savez, np.savez_compressed):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "data.npz"
            # a process keeps the largest memory of the one that starts it
            maker = Process(
                target=make, args=(path, int(options.gigabytes * 1e9) // (4 * _WIDTH), write)
            )
            maker.start()
            maker.join()
            peak = train(path, options.teachers) * 1024 / 1e9
        kind = "stored" if write is np.savez else "compressed"
        print(
            f"| {kind} | {options.gigabytes:g} GB | {options.teachers} | {peak:.2f} GB |",
            flush=True,
        )


def make(path: Path, num: int, write: object) -> None:
    """Write ``num`` records."""
    generator = np.random.default_rng(0)
    features = generator.integers(0, 2, size=(num, _WIDTH), dtype=np.uint8).astype(np.float32)
    labels = features[:, :2].astype(np.uint8)
    assert callable(write)
    write(
        path,
        X=features,
        Y=labels,
        ids=np.char.mod("r%d", np.arange(num)),
        split=np.array([1, 2, *[0] * 8])[np.arange(num) % 10],
    )


def train(path: Path, teachers: int) -> int:
    """Run the command; return the most memory that it held, in KiB."""
    words = f"--data Arrays --data.path {path} --run {path.parent / 'run'} --shared true"
    plan = f"--network pate.models.Linear --num_teachers {teachers} --num_steps 5 --batch_size 16 --chunk_size 1"
    command = [sys.executable, "-m", "pate", "teachers", "fit", *words.split(), *plan.split()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"Expected teachers, got status={process.returncode}")
    return usage.ru_maxrss


if __name__ == "__main__":
    main()
