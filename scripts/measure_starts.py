"""Results of teachers that start from the first of two releases, by aggregator, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_starts digits:0.5:1:4 faces:1 tmc2007_500:1:8

A task is followed by its epsilons; its records and its recipe are those of `measure_runs.py`, but
that teachers start from the run's own first release (``start_from: first``), and so many queries
are asked, drawn by a seed or chosen (``query_choice``). The number of teachers is that which `pate
run` finds for StableTopK; the other aggregators have the votes of the same teachers. Beside them
stand the student of the first release, and 500 linear networks that start afresh. Figures are
medians over seeds, each with teachers of its own, and are kept in ``starts.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import yaml

from pate import ReleasedLabels
from pate._release.label_settings import QueryChoice
from scripts.measure_runs import NETWORKS, Task, call

STABLE, FIRST, AFRESH = (
    "StableTopK",
    "score votes, half of the squared budget",
    "StableTopK, afresh",
)
AGGREGATORS = {
    STABLE: STABLE,
    "StableMajority": "StableMajority",
    "Canonical": "Canonical",
    "peeling": "PeeledVotes",
    "two rounds of bits": "Rounds",
}
CHOICES = {f"StableTopK, {choice}": choice for choice in get_args(QueryChoice)}
WAYS = (*AGGREGATORS, *CHOICES)
QUERIES = {"faces": 180}  # that are asked; elsewhere 300
SIZES = {"faces": 6}  # of sets that Canonical and peeling release, as of public samples; else 2
PLANS = {"started": "fit: closed_form\nstart_from: first\n", "afresh": NETWORKS}


class Row(NamedTuple):
    """The figures of one way at an epsilon in a seed's run; NaN if the release is refused."""

    task: str
    epsilon: float
    way: str
    seed: int
    teachers: float
    answered: float
    accuracy: float
    mean_precision: float


