"""What `ScoreVotes` reaches on public tables, as Markdown: medians of several draws of the noise.

    export PATE_DATA=...    # the folder that holds multilabel/
    python scripts/measure_scores.py tmc2007_500:1:8 20ng:1:2 digits:0.5
    python scripts/measure_scores.py celeba:0.05:0.25 celeba_persons:0.25:1
    python scripts/measure_scores.py yeast:0.5:1:2:8 --seeds 40

A task is followed by its epsilons, at delta 1e-6 under REPLACE_RECORD. Each private record is a voter; in
`celeba_persons` each person is. Public features alone are used beside the release: nothing is chosen by the test set.
Three of five folds of a table are private, one is public, one is the test set. `digits` has 64 principal components of
10,000 public pictures of MNIST, 50,000 private and 10,000 test pictures; `celeba` predicts 20 attributes from the other
20, on the usual split, with 8,000 public samples.
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pate._linear import linear_student_of
from pate._typing import IntArray, UInt8Array
from pate._voters import Geometry, GroupVoters, RecordVoters, Voters
from pate._votes import Votes
from pate.accounting._gaussian import largest_mu
from pate.aggregators._score_votes import ScoreVotes
from pate.student import agreement, cuts_of
from pate.student._average_precision import average_precision

DELTA = 1e-6
MOST_PUBLIC = 8_000
PRIVATE, PUBLIC, TEST = range(3)
FIGURES = ("accuracy", "mAP", "macro_f1, cut for it", "micro_f1, cut for it", "constant", "seconds")
ATTRIBUTES = (
    *("Male", "Heavy_Makeup", "Wearing_Lipstick", "No_Beard", "Young", "Attractive", "Smiling", "High_Cheekbones"),
    *("Mouth_Slightly_Open", "5_o_Clock_Shadow", "Goatee", "Mustache", "Sideburns", "Gray_Hair", "Chubby"),
    *("Double_Chin", "Bags_Under_Eyes", "Big_Nose", "Wearing_Earrings", "Wearing_Necklace"),
)


@dataclass(frozen=True)
class Task:
    """A table: features ``[N, F]``, labels ``[N, C]``, their part, and whose they are where a group is protected."""

    features: NDArray[np.float32]
    labels: UInt8Array
    part: IntArray
    groups: IntArray | None = None


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all tasks, and print a row for each task and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", metavar="TASK:EPSILON[:EPSILON...]")
    parser.add_argument("--seeds", type=int, default=3, help="how many draws of the noise")
    given = parser.parse_args(arguments)
    print("| task | epsilon | " + " | ".join(FIGURES) + " | below the constant |")
    print("| --- | ---: |" + " ---: |" * (len(FIGURES) + 1), flush=True)
    for words in given.tasks:
        name, *epsilons = words.split(":")
        task = read_task(name, Path(os.environ["PATE_DATA"]) / "multilabel")
        for epsilon in map(float, epsilons):
            found = measure(task, epsilon, given.seeds)
            medians = [np.median([each[figure] for each in found]) for figure in FIGURES]
            below = sum(each["accuracy"] < each["constant"] - 0.002 for each in found)
            row = " | ".join(f"{value:.4f}" for value in medians)
            print(f"| {name} | {epsilon:g} | {row} | {below} of {len(found)} |", flush=True)


def measure(task: Task, epsilon: float, seeds: int) -> list[dict[str, float]]:
    """Return the figures of several draws of the noise."""
    public = np.flatnonzero(task.part == PUBLIC)
    if len(public) > MOST_PUBLIC:
        public = np.sort(np.random.default_rng(0).permutation(public)[:MOST_PUBLIC])
    features, test = task.features[public].astype(np.float64), task.part == TEST
    voters = voters_of(task, Geometry.of(features))
    votes = Votes.from_voters(voters, features)
    voting = ScoreVotes(multiplier_scores=float(np.sqrt(len(public))) / largest_mu(epsilon, DELTA))
    found = []
    for seed in range(seeds):
        start = time.perf_counter()
        release = voting.aggregate(votes, generator=np.random.default_rng(seed))
        assert release.noisy_counts is not None
        student = linear_student_of(features, release.noisy_counts / voters.num_voters, release.labels)
        seconds = time.perf_counter() - start
        given, truth = student.predict(task.features[test]), task.labels[test] > 0
        accuracy, macro, micro = cuts_of(student.predict(features))
        constant = float(((task.labels[task.part == PRIVATE].mean(axis=0) > 0.5) == truth).mean())
        values = (
            agreement(given > accuracy, truth)["accuracy"],
            float(average_precision(given, truth).mean()),
            agreement(given > macro, truth)["macro_f1"],
            agreement(given > micro, truth)["micro_f1"],
            constant,
            seconds,
        )
        found.append(dict(zip(FIGURES, values, strict=True)))
    return found


def voters_of(task: Task, geometry: Geometry) -> Voters:
    """Return the private records, or groups of them, as voters."""
    private = np.flatnonzero(task.part == PRIVATE)
    if task.groups is not None:
        private = private[np.argsort(task.groups[private], kind="stable")]
    coordinates, labels = geometry.coordinates(task.features[private]), task.labels[private]
    groups = None if task.groups is None else task.groups[private]
    nominal = int(float(f"{len(private) if groups is None else len(np.unique(groups)):.3g}"))
    if groups is None:
        return RecordVoters(
            geometry=geometry,
            num_voters=nominal,
            num_labels=labels.shape[1],
            coordinates=coordinates,
            labels=labels,
        )
    return GroupVoters(
        geometry=geometry,
        num_voters=nominal,
        num_labels=labels.shape[1],
        coordinates=coordinates,
        labels=labels,
        groups=groups,
    )


def read_task(name: str, folder: Path) -> Task:
    """Return a task of the folder ``multilabel/``."""
    if name == "digits":
        return _digits(np.load(folder / "mnist.npz"))
    if name in ("celeba", "celeba_persons"):
        arrays = np.load(folder / "celeba_attributes.npz")
        chosen = np.isin(arrays["attr_names"], ATTRIBUTES)
        attributes, groups = arrays["attr"], arrays["identity"].astype(np.int64) if name == "celeba_persons" else None
        part = arrays["partition"].astype(np.int64)
        return Task(attributes[:, ~chosen].astype(np.float32), attributes[:, chosen].astype(np.uint8), part, groups)
    arrays = np.load(folder / "mulan" / f"{name}.npz")
    part = np.array([0, PRIVATE, PRIVATE, PRIVATE, PUBLIC, TEST])[arrays["fold5"]]
    return Task(arrays["x"].astype(np.float32), arrays["y"].astype(np.uint8), part)


def _digits(arrays: np.lib.npyio.NpzFile) -> Task:
    pictures = np.concatenate((arrays["x_train"], arrays["x_test"])).reshape(-1, 784).astype(np.float32) / 255
    digit = np.concatenate((arrays["y_train"], arrays["y_test"])).astype(np.int64)
    part = np.repeat([PRIVATE, PUBLIC, TEST], [50_000, 10_000, 10_000])
    public = pictures[part == PUBLIC]
    components = np.linalg.eigh(np.cov(public.T))[1][:, ::-1][:, :64]
    sets = (digit % 2 == 0, np.isin(digit, (2, 3, 5, 7)), np.isin(digit, (0, 6, 8, 9)))
    labels = np.column_stack((np.eye(10, dtype=np.uint8)[digit], *sets)).astype(np.uint8)
    return Task((pictures - public.mean(axis=0)) @ components, labels, part)


if __name__ == "__main__":
    main()
