"""Time and memory of `pate label` on many made-up votes; `docs/appendix/reliability.md` shows the output.

python scripts/measure_load.py [--silos 20] [--teachers 100] [--queries 1000] [--labels 1000]
[--counts]
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import Process
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import numpy as np


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row of the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--silos", type=int, default=20, help="number of silos, a file each")
    parser.add_argument("--teachers", type=int, default=100, help="number of teachers of each")
    parser.add_argument(
        "--queries", type=int, default=1000, help="number of samples, all of which are queried"
    )
    parser.add_argument("--labels", type=int, default=1000, help="number of labels")
    parser.add_argument(
        "--counts", action="store_true", help="counts in place of the ballots of each teacher"
    )
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "votes").mkdir()
        # a process keeps the largest memory of the one that starts it
        maker = Process(target=make_silos, args=(place / "votes", options))
        maker.start()
        maker.join()
        start = time.monotonic()
        peak = label(place, options.queries) / 2**20
        seconds = time.monotonic() - start
        size = sum(path.stat().st_size for path in (place / "votes").iterdir()) / 2**30
    teachers = options.silos * options.teachers
    print(f"| {options.silos} | {teachers} | {options.queries} | {options.labels} |", end="")
    print(f" {size:.2f} GiB | {peak:.2f} GiB | {seconds:.0f} s |")


def make_silos(folder: Path, options: argparse.Namespace) -> None:
    """Write the votes of each silo."""
    ids, names = (
        np.char.mod("s%07d", np.arange(options.queries)),
        np.char.mod("l%04d", np.arange(options.labels)),
    )
    for silo in range(options.silos):
        generator, path = np.random.default_rng(silo), folder / f"{silo:04d}.npz"
        if options.counts:
            counts = generator.binomial(options.teachers, 0.1, (options.queries, options.labels))
            np.savez(path, ids=ids, label_names=names, counts=counts, num_teachers=options.teachers)
        else:
            np.savez(path, ids=ids, label_names=names)
            shape = options.queries, options.teachers, options.labels
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            with (
                ZipFile(path, "a") as archive,
                archive.open("ballots.npy", "w", force_zip64=True) as file,
            ):
                np.lib.format.write_array_header_1_0(file, header)
                for _ in range(options.queries):  # there may be too many for the memory
                    file.write(generator.integers(0, 2, shape[1:], dtype=np.uint8).data)


def label(place: Path, queries: int) -> int:
    """Run the command; return the most memory that it held, in KiB."""
    words = f"--votes {place / 'votes'} --run {place / 'run'} --num_queries {queries} --delta 1e-7"
    noise = "--aggregator NoisyVotes --aggregator.sigma_votes 30"
    command = [sys.executable, "-m", "pate", "label", *words.split(), *noise.split()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"Expected labels, got status={process.returncode}")
    return usage.ru_maxrss


if __name__ == "__main__":
    main()
