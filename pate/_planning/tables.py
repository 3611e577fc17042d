"""A frontier as text and as comma-separated values."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path

from pate._planning.comparison import STUDENT_FIGURES, Frontier, Point, best_at
from pate._runs import replacing


def table(frontier: Frontier) -> str:
    """Return all points and references as text, and the best aggregator at each epsilon."""
    points, comparison = frontier.points, frontier.comparison
    width = max(map(len, [*(point.aggregator for point in points), *frontier.references])) + 2
    lines = [frontier.notice, comparison.title, ""]
    head = "".join(f"{name:>18}" for name in comparison.figures)
    lines.append(f"{'aggregator':<{width}}{'epsilon':>9}{'realised':>10}{head}")
    for point in points:
        figures = "".join(f"{getattr(point, name):>18.4f}" for name in comparison.figures)
        lines.append(f"{point.aggregator:<{width}}{point.epsilon:>9.3f}{point.realised_epsilon:>10.3f}{figures}")
    lines.append("")
    for name, reference in frontier.references.items():
        figures = "".join(f"{reference[figure]:>18.4f}" for figure in comparison.figures)
        lines.append(f"{name:<{width}}{'':>9}{'':>10}{figures}")
    for measured in STUDENT_FIGURES if comparison.student else ("label_accuracy",):
        lines += ["", f"Best by {measured}:"]
        for target, point in best_at(points, measured).items():
            lines.append(f"    epsilon {target:g}: {point.aggregator} ({getattr(point, measured):.4f})")
    if not comparison.student:
        lines.append("An aggregator can be right on the few queries that it answers: look at `answered` too.")
    return "\n".join(lines) + "\n"


def write_csv(path: Path, frontier: Frontier) -> None:
    """Write all points, then the references, without epsilons, below a comment on whether they may be published."""
    with replacing(path, "w") as file:
        file.write(f"# {frontier.notice}\n")
        writer = csv.DictWriter(file, fieldnames=list(Point.__dataclass_fields__))
        writer.writeheader()
        writer.writerows(asdict(point) for point in frontier.points)
        writer.writerows({"aggregator": name, **figures} for name, figures in frontier.references.items())
