"""Measure `pate run` with only a target epsilon, and other methods, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_runs    # the tables and fixed features of docs/measured.md
    python -m scripts.measure_runs tmc2007_500:1:8 --ways votes rivals
    python -m scripts.measure_runs yeast:0.5:1:2:8 corel5k:0.5:1:2:8 --seeds 40 --ways votes

A task is followed by its epsilons, or has those of `TASKS`. Its recipe comes from `pate init`, for
the faces from `configs/faces`; only the epsilon is chosen, and whether persons are protected.
Figures are medians over seeds, each of which is a run of its own. They are kept in
``figures.jsonl`` of a task's folder, and not measured again.

Three of five folds of a table are private, one is public, one is the test set. `digits` has 64
principal components of 10,000 public pictures of MNIST, 50,000 private and 10,000 test pictures;
`celeba` predicts 20 attributes from the other 20 on the usual split, and `celeba_persons` protects
persons.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import cached_property
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate import cli
from pate._labeling.data.feature_maps import ChainedFeatures, PublicScaling
from pate._labeling.data.pictures import PatchFeatures
from pate.data import Arrays, CelebA, DataSource
from scripts.faces.drawing import write_celeba_folder
from scripts.rivals.contest import arena_of, hold, rivals_of
from scripts.rivals.descent import Descent

TASKS = {
    "faces": (0.5, 1.0),
    "celeba": (0.05, 0.1, 0.25, 1.0),
    "celeba_persons": (0.25, 1.0),
    "tmc2007_500": (1.0, 8.0),
    "20ng": (1.0, 2.0),
    "digits": (0.5, 2.0),
    "delicious": (2.0,),
    "corel16k001": (2.0,),
    "corel5k": (2.0,),
}
ENDLESS = 1e5  # the epsilon of the same voters with hardly any noise
VOTES, WITHOUT, CONSTANT = "**pate**", "the same voters, hardly any noise", "constant answer"
DESCENT = "logistic regression by DP-SGD"
WAYS = ("votes", "rivals")
FIGURES = ("accuracy", "mAP", "macro_f1", "macro_f1_at_its_cut")
TITLES = ("accuracy", "mAP", "macro-F1", "macro-F1 at its cut")
PRIVATE, PUBLIC, TEST = range(3)
LABELS = [
    "Male", "Heavy_Makeup", "Wearing_Lipstick", "No_Beard", "Young", "Attractive", "Smiling",
    "High_Cheekbones", "Mouth_Slightly_Open", "5_o_Clock_Shadow", "Goatee", "Mustache",
    "Sideburns", "Gray_Hair", "Chubby", "Double_Chin", "Bags_Under_Eyes", "Big_Nose",
    "Wearing_Earrings", "Wearing_Necklace",
]  # fmt: skip
"""The attributes of CelebA that are learned from the others."""


@dataclass(frozen=True)
class Row:
    """The `FIGURES` of one way at an epsilon, in the run of a seed or, with -1, as medians.

    An infinite epsilon stands for no privacy.
    """

    task: str
    way: str
    epsilon: float
    seed: int
    figures: tuple[float, ...]
    seconds: float = math.nan


Asked = tuple[Path, tuple[float, ...], list[str], range]


def asked(
    arguments: Sequence[str] | None, doc: str | None, tasks: Mapping[str, Any], ways: Sequence[str]
) -> Iterator[Asked]:
    """Yield the folder of each task of a command line, its epsilons, its ways and its seeds."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=list(tasks), metavar="TASK[:EPSILON...]")
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument(
        "--output", type=Path, default=Path("runs/measured"), help="folder for recipes and figures"
    )
    options = parser.parse_args(arguments)
    for words in options.tasks:
        name, *numbers = words.split(":")
        epsilons = tuple(map(float, numbers)) or tasks[name]
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        yield options.output / name, epsilons, options.ways, seeds


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure missing figures, and print a table for each task."""
    for folder, epsilons, ways, seeds in asked(arguments, __doc__, TASKS, WAYS):
        measure(Task(folder.name, folder), epsilons, ways, seeds)


class Task:
    """A task in a folder of its own, which holds its records, its recipe, its runs and its figures.

    Args:
        name: the name.
        folder: the folder.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.is_faces = name == "faces"
        self.unit = "group" if name == "celeba_persons" else "record"
        (folder / "ledgers").mkdir(parents=True, exist_ok=True)
        self._figures = folder / "figures.jsonl"
        self._figures.touch()

    @property
    def rows(self) -> list[Row]:
        """The measured quantity."""
        return [Row(**json.loads(line)) for line in self._figures.read_text().splitlines()]

    def has(self, way: str, epsilon: float, seed: int) -> bool:
        """Return whether a row is there."""
        return any((row.way, row.epsilon, row.seed) == (way, epsilon, seed) for row in self.rows)

    def add(self, row: Row) -> None:
        """Keep a row."""
        values = " ".join(f"{value:.4f}" for value in row.figures)
        print(row.task, row.way, f"{row.epsilon:g}", values, file=sys.stderr)
        with self._figures.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")

    @cached_property
    def data(self) -> Path:
        """The records: a folder of faces or a file of arrays."""
        if self.is_faces:
            place = self.folder / "faces"
            write_celeba_folder(place, num=80000, private_fraction=0.91, public_fraction=0.045)
            return place
        place = self.folder / "records.npz"
        if not place.exists():
            records = records_of(self.name, Path(os.environ["PATE_DATA"]) / "multilabel")
            np.savez(place, allow_pickle=False, **records)
        return place

    def options(self, way: str) -> list[str]:
        """Return the words of `pate run`: a recipe, a run, and public facts about the records."""
        run = self.folder / way
        # next to the records it would be taken for the ledger of others
        place = [f"--run={run}", f"--ledger={self.folder / 'ledgers' / way}.sqlite", "--overwrite"]
        if self.is_faces:
            return ["configs/faces", f"--data.init_args.root={self.data}", *place]
        recipe = self.folder / "recipe"
        if not recipe.exists():
            call("init", str(recipe), "--kind=npz", f"--data={self.data}")
        return [str(recipe), f"--teachers.unit={self.unit}", *place]

    def source(self) -> DataSource:
        """Return the records as rivals read them."""
        if self.is_faces:
            maps = ChainedFeatures([PatchFeatures(), PublicScaling()])
            return CelebA(self.data, size=32, features=maps)
        return Arrays(self.data, features=PublicScaling())


