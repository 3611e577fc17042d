"""Measure `pate run` where labels of private records are unknown, as Markdown.

    export PATE_DATA=...    # the folder that holds multilabel/
    python -m scripts.measure_unknown    # the table of docs/appendix/data-measured.md
    python -m scripts.measure_unknown yeast --lost 0.5 --epsilons 1 8 --seeds 5

A share of the private labels is removed at random, and then declared to be unknown, or taken for 0.
Only the epsilon is chosen. Figures are medians over seeds, each of other labels and other noise.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from scripts.measure_runs import PRIVATE, call, records_of

WAYS = {
    "all known": 0.0,
    "unknown": np.nan,
    "taken for 0": 0.0,
}
"""The value of a label that is removed; none is from the first."""
FIGURES = ("accuracy", "mAP")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure one table, and print the figures of each way at each epsilon."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", nargs="?", default="yeast")
    parser.add_argument("--lost", type=float, nargs="+", default=[0.5, 0.8])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("runs/unknown"), help="of the recipe")
    options = parser.parse_args(arguments)
    epsilons, recipe = options.epsilons, options.output / options.task / "recipe"
    arrays = records_of(options.task, Path(os.environ["PATE_DATA"]) / "multilabel")
    if not recipe.exists():
        recipe.parent.mkdir(parents=True, exist_ok=True)
        np.savez(recipe.parent / "all.npz", allow_pickle=False, **arrays)
        call("init", str(recipe), "--kind=npz", f"--data={recipe.parent / 'all.npz'}")
    print("| | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |")
    print("| --- |" + " ---: |" * len(epsilons))
    cells = [(0.0, "all known"), *((lost, way) for lost in options.lost for way in [*WAYS][1:])]
    for lost, way in cells:
        found = [
            [measure(recipe, arrays, lost, way, epsilon, seed) for seed in range(options.seeds)]
            for epsilon in epsilons
        ]
        medians = [np.median(rows, axis=0) for rows in found]
        shown = " | ".join(" / ".join(f"{value:.3f}" for value in row) for row in medians)
        print(f"| {way if not lost else f'{lost:.0%} {way}'} | {shown} |", flush=True)


def measure(
    recipe: Path,
    arrays: dict[str, np.ndarray],
    lost: float,
    way: str,
    epsilon: float,
    seed: int,
) -> list[float]:
    """Return the `FIGURES` of the student of one run, on test records with all labels."""
    removed = np.random.default_rng([seed, 7]).random(arrays["Y"].shape) < lost
    removed &= (arrays["split"] == PRIVATE)[:, None]
    labels = np.where(removed, WAYS[way], arrays["Y"]).astype(np.float32)
    with TemporaryDirectory() as place:
        data, run = Path(place) / "records.npz", Path(place) / "run"
        np.savez(data, allow_pickle=False, **(arrays | {"Y": labels}))
        words = [f"--data.init_args.path={data}", f"--run={run}"]
        if way == "unknown":
            words.append("--data.init_args.unknown_labels=nan")
        words += [f"--label.target_epsilon={epsilon}", f"--label.noise_seed={seed}"]
        call("run", str(recipe), *words)
        metrics = json.loads((run / "public" / "student" / "metrics.json").read_text())
    student = metrics["student"]
    return [student[figure] for figure in FIGURES]


if __name__ == "__main__":
    main()
