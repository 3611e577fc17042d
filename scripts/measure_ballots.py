"""Compare votes by bits, quantile bits and scores, as Markdown: medians of several whole runs.

    export PATE_DATA=...    # the folder that holds multilabel/ python -m scripts.measure_ballots
    digits:mlp:500:0.5:2 digits:forest:500:0.5:2 pictures:cnn:300:2

A task is followed by its teachers, their number and epsilons, at delta 1e-6 under REPLACE_RECORD.
Each run has its own teachers, which vote in all ways; networks are trained by `pate teachers fit`,
forests come as votes from elsewhere. Labels are the default for a target: two `Rounds` of bits, or
`ScoreVotes` of scores; `ScoreVotes` of bits is added. The student is linear, in
closed form. Features are divided by the median norm of the public ones.

The tables are as in `measure_runs.py`, with 4,000 public samples at most. `pictures` are the
digits as 14 x 14 pixels, 20,000 of them private, 3,000 public and 10,000 for the test.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from sklearn.ensemble import RandomForestRegressor

from pate import LabelSettings, NamedVotes, Partial, Pipeline, StudentPlan
from pate._core.validation import Float32Array, FloatArray, IntArray, UInt8Array
from pate._labeling.votes.kinds import Voting, highest
from pate._networks.teachers.plan import NetworkFactory
from pate.aggregators import ScoreVotes
from pate.data import Arrays
from pate.models import MLP, SmallCNN
from pate.teachers import TeacherPlan
from scripts.measure_runs import PRIVATE, PUBLIC, TEST, records_of

DELTA = 1e-6
FIGURES = ("accuracy", "mAP", "macro_f1")
NETWORKS: dict[str, NetworkFactory] = {
    "mlp": partial(MLP, hidden=(32,)),
    "cnn": partial(SmallCNN, widths=(8, 16), groups=4),
}
BITS: tuple[Voting, ...] = ("bits", "quantile_bits")
WAYS: tuple[tuple[Voting, str], ...] = (
    *((voting, aggregator) for voting in BITS for aggregator in ("Rounds", "ScoreVotes")),
    ("scores", "ScoreVotes"),
)
MOST = {PRIVATE: 50_000, PUBLIC: 4_000, TEST: 10_000}
STUDENT = StudentPlan()


class Task(NamedTuple):
    """A table: features ``[N, F]``, labels ``[N, C]`` and the part ``[N]`` of each record."""

    features: Float32Array
    labels: UInt8Array
    part: IntArray


def read_task(name: str, folder: Path) -> Task:
    """Return a task of the folder ``multilabel/``."""
    records = records_of(name, folder)
    return Task(records["X"], records["Y"], records["split"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all tasks, and print a row for each way of voting and epsilon."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="+", metavar="TASK:TEACHERS:NUMBER:EPSILON[:EPSILON...]")
    parser.add_argument("--seeds", type=int, default=3, help="how many runs")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/ballots"), help="folder for tables and runs"
    )
    options = parser.parse_args(arguments)
    print("| task | teachers | votes | aggregator | epsilon | " + " | ".join(FIGURES) + " |")
    print("| --- | --- | --- | --- | ---: |" + " ---: |" * len(FIGURES), flush=True)
    for words in options.tasks:
        name, kind, number, *epsilons = words.split(":")
        table = write_table(name, options.output / f"{name}.npz")
        runs = []
        for seed in range(options.seeds):
            folder = options.output / f"{name}-{kind}-{seed}"
            runs.append(measure(table, folder, kind, int(number), seed, list(map(float, epsilons))))
            print(folder.name, *runs[-1].items(), sep="\n  ", file=sys.stderr, flush=True)
        for voting, aggregator, epsilon in runs[0]:
            medians = np.median([run[voting, aggregator, epsilon] for run in runs], axis=0)
            row = " | ".join(f"{value:.4f}" for value in medians)
            print(
                f"| {name} | {number} {kind} | {voting} | {aggregator} | {epsilon:g} | {row} |",
                flush=True,
            )


def write_table(name: str, path: Path) -> Path:
    """Write a task in the form that `Arrays` reads, and return its file."""
    folder = Path(os.environ["PATE_DATA"]) / "multilabel"
    if name == "pictures":
        task = _pictures(folder)
    else:
        task = read_task(name, folder)
        norm = np.median(np.linalg.norm(task.features[task.part == PUBLIC], axis=1))
        rows = np.concatenate([np.flatnonzero(task.part == part)[:n] for part, n in MOST.items()])
        task = Task(task.features[rows] / norm, task.labels[rows], task.part[rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = np.array([f"{name}-{i}" for i in range(len(task.part))])
    names = np.char.mod("l%d", np.arange(task.labels.shape[1]))
    np.savez(
        path,
        X=task.features.astype(np.float32),
        Y=task.labels,
        ids=ids,
        split=task.part,
        label_names=names,
    )
    return path


def measure(
    table: Path, folder: Path, kind: str, num_teachers: int, seed: int, epsilons: Sequence[float]
) -> dict[tuple[Voting, str, float], list[float]]:
    """Return the figures of one run's students, by way of voting, aggregator and epsilon."""
    figures = {}
    votes = None if kind in NETWORKS else forests(table, num_teachers, seed)
    data, ledger = Arrays(table), folder.with_suffix(".sqlite")
    pipeline = Pipeline(folder, data, ledger=ledger, overwrite=True)
    with redirect_stdout(sys.stderr):
        if votes is None:
            pipeline.fit_teachers(network_plan(kind, num_teachers, seed))
        for voting, aggregator in WAYS:
            if votes is None:
                pipeline.vote(votes=voting)
            else:  # other votes are another run
                pipeline = Pipeline(folder / voting, data, ledger=ledger, overwrite=True)
            for epsilon in epsilons:
                aggregator_settings = (
                    Partial(ScoreVotes) if voting in BITS and aggregator == "ScoreVotes" else None
                )
                settings = LabelSettings(
                    aggregator_settings, delta=DELTA, target_epsilon=epsilon, query_seed=seed
                )
                pipeline.label(settings, None if votes is None else votes[voting])
                pipeline.fit_student(STUDENT)
                scores = pipeline.test_student()["student"]
                figures[voting, aggregator, epsilon] = [scores[figure] for figure in FIGURES]
    return figures


