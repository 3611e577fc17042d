"""What `pate run` reaches with shipped recipes, as Markdown: every figure is the median of several whole runs.

    export PATE_DATA=...    # the folder that holds multilabel/mulan/*.npz
    python scripts/measure_tasks.py tmc2007_500 20ng --epsilons 0.5 8
    python scripts/measure_tasks.py configs/faces --epsilons 1 2

A run has teachers of its own, on partitions of its own. Tables are run by `configs/table`: three of their five folds
are private, one is public, one is the test set. A constant gives each label its majority in the test set.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np

from pate import cli

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
TASKS = ("20ng", "corel16k001", "delicious", "tmc2007_500")
FIGURES = ("accuracy", "macro_f1")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all tasks, and print two rows for each: accuracy and macro-F1 against epsilon."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help="names of tables, or folders of recipes")
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="one whole run for each")
    parser.add_argument("--set", nargs="*", default=[], metavar="STAGE.NAME=VALUE", help="settings of the recipe")
    parser.add_argument("--output", type=Path, default=Path("runs/tasks"), help="folder for tables and runs")
    given = parser.parse_args(arguments)
    print("| task | figure | constant | " + " | ".join(f"{epsilon:g}" for epsilon in given.epsilons) + " |")
    print("| --- | --- | ---: |" + " ---: |" * len(given.epsilons), flush=True)
    for task in given.tasks:
        recipe, words = Path(task), [f"--{setting}" for setting in given.set]
        if not recipe.is_dir():
            recipe = Path("configs/table")
            words.append(f"--data.init_args.path={write_table(task, given.output / f'{task}.npz')}")
        found = [
            measure(recipe, given.output / f"{Path(task).name}-{seed}", given.epsilons, seed, words)
            for seed in given.seeds
        ]
        for figure in FIGURES:
            medians = np.median([[each["student"][figure] for each in run] for run in found], axis=0)
            constant = found[0][0]["all_majority"][figure]
            row = " | ".join(f"{value:.4f}" for value in medians)
            print(f"| {task} | {figure} | {constant:.4f} | {row} |", flush=True)


def write_table(task: str, path: Path) -> Path:
    """Write a MULAN table in the form that `Arrays` reads, and return its file."""
    arrays = np.load(Path(os.environ["PATE_DATA"]) / "multilabel" / "mulan" / f"{task}.npz")
    path.parent.mkdir(parents=True, exist_ok=True)
    split = np.array([0, 0, 0, 0, 1, 2])[arrays["fold5"]]
    ids = np.array([f"{task}-{i}" for i in range(len(split))])
    np.savez(path, X=arrays["x"].astype(np.float32), Y=arrays["y"], ids=ids, split=split)
    return path


def measure(
    recipe: Path, run: Path, epsilons: Sequence[float], seed: int, words: Sequence[str]
) -> list[dict[str, dict[str, float]]]:
    """Return the metrics of the students of one run at several epsilons; its teachers are trained once."""
    found = []
    for epsilon in epsilons:
        own = [f"--teachers.seed={seed}", f"--label.target_epsilon={epsilon}", f"--label.query_seed={seed}"]
        own += ["--student.trainer.enable_progress_bar=false", *words]
        own.append(f"--ledger={run}.ledger.sqlite")
        with redirect_stdout(StringIO()) as said:
            status = cli.main(["run", str(recipe), "--run", str(run), "--overwrite", *own])
        if status:
            raise SystemExit(said.getvalue())
        found.append(json.loads((run / "public" / "student" / "metrics.json").read_text()))
        print(run.name, epsilon, *(f"{name} {found[-1]['student'][name]:.4f}" for name in FIGURES), file=sys.stderr)
    return found


if __name__ == "__main__":
    main()