class Starts(Task):
    """A task with recipes of teachers that start from a release, or afresh."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder)
        self.file = folder / "starts.jsonl"
        self.file.touch()

    @property
    def starts(self) -> list[Row]:
        """What is measured."""
        return [Row(*json.loads(line)) for line in self.file.read_text().splitlines()]

    def place(self, kind: str, epsilon: float, seed: int) -> Path:
        """Return the folder of a run with its ledger next to it; tests of others cost delta."""
        return self.folder / f"{kind}-{epsilon:g}-{seed}"

    def run(self, kind: str, epsilon: float, seed: int, *words: str) -> list[float]:
        """Return the number of teachers of a whole run, its answered queries, accuracy and mAP."""
        root, recipe = self.place(kind, epsilon, seed), self.folder / f"{kind}-recipe"
        recipe.mkdir(exist_ok=True)
        source = (
            {"class_path": "CelebA", "init_args": {"root": str(self.data), "size": 32}}
            if self.is_faces
            else {"class_path": "Arrays", "init_args": {"path": str(self.data)}}
        )
        pca = {"class_path": "PublicPCA", "init_args": {"num_components": 128}}
        source["init_args"]["features"] = pca if self.is_faces else "PublicScaling"  # type: ignore[index]
        label = {"delta": 1e-5 if self.is_faces else 1e-6}
        student = {"model": {"network": "pate.models.Linear"}}
        for part, content in (("data", {"data": source}), ("label", label), ("student", student)):
            (recipe / f"{part}.yaml").write_text(yaml.safe_dump(content))
        (recipe / "teachers.yaml").write_text(PLANS[kind])
        call(
            *("run", str(recipe), f"--run={root}", f"--ledger={root}.sqlite", "--overwrite"),
            f"--label.num_queries={QUERIES.get(self.name, 300)}",
            *(f"--label.target_epsilon={epsilon}", f"--label.noise_seed={seed}"),
            *words,
        )
        labels = ReleasedLabels.load(root)
        return [labels.num_teachers, float(labels.answered.sum()), *figures_of(root)]


def figures_of(root: Path) -> list[float]:
    """Return accuracy and mAP of the student of a run on the test set."""
    metrics = json.loads((root / "public" / "student" / "metrics.json").read_text())["student"]
    return [metrics["accuracy"], metrics["mAP"]]


def measure(task: Starts, epsilon: float, seed: int, ways: Sequence[str]) -> None:
    """Add the rows of one seed: all aggregators on the votes of the same teachers."""
    done = {row.way for row in task.starts if (row.epsilon, row.seed) == (epsilon, seed)}
    words: list[str] = []
    ledger, spent = Path(f"{task.place('started', epsilon, seed)}.sqlite"), b""
    for way in WAYS:
        if (way in done or way not in ways) and way != STABLE:
            continue
        more = [f"--label.aggregator={AGGREGATORS.get(way, STABLE)}", *words]
        if way in CHOICES:
            more.append(f"--label.query_choice={CHOICES[way]}")
        if way in ("Canonical", "peeling"):
            more.append(f"--label.aggregator.k={SIZES.get(task.name, 2)}")
        if spent:
            ledger.write_bytes(spent)  # each way is to be the only one after the first two releases
        try:
            figures = task.run("started", epsilon, seed, *more)
        except SystemExit as refused:
            print(str(refused)[-300:], file=sys.stderr)
            figures = [math.nan] * 4
        if way == STABLE:
            root = task.place("started", epsilon, seed)
            call("student", "test", f"--run={root / 'first'}", "--verbose=false")
            first = ReleasedLabels.load(root / "first")
            add(task, epsilon, FIRST, seed, [math.nan, len(first.ids), *figures_of(root / "first")])
            planned = json.loads((root / "private" / "votes" / "manifest.json").read_text())
            words = [f"--teachers.num_teachers={planned['num_teachers']}"]
            spent = ledger.read_bytes()
        add(task, epsilon, way, seed, figures)
    if AFRESH in ways and AFRESH not in done:
        plain = ["--label.aggregator=StableTopK", "--teachers.num_teachers=500"]
        try:
            figures = task.run("afresh", epsilon, seed, *plain)
        except SystemExit:
            figures = [math.nan] * 4
        add(task, epsilon, AFRESH, seed, figures)


def add(task: Starts, epsilon: float, way: str, seed: int, figures: Sequence[float]) -> None:
    """Keep a row, unless it is there."""
    row = Row(task.name, epsilon, way, seed, *figures)
    if not any(row[:4] == other[:4] for other in task.starts):
        print(*row, file=sys.stderr, flush=True)
        with task.file.open("a") as file:
            file.write(json.dumps(row) + "\n")


def table(rows: Sequence[Row]) -> str:
    """Return Markdown with the medians of each way at each epsilon."""
    lines = [
        "| task | epsilon | | teachers | answered | accuracy | mAP |",
        "|---|---:|---|---:|---:|---:|---:|",
    ]
    ways = [FIRST, *WAYS, AFRESH]
    keys = sorted({row[:3] for row in rows}, key=lambda key: (*key[:2], ways.index(key[2])))
    for key in keys:
        teachers, answered, *figures = np.median([row[4:] for row in rows if row[:3] == key], 0)
        shown = ["" if math.isnan(teachers) else f"{teachers:.0f}"]
        shown += (
            ["refused", "", ""]
            if math.isnan(answered)
            else [f"{answered:.0f}", *(f"{figure:.3f}" for figure in figures)]
        )
        lines.append(f"| {key[0]} | {key[1]:g} | {key[2]} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and print a table for each task."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", metavar="TASK:EPSILON[:EPSILON...]")
    ways = [*WAYS, AFRESH]
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--output", type=Path, default=Path("runs/measured"), help="folder of the tasks"
    )
    options = parser.parse_args(arguments)
    for words in options.tasks:
        name, *numbers = words.split(":")
        task = Starts(name, options.output / name)
        for seed, epsilon in product(range(options.seeds), map(float, numbers)):
            measure(task, epsilon, seed, options.ways)
        print(f"\n{table(task.starts)}", flush=True)


if __name__ == "__main__":
    main()