def network_plan(kind: str, num_teachers: int, seed: int) -> TeacherPlan:
    """Return how networks are trained: the same for all tasks, and chosen on none."""
    return TeacherPlan(
        network=NETWORKS[kind],
        num_teachers=num_teachers,
        num_steps=60,
        batch_size=16,
        optimizer=partial(torch.optim.AdamW, lr=0.01, weight_decay=0.01),
        chunk_size=25,
        seed=seed,
        accelerator="cpu",
    )


def forests(table: Path, num_teachers: int, seed: int) -> dict[str, NamedVotes]:
    """Return the votes of forests on hashed parts of the records, by the way in which they vote."""
    arrays = np.load(table)
    features, labels, ids, split = (arrays[name] for name in ("X", "Y", "ids", "split"))
    private, public = np.flatnonzero(split == PRIVATE), np.flatnonzero(split == PUBLIC)
    teacher_of = np.array([crc32(f"{seed}-{ids[row]}".encode()) % num_teachers for row in private])
    scores = np.full((len(public), num_teachers, labels.shape[1]), np.nan)
    best_samples = np.zeros(scores.shape, dtype=np.uint8)
    for teacher in range(num_teachers):
        records = private[teacher_of == teacher]
        if len(records):
            forest = RandomForestRegressor(
                n_estimators=20, max_features="sqrt", random_state=teacher
            )
            scores[:, teacher] = forest.fit(features[records], labels[records]).predict(
                features[public]
            )
            best_samples[:, teacher] = highest(scores[:, teacher], labels[records].mean(axis=0))
    votes: dict[str, dict[str, Any]] = {
        "bits": {"ballots": np.nan_to_num(scores) > 0.5},
        "quantile_bits": {"ballots": best_samples},
        "scores": {"scores": scores},
    }
    names = tuple(arrays["label_names"].tolist())
    return {
        voting: NamedVotes(ids=ids[public], label_names=names, **answers)
        for voting, answers in votes.items()
    }


def _pictures(folder: Path) -> Task:
    arrays, digits = np.load(folder / "mnist.npz"), read_task("digits", folder)
    pictures = np.concatenate((arrays["x_train"], arrays["x_test"]))
    small: FloatArray = pictures.reshape(-1, 1, 14, 2, 14, 2).mean(axis=(3, 5)) / 255
    rows = np.r_[:20_000, 50_000:53_000, 60_000:70_000]
    assert np.bincount(digits.part[rows]).tolist() == [20_000, 3_000, 10_000] and (
        PRIVATE,
        PUBLIC,
        TEST,
    ) == (0, 1, 2)
    return Task(small[rows].astype(np.float32), digits.labels[rows], digits.part[rows])


if __name__ == "__main__":
    main()