def measure(task: Task, epsilons: Sequence[float], ways: Sequence[str], seeds: range) -> None:
    """Measure the missing figures of a task, and print its table."""
    if "votes" in ways:
        for seed, epsilon in [*product(seeds, epsilons), (seeds.start, ENDLESS)]:
            measure_run(task, epsilon, seed)
    if "rivals" in ways:
        measure_rivals(task, epsilons, seeds)
    print(f"\n{task.name}\n\n{table(task.rows, epsilons)}", flush=True)


def call(*words: str) -> None:
    """Run a command of `pate`; show its output if it fails."""
    with redirect_stdout(StringIO()) as output:
        status = cli.main(list(words))
    if status > 128:  # a signal, on which no figure follows
        raise KeyboardInterrupt
    if status:
        raise SystemExit(output.getvalue())


def measure_run(task: Task, epsilon: float, seed: int) -> None:
    """Add the rows of one run: its student, and the constant answer."""
    if task.has(VOTES, epsilon, seed):
        return
    start = time.perf_counter()
    words = (f"--label.target_epsilon={epsilon}", f"--label.noise_seed={seed}")
    call("run", *task.options("votes"), *words)
    seconds = time.perf_counter() - start
    run = task.folder / "votes"
    if not task.has(CONSTANT, math.inf, -1):
        task.add(Row(task.name, CONSTANT, math.inf, -1, figures_of(run, "all_majority"), seconds))
    task.add(Row(task.name, VOTES, epsilon, seed, figures_of(run, "student"), seconds))


def figures_of(run: Path, student: str) -> tuple[float, ...]:
    """Return the `FIGURES` of a student among the metrics of a run."""
    found = json.loads((run / "public" / "student" / "metrics.json").read_text())[student]
    at_cut = found["at_cut"]["macro_f1"]["macro_f1"]
    return (*(found[figure] for figure in FIGURES[:3]), at_cut)


