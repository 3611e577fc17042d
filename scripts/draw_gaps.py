"""Gaps at which a set of k labels is found: canonical, peeling and joint at equal epsilon.

    python scripts/draw_gaps.py docs/images/gaps.png

For each k, the noise of every aggregator is scaled to the same epsilon for all queries, and the
picture shows the gap between the k-th count and the next one at which the k most voted labels are
the answer with a given probability, for the worst counts with that gap. Printed is where the
canonical mechanism needs a smaller gap than peeling.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from pate import VoteShape
from pate.accounting import NeighboringRelation, Target
from pate.aggregators import Aggregator, Canonical, Joint, Peeling

NAMES = ("canonical", "canonical, published loss", "peeling", "joint (a bound)")


def gaps(num_labels: int, k: int, target: Target, probability: float) -> tuple[float, ...]:
    """Return the gap that each of `NAMES` needs, in votes."""
    relation = target.neighboring_relation
    shape = VoteShape(num_teachers=2, num_labels=num_labels)
    chosen: list[Canonical | Peeling | Joint] = [
        Canonical(k=k, scale_canonical=1.0, neighboring_relation=relation),
        Canonical(k=k, scale_canonical=1.0, loss="published", neighboring_relation=relation),
        Peeling(k=k, scale_peel=1.0, neighboring_relation=relation),
        Joint(k=k, scale_joint=1.0, neighboring_relation=relation),
    ]
    gaps_needed = []
    for aggregator in chosen:
        calibrated = aggregator.calibrated(target, shape, tolerance=1e-5)
        assert calibrated is not None, "noise that meets the target"
        gaps_needed.append(gap_of(calibrated, num_labels, probability))
    return tuple(gaps_needed)


def gap_of(aggregator: Aggregator, num_labels: int, probability: float) -> float:
    """Return the gap that a calibrated aggregator needs, in votes."""
    assert isinstance(aggregator, Canonical | Peeling | Joint)
    gap = aggregator.gap_needed(VoteShape(800, num_labels), probability=probability)
    assert gap is not None, "sets whose accuracy is known"
    return gap.votes


def stretches(numbers: list[int]) -> str:
    """Write ascending numbers as stretches, such as ``1-2, 18-39``."""
    parts = np.split(np.array(numbers), np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(
        f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts if len(part)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="the picture")
    parser.add_argument(
        "--labels",
        type=int,
        nargs="+",
        default=[40, 1000],
        help="numbers of labels, one panel each",
    )
    parser.add_argument("--epsilon", type=float, default=3.6)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--queries", type=int, default=600)
    parser.add_argument("--probability", type=float, default=0.9)
    options = parser.parse_args(arguments)
    target = Target(
        epsilon=options.epsilon,
        delta=options.delta,
        num_queries=options.queries,
        neighboring_relation=NeighboringRelation.REPLACE_RECORD,
    )
    figure = Figure(figsize=(5.0, 3.8 * len(options.labels)), layout="constrained")
    for axes, num_labels in zip(
        np.ravel(figure.subplots(len(options.labels), 1)), options.labels, strict=True
    ):
        ks = sorted(
            {int(k) for k in np.unique(np.rint(np.geomspace(1, num_labels - 1, 60)))} | {1, 2, 3}
        )
        ks = list(range(1, num_labels)) if num_labels <= 60 else ks
        curves = np.array([gaps(num_labels, k, target, options.probability) for k in ks])
        for name, column, style in zip(NAMES, curves.T, ("C0-", "C0--", "C1-", "C2:"), strict=True):
            axes.plot(ks, column, style, label=name)
        axes.set(
            xscale="log", yscale="log", xlabel="k, labels in the set", ylabel="gap needed, votes"
        )
        axes.set_title(f"{num_labels:,} labels")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        # at k = 1 both are one choice of one item
        smaller = [k for k, row in zip(ks, curves, strict=True) if k > 1 and row[0] < row[2]]
        drawn = "" if len(ks) == num_labels - 1 else f", of {len(ks)} that are drawn"
        print(
            f"{num_labels} labels: canonical needs a smaller gap than peeling at k = {stretches(smaller)}{drawn}"
        )
    figure.suptitle(
        f"gap at which the top k are found with probability {options.probability:g}\n"
        f"{options.queries} queries, epsilon {options.epsilon:g}, delta {options.delta:g}",
        fontsize=10,
    )
    figure.savefig(options.output, dpi=144)


if __name__ == "__main__":
    main()
