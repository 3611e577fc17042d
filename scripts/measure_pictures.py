"""Measure `pate run` on pictures, with a linear student and a convolutional one, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_pictures
    python -m scripts.measure_pictures pictures:0.5 --ways votes students

Recipes are as `pate init` writes them; only the epsilon is chosen, and for the faces the size.
`pictures` are MNIST's digits in 14 x 14 pixels as 13 labels, 20,000 private, 4,000 public, 10,000
of the test; `rendered` are 20,000 private faces of `pate faces` in 32 x 32 pixels with 2,500 public
ones; `posters_32` 4,393 private posters of movies; `small_digits` scikit-learn's digits of 8 x 8
pixels, 1,000 private and 400 public. A convolutional student (`students`) sees the pixels and
learns from the same release. Rivals have the same features. Everything else is as in
`scripts.measure_runs`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from pate._data_file import read_data
from pate.data import DataSource
from scripts.measure_runs import (
    FIGURES,
    PRIVATE,
    PUBLIC,
    TEST,
    VOTES,
    Row,
    Task,
    call,
    measure_rivals,
    measure_run,
    table,
)

TASKS = {
    "pictures": (0.25, 0.5, 2.0),
    "rendered": (0.5, 2.0),
    "posters_32": (0.5, 2.0),
    "small_digits": (0.5, 2.0),
}
STUDENT = "**pate**, convolutional student"
SIDES = {"pictures": 14, "rendered": 32, "posters_32": 32, "small_digits": 8}


class PictureTask(Task):
    """A task of pictures, with the recipe of `pate init`."""

    @cached_property
    def data(self) -> Path:
        """The records: a folder of faces or a file of arrays."""
        folder = self.folder / ("faces" if self.name == "rendered" else "records.npz")
        if not folder.exists() and self.name == "rendered":
            shares = ("--private_fraction=0.8", "--public_fraction=0.1")
            call("faces", f"--output={folder}", "--num=25000", *shares)
        elif not folder.exists():
            records = records_of(self.name, Path(os.environ["PATE_DATA"]) / "multilabel")
            np.savez(folder, allow_pickle=False, **records)
        return folder

    @property
    def recipe(self) -> Path:
        """The folder of the recipe, written if it is missing."""
        recipe = self.folder / "recipe"
        if not recipe.exists():
            call("init", str(recipe), f"--data={self.data}")
        return recipe

    def options(self, way: str) -> list[str]:
        """Return the words of `pate run`."""
        place = [f"--run={self.folder / way}", f"--ledger={self.folder / 'ledgers' / way}.sqlite"]
        size = ["--data.init_args.size=32"] if self.name == "rendered" else []
        return [str(self.recipe), *size, *place, "--overwrite"]

    def source(self) -> DataSource:
        """Return the records as rivals read them: with the same map."""
        return read_data(self.folder / "votes" / "data.yaml")

    def measure_student(self, epsilon: float, seed: int) -> None:
        """Add the row of a convolutional student of the release of the last run."""
        start, run = time.perf_counter(), self.folder / "votes"
        plan = self.folder / "student.yaml"
        plan.write_text(yaml.safe_dump(student_plan(SIDES[self.name])))
        call("student", "fit", f"--run={run}", "--overwrite", f"--config={plan}")
        call("student", "test", f"--run={run}", "--verbose=false")
        figures = json.loads((run / "public" / "student" / "metrics.json").read_text())["student"]
        at_cut = figures["at_cut"]["macro_f1"]["macro_f1"]
        values = (*(figures[figure] for figure in FIGURES[:3]), at_cut)
        seconds = time.perf_counter() - start
        self.add(Row(self.name, STUDENT, epsilon, seed, values, seconds))


def student_plan(side: int) -> dict[str, Any]:
    """Return the settings of the convolutional student of the recipe, for pictures of ``side``."""
    text = (Path("pate") / "_commands" / "templates" / "student.yaml").read_text()
    lines = [line[2:] for line in text.splitlines() if line.startswith("# ")]
    start = lines.index("model:")
    plan: dict[str, Any] = yaml.safe_load("\n".join(lines[start:-2]))
    plan["model"]["augment"][0]["init_args"]["size"] = side
    return plan


def records_of(name: str, folder: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a task, as `pate.data.Arrays` reads them."""
    if name == "posters_32":
        posters = np.load(folder / "movie_posters_32.npz")
        pictures, labels = posters["x"].transpose(0, 3, 1, 2), posters["y"]
        split = np.where(posters["is_test"], TEST, PUBLIC)
        split[np.flatnonzero(split == PUBLIC)[:4393]] = PRIVATE
        ids = posters["ids"].astype(np.str_)
        return _arrays(pictures, labels, split) | {"ids": ids}
    if name == "small_digits":
        small = load_digits()
        pictures = small.images[:, None] * (255 / 16)
        order = np.random.default_rng(0).permutation(len(pictures))
        split = np.full(len(pictures), TEST)
        split[order[:1400]] = np.repeat([PRIVATE, PUBLIC], [1000, 400])
        return _arrays(pictures, labels_of(small.target), split)
    arrays = np.load(folder / "mnist.npz")
    every = np.concatenate((arrays["x_train"], arrays["x_test"]))
    digits = np.concatenate((arrays["y_train"], arrays["y_test"]))
    rows = np.r_[:20_000, 50_000:54_000, 60_000:70_000]
    pictures = every.reshape(-1, 1, 14, 2, 14, 2).mean(axis=(3, 5))[rows]
    split = np.repeat([PRIVATE, PUBLIC, TEST], [20_000, 4_000, 10_000])
    return _arrays(pictures, labels_of(digits[rows]), split)


def labels_of(digit: NDArray[Any]) -> NDArray[Any]:
    """Return thirteen labels ``[N, 13]`` of digits ``[N]``, as those of `measure_runs`."""
    sets = (digit % 2 == 0, np.isin(digit, (2, 3, 5, 7)), np.isin(digit, (0, 6, 8, 9)))
    return np.column_stack((np.eye(10)[digit], *sets))


def _arrays(
    pictures: NDArray[Any], labels: NDArray[Any], split: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    return {
        "X": (pictures / 255).astype(np.float32),
        "Y": labels.astype(np.uint8),
        "ids": np.char.mod("picture %d", np.arange(len(split))),
        "split": split.astype(np.int64),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure missing figures, and print a table for each task."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ways = ["votes", "students", "rivals"]
    parser.add_argument("tasks", nargs="*", default=list(TASKS), metavar="TASK[:EPSILON...]")
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("runs/measured"))
    options = parser.parse_args(arguments)
    for words in options.tasks:
        name, *numbers = words.split(":")
        epsilons = tuple(map(float, numbers)) or TASKS[name]
        task = PictureTask(name, options.output / name)
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for epsilon in epsilons:
                if "students" in options.ways and not task.has(STUDENT, epsilon, seed):
                    measure_run(task, "votes", VOTES, epsilon, seed)
                    task.measure_student(epsilon, seed)
                elif "votes" in options.ways:
                    measure_run(task, "votes", VOTES, epsilon, seed)
        if "rivals" in options.ways:
            measure_rivals(task, epsilons, range(options.first_seed, options.first_seed + 1))
        print(f"\n{task.name}\n\n{table(task.rows, epsilons)}", flush=True)


if __name__ == "__main__":
    main()
