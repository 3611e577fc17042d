"""What `pate run` reaches with the shipped recipe `configs/table` on multi-label tables, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/mulan/*.npz
    python scripts/measure_tasks.py --tasks tmc2007_500 20ng

Three of the five folds of a table are private, one is public, one is the test set. Every figure is the median of
several releases of the same votes; a constant gives each label its majority in the test set.
"""

import argparse
import json
import os
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
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=list(EPSILONS))
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--num_teachers", type=int, default=400)
    parser.add_argument("--output", type=Path, default=Path("runs/tasks"), help="folder for tables and runs")
    given = parser.parse_args(arguments)
    print("| task | figure | constant | " + " | ".join(f"{epsilon:g}" for epsilon in given.epsilons) + " |")
    print("| --- | --- | ---: |" + " ---: |" * len(given.epsilons), flush=True)
    for task in given.tasks:
        data = write_table(task, given.output / f"{task}.npz")
        run = given.output / f"{task}-{given.num_teachers}"
        found = [measure(data, run, epsilon, given.releases, given.num_teachers) for epsilon in given.epsilons]
        for figure in FIGURES:
            values = [np.median([each["student"][figure] for each in drawn]) for drawn in found]
            constant = found[0][0]["all_majority"][figure]
            row = " | ".join(f"{value:.4f}" for value in values)
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
    data: Path, run: Path, epsilon: float, releases: int, num_teachers: int
) -> list[dict[str, dict[str, float]]]:
    """Return the metrics of the students of several releases; teachers are trained once."""
    found = []
    for release in range(releases):
        words = ["run", "configs/table", "--run", str(run), "--overwrite", f"--data.init_args.path={data}"]
        words += [f"--teachers.num_teachers={num_teachers}", f"--label.target_epsilon={epsilon}"]
        # another order of the same queries: a new release
        words += [f"--label.query_seed={release}", "--student.trainer.enable_progress_bar=false"]
        with redirect_stdout(StringIO()) as said:
            status = cli.main(words)
        if status:
            raise SystemExit(said.getvalue())
        found.append(json.loads((run / "public" / "student" / "metrics.json").read_text()))
    return found


if __name__ == "__main__":
    main()
