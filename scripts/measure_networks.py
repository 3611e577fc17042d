"""What small networks on pictures reach by aggregator and epsilon, as Markdown.

    python -m scripts.measure_networks
    python -m scripts.measure_networks --epsilons 1 2 --seeds 5

Faces are rendered, and the teachers of `configs/faces_networks`, which start from a first release
at epsilon 1, are trained once. All releases have their votes: each aggregator at each epsilon, with
several draws of the noise, of which medians are shown. An epsilon covers the first release too.
Settings follow from the target epsilon. Each release has a student of its own, a linear one of
pixels, because 180 pictures are too few for a network. It is accounted as if it were the only one:
the ledger is put back to its state after training, which nobody may do with records that are
somebody's. Figures are kept in ``networks.jsonl``, so that the command resumes where it was
stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate import ReleasedLabels
from pate.data import CelebA, Role
from scripts.faces.drawing import write_celeba_folder
from scripts.measure_runs import call

RECIPE = Path("configs/faces_networks")
EPSILONS = (1.0, 2.0, 4.0, 8.0)
SIZE = 6  # labels of a set: the rounded mean of the public faces
ENDLESS = 1e5  # the epsilon of a majority with hardly any noise
MAJORITY, FIRST, CONSTANT = (
    "majority, hardly any noise",
    "student of the first release",
    "constant answer",
)
AGGREGATORS = {
    MAJORITY: ("--aggregator=NoisyVotes",),
    "StableTopK": ("--aggregator=StableTopK",),
    "Canonical": ("--aggregator=Canonical", f"--aggregator.k={SIZE}"),
    "Peeling": ("--aggregator=Peeling", f"--aggregator.k={SIZE}"),
    "Rounds": ("--aggregator=Rounds",),
}


class Row(NamedTuple):
    """The figures of one way at an epsilon, infinity for no privacy; NaN where nothing is released."""

    way: str
    epsilon: float
    seed: int
    answered: float
    right: float
    accuracy: float
    mean_precision: float


class Networks:
    """The faces, the run of their teachers and its figures, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.faces, self.root = folder, folder / "faces", folder / "run"
        folder.mkdir(parents=True, exist_ok=True)
        self.file, self.ledger = folder / "networks.jsonl", folder / "trained.sqlite"
        self.file.touch()

    @property
    def rows(self) -> list[Row]:
        """The figures so far."""
        return [Row(*json.loads(line)) for line in self.file.read_text().splitlines()]

    def add(self, row: Row) -> None:
        """Keep a row."""
        print(*row, file=sys.stderr, flush=True)
        with self.file.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def train(self, num_faces: int, workers: int) -> None:
        """Render the faces and run the recipe, unless its teachers have voted."""
        if (self.root / "private" / "votes" / "manifest.json").is_file():
            return
        write_celeba_folder(self.faces, num=num_faces, private_fraction=0.9, public_fraction=0.05)
        call(
            *("run", str(RECIPE), f"--run={self.root}", f"--ledger={self.root}.sqlite"),
            *(f"--data.init_args.root={self.faces}", f"--teachers.workers={workers}"),
            *("--label.aggregator=Rounds", "--label.noise_seed=0"),
        )
        shutil.copy(f"{self.root}.sqlite", self.ledger)

    def release(self, way: str, epsilon: float, seed: int, queries: int) -> None:
        """Add the figures of one release and its student, unless they are there."""
        key, root = (way, epsilon, seed), self.root
        if any(row[:3] == key for row in self.rows):
            return
        shutil.copy(self.ledger, f"{root}.sqlite")
        try:
            call(
                *("label", f"--run={root}", "--overwrite", *AGGREGATORS[way]),
                *(f"--target_epsilon={epsilon}", "--delta=1e-6", f"--noise_seed={seed}"),
                f"--num_queries={queries}",
            )
        except SystemExit as refused:
            print(str(refused)[-300:], file=sys.stderr)
            self.add(Row(*key, *[math.nan] * 4))
            return
        answered, right = self.correct(root)
        figures = [math.nan] * 2
        if answered:
            student = self.folder / "student.yaml"
            student.write_text("model:\n  network: pate.models.Linear\n")
            call("student", "fit", f"--run={root}", "--overwrite", f"--config={student}")
            call("student", "test", f"--run={root}", "--verbose=false")
            figures = figures_of(root, "student")
        self.add(Row(*key, answered, right, *figures))
        if way == MAJORITY:
            nothing = (math.inf, 0, math.nan, math.nan)
            self.add(Row(CONSTANT, *nothing, *figures_of(root, "all_majority")))
            call("student", "test", f"--run={root / 'first'}", "--verbose=false")
            figures = figures_of(root / "first", "student")
            self.add(Row(FIRST, math.inf, 0, *self.correct(root / "first"), *figures))

    def correct(self, root: Path) -> tuple[int, float]:
        """Return how many queries were answered, and the share of their labels that are right."""
        released, truth = ReleasedLabels.load(root), CelebA(self.faces, size=32).load(Role.PUBLIC)
        row_of = {name: row for row, name in enumerate(truth.ids)}
        labels = truth.labels[[row_of[name] for name in released.ids]]
        same = (released.labels == labels)[released.mask]
        return int(released.answered.sum()), float(same.mean()) if len(same) else math.nan


def figures_of(root: Path, student: str) -> list[float]:
    """Return accuracy and mAP on the test set."""
    metrics = json.loads((root / "public" / "student" / "metrics.json").read_text())[student]
    return [metrics["accuracy"], metrics["mAP"]]


def table(rows: Sequence[Row]) -> str:
    """Return Markdown with the medians of each way at each epsilon."""
    lines = [
        "| aggregator | epsilon | answered | labels right | accuracy | mAP |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    ways = [CONSTANT, FIRST, *AGGREGATORS]
    for key in sorted(
        {row[:2] for row in rows},
        key=lambda key: (ways.index(key[0]), key[1]),
    ):
        of_key = np.array([row[3:] for row in rows if row[:2] == key], dtype=float)
        answered, *figures = np.median(of_key, axis=0)
        released = key[0] != CONSTANT
        cells = ["" if key[1] in (math.inf, ENDLESS) else f"{key[1]:g}"]
        cells.append(f"{answered:.0f}" if np.isfinite(answered) else "refused" if released else "")
        cells += ["" if math.isnan(figure) else f"{figure:.3f}" for figure in figures]
        lines.append(f"| {key[0]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the figures that are missing, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=3, help="how often the noise is drawn")
    parser.add_argument("--num_faces", type=int, default=40_000)
    parser.add_argument("--num_queries", type=int, default=180)
    parser.add_argument("--workers", type=int, default=2, help="processes that train teachers")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/measured/networks"), help="folder of all runs"
    )
    options = parser.parse_args(arguments)
    networks = Networks(options.output)
    networks.train(options.num_faces, options.workers)
    networks.release(MAJORITY, ENDLESS, 0, options.num_queries)
    ways = [way for way in AGGREGATORS if way != MAJORITY]
    for seed, epsilon, way in product(range(options.seeds), options.epsilons, ways):
        networks.release(way, epsilon, seed, options.num_queries)
    print(table(networks.rows))


if __name__ == "__main__":
    main()