def measure_rivals(task: Task, epsilons: Sequence[float], seeds: range) -> None:
    """Add rows of all rivals, medians over ``seeds``, and rows without privacy."""
    missing = tuple(epsilon for epsilon in epsilons if not task.has(DESCENT, epsilon, -1))
    if missing:
        delta = 1e-5 if task.is_faces else 1e-6
        arena = arena_of(task.source(), task.unit)
        for score in hold(arena, rivals_of(arena, Descent()), missing, seeds, delta):
            if not task.has(score.rival, score.target_epsilon, -1):
                values = [getattr(score, figure) for figure in FIGURES]
                task.add(Row(task.name, score.rival, score.target_epsilon, -1, tuple(values)))


def table(
    rows: Sequence[Row],
    epsilons: Sequence[float],
    titles: Sequence[str] = TITLES,
    ways: Sequence[str] = (),
) -> str:
    """Return Markdown with medians: a row for each way and epsilon, the last without privacy."""
    lines = [f"| | epsilon | {' | '.join(titles)} |", "| --- | ---: |" + " ---: |" * len(titles)]
    for way in ways or dict.fromkeys(row.way for row in rows):
        for epsilon in (*epsilons, ENDLESS, math.inf):
            runs = [row.figures for row in rows if (row.way, row.epsilon) == (way, epsilon)]
            if runs:
                cells = " | ".join(f"{value:.3f}" for value in np.median(runs, axis=0))
                shown = f"{epsilon:g}" if epsilon < ENDLESS else ""
                lines.append(f"| {WITHOUT if epsilon == ENDLESS else way} | {shown} | {cells} |")
    return "\n".join(lines)


def records_of(name: str, folder: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a task, as `pate.data.Arrays` reads them, from ``multilabel/``."""
    if name == "digits":
        features, labels, split = _digits(np.load(folder / "mnist.npz"))
        return arrays_of(features, labels, split)
    if name in ("celeba", "celeba_persons"):
        arrays = np.load(folder / "celeba_attributes.npz")
        chosen = np.isin(arrays["attr_names"], LABELS)
        arrays_of_records = arrays_of(
            arrays["attr"][:, ~chosen], arrays["attr"][:, chosen], arrays["partition"]
        )
        return arrays_of_records | {"group": np.char.mod("person %d", arrays["identity"])}
    arrays = np.load(folder / "mulan" / f"{name}.npz")
    split = np.array([0, PRIVATE, PRIVATE, PRIVATE, PUBLIC, TEST])[arrays["fold5"]]
    return arrays_of(arrays["x"], arrays["y"], split)


def arrays_of(
    features: NDArray[Any], labels: NDArray[Any], split: NDArray[Any], kind: str = "record"
) -> dict[str, Any]:
    """Return arrays as `pate.data.Arrays` reads them."""
    ids = np.char.mod(f"{kind} %d", np.arange(len(split)))
    shown = {"X": features.astype(np.float32), "Y": labels.astype(np.uint8)}
    return shown | {"ids": ids, "split": split.astype(np.int64)}


def labels_of(digit: NDArray[Any]) -> NDArray[Any]:
    """Return thirteen labels ``[N, 13]`` of digits ``[N]``: the ten, even, prime, with a loop."""
    sets = (digit % 2 == 0, np.isin(digit, (2, 3, 5, 7)), np.isin(digit, (0, 6, 8, 9)))
    return np.column_stack((np.eye(10)[digit], *sets))


def _digits(arrays: np.lib.npyio.NpzFile) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    pictures = (
        np.concatenate((arrays["x_train"], arrays["x_test"])).reshape(-1, 784).astype(np.float32)
        / 255
    )
    digit = np.concatenate((arrays["y_train"], arrays["y_test"])).astype(np.int64)
    split = np.repeat([PRIVATE, PUBLIC, TEST], [50_000, 10_000, 10_000])
    public = pictures[split == PUBLIC]
    components = np.linalg.eigh(np.cov(public.T))[1][:, ::-1][:, :64]
    return (pictures - public.mean(axis=0)) @ components, labels_of(digit), split


if __name__ == "__main__":
    main()
