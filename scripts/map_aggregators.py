"""A map of aggregators: the best for a student, by number of labels and agreement of teachers.

Only simulated votes, so that nothing private is touched. Every aggregator is given the same votes
at the same epsilon; a closed-form student learns from its release, and is judged on fresh
samples with the constant answer.

    python scripts/map_aggregators.py --output map              # map.csv, map.md and map.png
    python scripts/map_aggregators.py --output map --small      # a minute

A map that was interrupted goes on from the rows of its map.csv.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from tqdm import tqdm

from pate import Outlook
from pate._core.accounting.accountant import COARSE_ORDERS
from pate._labeling.aggregators.base import features_of
from pate._labeling.linear import student_of
from pate.accounting import NeighboringRelation, Target
from pate.lab.plan.frontier import candidates, score_student
from pate.lab.plan.sources import Simulation, simulated
from pate.student import LinearStudent

DELTA = 1e-6
MEASURES = ("student_accuracy", "student_macro_f1")
CONSTANT = "constant answer"


@dataclass(frozen=True, kw_only=True)
class Map:
    """The contents of a map.

    Attributes:
        labels: numbers of labels.
        accuracies: the share of labels that one teacher gets right.
        epsilons: the targets.
        num_teachers: number of teachers.
        num_queries: number of queries.
        seeds: draws of votes and noise; the mean is shown.
    """

    labels: tuple[int, ...] = (5, 20, 80, 300)
    accuracies: tuple[float, ...] = (0.7, 0.8, 0.9, 0.97)
    epsilons: tuple[float, ...] = (1.0, 4.0)
    num_teachers: int = 400
    num_queries: int = 500
    seeds: int = 1

    def places(self) -> list[tuple[int, float, int]]:
        """Return all numbers of labels, accuracies and seeds, one draw of the map after another."""
        return [
            (c, a, seed) for seed in range(self.seeds) for c in self.labels for a in self.accuracies
        ]


SMALL = Map(
    labels=(3, 6), accuracies=(0.7, 0.97), epsilons=(4.0,), num_teachers=60, num_queries=60, seeds=1
)


class _Place(TypedDict):
    num_labels: int
    teacher_accuracy: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """The figures of one aggregator on one draw of the votes."""

    num_labels: int
    teacher_accuracy: float
    seed: int
    epsilon: float
    aggregator: str
    answered: float
    student_accuracy: float
    student_macro_f1: float


def rows_at(drawn: Map, num_labels: int, accuracy: float, seed: int) -> Iterator[Row]:
    """Yield the figures of all aggregators on one draw of the votes, the constant answer first."""
    task = simulated(
        Simulation(
            num_labels=num_labels,
            num_teachers=drawn.num_teachers,
            teacher_accuracy=accuracy,
            num_public=drawn.num_queries,
            seed=seed,
        )
    )
    votes = task.votes
    features = features_of(votes)
    place = _Place(num_labels=num_labels, teacher_accuracy=accuracy, seed=seed)
    outlook = Outlook.of(task.votes, delta=DELTA, relation=NeighboringRelation.REPLACE_RECORD)
    aggregators = [candidate.aggregator for candidate in candidates(outlook)]
    for epsilon in drawn.epsilons:
        weights = np.zeros((features.shape[1] + 1, num_labels))
        weights[-1] = np.where(task.test_labels.mean(axis=0) > 0.5, 1.0, -1.0)
        constant = LinearStudent(
            weights, departs=np.ones(num_labels, dtype=np.bool_), constants=weights[-1]
        )
        figures = score_student(constant, task, cutoff=0.5)
        yield Row(
            **place,
            epsilon=epsilon,
            aggregator=CONSTANT,
            answered=1.0,
            **{name: figures[name] for name in MEASURES},
        )
        target = Target(epsilon=epsilon, delta=DELTA, num_queries=drawn.num_queries)
        for aggregator in aggregators:
            calibrated = aggregator.calibrated(
                target, task.votes.shape, tolerance=1e-3, orders=COARSE_ORDERS
            )
            if calibrated is not None:
                release = calibrated.aggregate(votes, generator=np.random.default_rng(seed))
                student = student_of(release, features, task.votes.num_teachers)
                figures = score_student(student, task, cutoff=0.5)
                yield _row(
                    place, epsilon, aggregator.display_name, float(release.mask.mean()), figures
                )


def _row(
    place: _Place, epsilon: float, aggregator: str, answered: float, figures: dict[str, float]
) -> Row:
    return Row(
        **place,
        epsilon=epsilon,
        aggregator=aggregator,
        answered=answered,
        student_accuracy=figures["student_accuracy"],
        student_macro_f1=figures["student_macro_f1"],
    )


def measured(drawn: Map, file: Path) -> list[Row]:
    """Return the rows of all places, rows of ``file`` first; complete places are kept."""
    rows: list[Row] = []
    if file.is_file():
        with file.open() as stream:
            rows = [_read(row) for row in csv.DictReader(stream)]
    done = {(row.num_labels, row.teacher_accuracy, row.seed) for row in rows}
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(Row.__dataclass_fields__))
        if not rows:
            writer.writeheader()
        for place in tqdm(
            [place for place in drawn.places() if place not in done], desc="map", unit="place"
        ):
            new = list(rows_at(drawn, *place))
            # in one go, so that a place is there whole or not at all
            writer.writerows([asdict(row) for row in new])
            stream.flush()
            rows += new
    return rows


def _read(row: dict[str, str]) -> Row:
    kinds: dict[str, Any] = {"num_labels": int, "seed": int, "aggregator": str}
    return Row(**{name: kinds.get(name, float)(value) for name, value in row.items()})


def means(
    rows: Sequence[Row], measure: str, epsilon: float
) -> dict[tuple[int, float], dict[str, float]]:
    """Return for each place the mean of a figure by aggregator, the best first."""
    values: dict[tuple[int, float], dict[str, list[float]]] = {}
    for row in rows:
        if row.epsilon == epsilon:
            place = values.setdefault((row.num_labels, row.teacher_accuracy), {})
            place.setdefault(row.aggregator, []).append(getattr(row, measure))
    return {
        place: dict(
            sorted(
                ((name, float(np.mean(draws))) for name, draws in by_aggregator.items()),
                key=lambda x: -x[1],
            )
        )
        for place, by_aggregator in values.items()
    }


def markdown(drawn: Map, rows: Sequence[Row]) -> str:
    """Return a table of the best aggregator of each place, `StableTopK` and the constant."""
    lines = [
        "| epsilon | labels | teachers right | best by accuracy | accuracy | StableTopK | constant | best by macro-F1 |"
        " macro-F1 | StableTopK |",
        "| ---: | ---: | ---: | --- | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for epsilon in drawn.epsilons:
        by_accuracy, by_f1 = (means(rows, measure, epsilon) for measure in MEASURES)
        for place, figures in by_accuracy.items():
            first, second = next(iter(figures)), next(iter(by_f1[place]))
            stable = (by_figure[place].get("StableTopK") for by_figure in (by_accuracy, by_f1))
            shown = ["-" if value is None else f"{value:.4f}" for value in stable]
            lines.append(
                f"| {epsilon:g} | {place[0]} | {place[1]:g} | {first} | {figures[first]:.4f} | {shown[0]} |"
                f" {figures[CONSTANT]:.4f} | {second} | {by_f1[place][second]:.4f} | {shown[1]} |"
            )
    return "\n".join(lines) + "\n"


def draw(drawn: Map, rows: Sequence[Row], path: Path) -> None:
    """Draw the best aggregator of each place, and its lead over the constant answer."""
    tables = {(m, e): means(rows, m, e) for m in MEASURES for e in drawn.epsilons}
    names = sorted({next(iter(figures)) for table in tables.values() for figures in table.values()})
    colors = dict(zip(names, colormaps["tab20"].colors, strict=False))  # type: ignore[attr-defined]
    figure = Figure(figsize=(6.4 * len(drawn.epsilons), 9.0), layout="constrained")
    grid = figure.subplots(len(MEASURES), len(drawn.epsilons), squeeze=False)
    for (measure, epsilon), axes in zip(tables, grid.flat, strict=True):
        for (num_labels, accuracy), figures in tables[measure, epsilon].items():
            x, y = drawn.accuracies.index(accuracy), drawn.labels.index(num_labels)
            best = next(iter(figures))
            name = best.replace("Rounds (ClippedVotes, ", "Rounds (").replace(
                "ClippedVotes (around a student))", "the default)"
            )
            name = name.replace(" (", "\n(", 1)
            axes.add_patch(_square(x, y, colors[best]))
            text = f"{name}\n{figures[best]:.3f}\nconstant {figures[CONSTANT]:.3f}"
            text += f"\nStableTopK {figures['StableTopK']:.3f}" if "StableTopK" in figures else ""
            axes.text(x, y, text, ha="center", va="center", fontsize=6.5)
        axes.set(xlim=(-0.5, len(drawn.accuracies) - 0.5), ylim=(-0.5, len(drawn.labels) - 0.5))
        axes.set_xticks(range(len(drawn.accuracies)), [f"{share:g}" for share in drawn.accuracies])
        axes.set_yticks(range(len(drawn.labels)), [str(number) for number in drawn.labels])
        shown = measure.replace("student_", "").replace("macro_f1", "macro-F1")
        axes.set(xlabel="share of labels that a teacher gets right", ylabel="labels")
        axes.set_title(f"best student by {shown}, epsilon {epsilon:g}", fontsize=10)
    figure.suptitle(
        f"{drawn.num_teachers} simulated teachers, {drawn.num_queries} queries, delta {DELTA:g}",
        fontsize=10,
    )
    figure.savefig(path, dpi=110)


def _square(x: int, y: int, colour: tuple[float, float, float]) -> Rectangle:
    return Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=(*colour, 0.45), edgecolor="white")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write map.csv, map.md and map.png."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of the map")
    parser.add_argument("--small", action="store_true", help="few labels, teachers and queries")
    parser.add_argument(
        "--seeds", type=int, default=1, help="draws of votes and noise, whose mean is shown"
    )
    options = parser.parse_args(arguments)
    drawn = replace(SMALL if options.small else Map(), seeds=options.seeds)
    rows = measured(drawn, options.output / "map.csv")
    text = markdown(drawn, rows)
    (options.output / "map.md").write_text(text)
    draw(drawn, rows, options.output / "map.png")
    print(text, end="")


if __name__ == "__main__":
    main()
