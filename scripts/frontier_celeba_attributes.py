"""Every aggregator on CelebA's attribute task at the same epsilons, as Markdown tables.

A linear student of 600 queries, REPLACE_RECORD, delta 1e-6, medians of five seeds of the noise.
Teachers first:

    export PATE_DATA=...    # the folder that holds multilabel/celeba_attributes.npz
    recipe=configs/celeba_attributes pate teachers fit --config $recipe/data.yaml --config
    $recipe/teachers.yaml --run runs/celeba_attributes pate teachers vote --run
    runs/celeba_attributes python scripts/frontier_celeba_attributes.py runs/celeba_attributes
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from pate.lab.plan.command import compare
from pate.lab.plan.engine import Row
from pate.lab.plan.frontier import Comparison

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one table for each measure and cutoff."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--num_queries", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cutoffs", type=float, nargs="+", default=[0.5, 0.45])
    options = parser.parse_args(arguments)
    for cutoff in options.cutoffs:
        output = options.run / "private" / f"frontier_{options.num_queries}_{cutoff:g}"
        comparison = Comparison(
            epsilons=EPSILONS,
            num_queries=options.num_queries,
            student=True,
            cutoff=cutoff,
            seeds=options.seeds,
        )
        rows = compare(comparison, run=options.run, output=output).rows
        for measured in ("student_accuracy", "student_macro_f1", "student_mAP"):
            print(f"\n{measured}, a label from {cutoff:g} on\n\n{markdown(rows, measured)}")


def markdown(rows: Sequence[Row], measured: str) -> str:
    """Return one figure of all aggregators as a table, a column for each epsilon."""
    lines = ["| aggregator | " + " | ".join(f"{target:g}" for target in EPSILONS) + " |"]
    lines.append("| --- |" + " ---: |" * len(EPSILONS))
    for name in dict.fromkeys(row["aggregator"] for row in rows):
        by_target = {
            row["target_epsilon"]: row[measured] for row in rows if row["aggregator"] == name
        }
        figures = [by_target.get(target, math.nan) for target in EPSILONS]
        lines.append(
            f"| {name} | " + " | ".join("" if math.isnan(x) else f"{x:.4f}" for x in figures) + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
