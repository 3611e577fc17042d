"""Measure whole runs on columns, on random features of them, and on both as parts of a ballot.

    python -m scripts.measure_maps
    python -m scripts.measure_maps modes --epsilons 0.5 2 --seeds 1 --rivals 3

Drawn tasks have standard normal columns, eight labels that one to five tenths of the records have,
5,000 private, 1,000 public and 2,000 test records. A label is a score above its quantile, with
noise of a third of the score's deviation. Figures are medians of mAP over seeds, of which each
draws the noise anew, with the least and the largest in brackets; delta is 1e-6, and each record
votes for itself. Rivals are logistic regression by DP-SGD, on columns and on the map of
`AutoFeatures`, and without privacy on this map.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pate import ClosedFormPlan, LabelSettings, RunPlan, StudentPlan
from pate.data import Arrays, AutoFeatures, FeatureMap, PublicScaling, RandomFeatures
from scripts.measure_runs import DESCENT, PRIVATE, PUBLIC, TEST, arrays_of
from scripts.rivals.contest import arena_of, hold, rivals_of
from scripts.rivals.descent import Descent

DRAWN = ("products", "radial", "modes", "mixed", "linear", "triples", "rings", "boards")
SIZES = (5000, 1000, 2000)
LABELS = 8
MAPS: tuple[type[FeatureMap], ...] = (PublicScaling, RandomFeatures, AutoFeatures)
RIVALS = ("DP-SGD, columns", "DP-SGD, `AutoFeatures`", "not private, `AutoFeatures`")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row of Markdown for each task and epsilon."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=list(DRAWN))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rivals", type=int, default=0, help="seeds of rivals; 0 for no rivals")
    parser.add_argument("--draw", type=int, default=7, help="seed of the drawn tasks")
    options = parser.parse_args(arguments)
    titles = [*(f"`{kind.__name__}`" for kind in MAPS), *(RIVALS if options.rivals else ())]
    print("| task | epsilon |", " | ".join(titles), "|")
    print("| --- | ---: |" + " ---: |" * len(titles))
    for name in options.tasks:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "records.npz"
            np.savez(file, allow_pickle=False, **task(name, options.draw))
            for epsilon in options.epsilons:
                cells = [measured(file, kind, epsilon, options.seeds) for kind in MAPS]
                cells += rivals(file, epsilon, options.rivals) if options.rivals else []
                print(f"| {name} | {epsilon:g} |", " | ".join(cells), "|", flush=True)


def measured(file: Path, kind: type[FeatureMap], epsilon: float, seeds: int) -> str:
    """Return median and range of the mAP of whole runs."""
    scores = []
    for seed in range(seeds):
        with TemporaryDirectory() as folder:
            plan = RunPlan(
                Path(folder),
                Arrays(file, features=kind()),
                teachers=ClosedFormPlan(),
                labels=LabelSettings(delta=1e-6, target_epsilon=epsilon, noise_seed=seed),
                student=StudentPlan(),
                ledger=Path(folder) / "ledger",
            )
            plan.execute()
            scores.append(plan.test_student()["student"]["mAP"])
    return f"{np.median(scores):.3f} ({min(scores):.2f}, {max(scores):.2f})"


def rivals(file: Path, epsilon: float, seeds: int) -> list[str]:
    """Return the mAP of `RIVALS`, medians of ``seeds`` draws."""
    found = {}
    for kind in (PublicScaling, AutoFeatures):
        arena = arena_of(Arrays(file, features=kind()), "record")
        only = [each for each in rivals_of(arena, Descent()) if each.name == DESCENT]
        scores = hold(arena, only, (epsilon,), range(seeds))
        found[kind] = {score.rival: score.mAP for score in scores}
    exact = found[AutoFeatures]["logistic regression, not private"]
    return [f"{mAP:.3f}" for mAP in (*(each[DESCENT] for each in found.values()), exact)]


def task(name: str, seed: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of a task, as `pate.data.Arrays` reads them."""
    random = np.random.default_rng([seed, DRAWN.index(name)])
    width = 20 if name == "linear" else 8
    columns = random.standard_normal((sum(SIZES), width))
    scores = columns @ random.standard_normal((width, LABELS)) / np.sqrt(width)
    if name == "radial":
        chosen = [random.choice(width, 3, replace=False) for _ in range(LABELS)]
        scores = np.column_stack([(columns[:, some] ** 2).sum(axis=1) for some in chosen])
    if name == "modes":
        mode = random.integers(40, size=len(columns))
        columns = 1.5 * random.standard_normal((40, width))[mode] + 0.7 * columns
        scores = (random.random((40, LABELS)) < 0.3)[mode].astype(np.float64)
    if name in ("products", "mixed", "triples"):
        number = 3 if name == "triples" else 2
        pairs = [random.choice(width, number, replace=False) for _ in range(LABELS)]
        products = np.column_stack([columns[:, pair].prod(axis=1) for pair in pairs])
        scores = scores + products if name == "mixed" else products
    if name in ("rings", "boards"):
        pairs = [random.choice(width, 2, replace=False) for _ in range(LABELS)]
        inner = np.stack([columns[:, pair] for pair in pairs], axis=2)
        waves = np.cos(2.5 * np.linalg.norm(inner, axis=1))
        scores = waves if name == "rings" else np.sign(np.sin(2 * inner)).prod(axis=1)
    scores += scores.std(axis=0) / 3 * random.standard_normal(scores.shape)
    levels = np.diag(np.quantile(scores, np.linspace(0.5, 0.9, LABELS), axis=0))
    return arrays_of(columns, scores > levels, np.repeat([PRIVATE, PUBLIC, TEST], SIZES))


if __name__ == "__main__":
    main()
