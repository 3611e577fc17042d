"""Results of teachers that start from the first of two releases, by aggregator, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_starts digits:0.5:1:4 faces:1 tmc2007_500:1:8

A task is followed by its epsilons; its records and its recipe are those of `measure_runs.py`, but
that teachers start from the run's own first release (``start_from: first``), and so many queries
are asked, drawn by a seed or chosen (``query_choice``). The number of teachers is that which `pate
run` finds for StableTopK; the other aggregators have the votes of the same teachers. The table
also shows the student of the first release, and 500 linear networks (``--afresh``) that start
afresh, and share their votes in the same way. Figures are medians over seeds, each with teachers of
its own, and are kept in ``starts.jsonl``.
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
from pate._labeling.release.label_settings import QueryChoice
from scripts.measure_runs import NETWORKS, Task, call

STABLE, FIRST = "StableTopK", "score votes, half of the squared budget"
CONSTANT, MAJORITY = "constant answer", "majority, hardly any noise"
ENDLESS = 1e5  # the epsilon of a majority with hardly any noise
AGGREGATORS = {
    STABLE: STABLE,
    "Canonical": "Canonical",
    "peeling": "PeeledVotes",
    "two rounds of bits": "Rounds",
    MAJORITY: "NoisyVotes",
}
CHOICES = {
    f"{name}, {choice}": (AGGREGATORS[name], choice)
    for name, choice in product(AGGREGATORS, get_args(QueryChoice))
    if name != MAJORITY
}
AFRESH = {f"{name}, afresh": aggregator for name, aggregator in AGGREGATORS.items()}
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

    @property
    def delta(self) -> float:
        """The delta of all runs."""
        return 1e-5 if self.is_faces else 1e-6

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
        label = {"delta": self.delta}
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
        return self.figures(root)

    def majority(self, kind: str, epsilon: float, seed: int) -> list[float]:
        """Return the same figures of the votes of the last run, with hardly any noise."""
        root, again = self.place(kind, epsilon, seed), "--overwrite"
        call(
            *("label", f"--run={root}", again, "--aggregator=NoisyVotes", f"--noise_seed={seed}"),
            *(f"--target_epsilon={ENDLESS}", f"--delta={self.delta}"),
            f"--num_queries={QUERIES.get(self.name, 300)}",
        )
        student = self.folder / f"{kind}-recipe" / "student.yaml"
        call("student", "fit", f"--run={root}", again, f"--config={student}")
        call("student", "test", f"--run={root}", "--verbose=false")
        return self.figures(root)

    def figures(self, root: Path, student: str = "student") -> list[float]:
        """Return the number of teachers, the answered queries, and accuracy and mAP on tests."""
        labels = ReleasedLabels.load(root)
        metrics = json.loads((root / "public" / "student" / "metrics.json").read_text())[student]
        size = [labels.num_teachers, float(labels.answered.sum())]
        return [*size, metrics["accuracy"], metrics["mAP"]]


def measure(task: Starts, epsilon: float, seed: int, ways: Sequence[str], afresh: int) -> None:
    """Add the missing rows of one seed: all aggregators on the votes of the same teachers."""
    done = {row.way for row in task.starts if (row.epsilon, row.seed) == (epsilon, seed)}
    missing = [way for way in ways if way not in done]
    if any(way in WAYS for way in missing):
        words: list[str] = []
        # its run finds the number of teachers
        for way in (STABLE, *(way for way in WAYS if way in missing and way != STABLE)):
            figures = one(task, "started", epsilon, seed, way, words)
            if not words:
                root = task.place("started", epsilon, seed)
                constant = [math.nan, math.nan, *task.figures(root, "all_majority")[2:]]
                add(task, epsilon, CONSTANT, seed, constant)
                call("student", "test", f"--run={root / 'first'}", "--verbose=false")
                first = [math.nan, *task.figures(root / "first")[1:]]
                add(task, epsilon, FIRST, seed, first)
                votes = json.loads((root / "private" / "votes" / "manifest.json").read_text())
                words = [f"--teachers.num_teachers={votes['num_teachers']}"]
            add(task, epsilon, way, seed, figures)
    for way in AFRESH:
        if way in missing:
            words = [f"--teachers.num_teachers={afresh}"]
            add(task, epsilon, way, seed, one(task, "afresh", epsilon, seed, way, words))


def one(
    task: Starts, kind: str, epsilon: float, seed: int, way: str, words: Sequence[str]
) -> list[float]:
    """Return the figures of a run in which a way is the only one after the first; NaN if refused."""
    root = task.place(kind, epsilon, seed)
    ledger, spent = Path(f"{root}.sqlite"), Path(f"{root}-spent.sqlite")
    if spent.exists():
        ledger.write_bytes(spent.read_bytes())
    plain = {name: (aggregator, None) for name, aggregator in (AGGREGATORS | AFRESH).items()}
    aggregator, choice = (plain | CHOICES)[way]
    words = [*words, f"--label.aggregator={aggregator}"]
    if choice:
        words.append(f"--label.query_choice={choice}")
    if aggregator in ("Canonical", "PeeledVotes"):
        words.append(f"--label.aggregator.k={SIZES.get(task.name, 2)}")
    try:
        if aggregator == "NoisyVotes":
            return task.majority(kind, epsilon, seed)
        return task.run(kind, epsilon, seed, *words)
    except SystemExit as refused:
        print(str(refused)[-300:], file=sys.stderr)
        return [math.nan] * 4
    finally:
        if ledger.exists() and root.exists() and not spent.exists():
            spent.write_bytes(ledger.read_bytes())


def add(task: Starts, epsilon: float, way: str, seed: int, figures: Sequence[float]) -> None:
    """Keep a row, unless it is there."""
    row = Row(task.name, epsilon, way, seed, *figures)
    if not any(row[:4] == other[:4] for other in task.starts):
        print(*row, file=sys.stderr, flush=True)
        with task.file.open("a") as file:
            file.write(json.dumps(row) + "\n")


def table(rows: Sequence[Row]) -> str:
    """Return Markdown: medians of each way at each epsilon, and the standard errors of their means."""
    lines = [
        "| task | epsilon | | runs | teachers | answered | accuracy | mAP |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    ways = [CONSTANT, FIRST, *WAYS, *AFRESH]
    for key in sorted({row[:3] for row in rows}, key=lambda key: (*key[:2], ways.index(key[2]))):
        runs = np.array([row[4:] for row in rows if row[:3] == key])
        middle, errors = np.median(runs, axis=0), np.full(4, math.nan)
        if len(runs) > 1:
            errors = runs.std(axis=0, ddof=1) / math.sqrt(len(runs))
        cells = ["" if math.isnan(number) else f"{number:.0f}" for number in middle[:2]]
        cells += [
            f"{figure:.3f}" + ("" if math.isnan(error) else f" ± {error:.3f}")
            for figure, error in zip(middle[2:], errors[2:], strict=True)
        ]
        if math.isnan(middle[2]):
            cells[1:] = ["none", "", ""]
        lines.append(f"| {key[0]} | {key[1]:g} | {key[2]} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is not measured yet, and print a table for each task."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", metavar="TASK:EPSILON[:EPSILON...]")
    ways = [*WAYS, *AFRESH]
    parser.add_argument(
        "--ways", nargs="+", choices=ways, default=ways, metavar="WAY", help=", ".join(ways)
    )
    parser.add_argument("--afresh", type=int, default=500, help="networks that start afresh")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--output", type=Path, default=Path("runs/measured"), help="folder of the tasks"
    )
    options = parser.parse_args(arguments)
    for words in options.tasks:
        name, *numbers = words.split(":")
        task = Starts(name, options.output / name)
        for seed, epsilon in product(range(options.seeds), map(float, numbers)):
            measure(task, epsilon, seed, options.ways, options.afresh)
        print(f"\n{table(task.starts)}", flush=True)


if __name__ == "__main__":
    main()
