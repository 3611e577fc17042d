"""Tables of figures, as text for a terminal and as comma-separated values."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Any

from pate._planning.comparison import STUDENT_FIGURES, Frontier, best_at
from pate._runs import replacing

_WIDTH = 100
_LEAST = 24  # columns for names, however many figures there are


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: in each row a name, wrapped if the figures leave it no room, and figures.

    >>> text_table([("aggregator", "epsilon"), ("NoisyVotes", "2.0")])
    ['aggregator  epsilon', 'NoisyVotes      2.0']
    """
    widths = [max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[1:]]
    names = [
        wrap(name, max(_LEAST, _WIDTH - sum(widths)), subsequent_indent="    ") or [""]
        for name, *_ in rows
    ]
    width = max(len(line) for name in names for line in name)
    lines = []
    for (name, *more), (_, *figures) in zip(names, rows, strict=True):
        cells = (f"{figure:>{space}}" for figure, space in zip(figures, widths, strict=True))
        lines += [f"{name:<{width}}{''.join(cells)}".rstrip(), *more]
    return lines


def write_csv(path: Path, notice: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows with the fields of the first, or some of them, below a comment on whether they may be published."""
    first, *others = rows
    with replacing(path, "w") as file:
        file.write(f"# {notice}\n")
        writer = csv.DictWriter(file, fieldnames=list(first))
        writer.writeheader()
        writer.writerows([first, *others])


def frontier_table(frontier: Frontier) -> str:
    """Return all points and references as text, and the best aggregator at each epsilon."""
    points, comparison = frontier.points, frontier.comparison
    names = comparison.figures
    rows = [("aggregator", "epsilon", "realised", *names)]
    for point in points:
        epsilons = f"{point.epsilon:.3f}", f"{point.realised_epsilon:.3f}"
        rows.append(
            (point.aggregator, *epsilons, *(f"{getattr(point, name):.4f}" for name in names))
        )
    for reference, figures in frontier.references.items():
        rows.append((reference, "", "", *(f"{figures[name]:.4f}" for name in names)))
    table = text_table(rows)
    lines = [frontier.notice, comparison.title, "", *table]
    for measured in STUDENT_FIGURES if comparison.student else ("label_accuracy",):
        lines += ["", f"Best by {measured}:"]
        for target, point in best_at(points, measured).items():
            lines.append(
                f"    epsilon {target:g}: {point.aggregator} ({getattr(point, measured):.4f})"
            )
    if not comparison.student:
        lines.append(
            "An aggregator can be right on the few queries that it answers: look at `answered` too."
        )
    return "\n".join(lines) + "\n"


def frontier_rows(frontier: Frontier) -> Iterable[Mapping[str, Any]]:
    """Yield all points, then the references, without epsilons, as rows of a file."""
    yield from map(asdict, frontier.points)
    yield from ({"aggregator": name, **figures} for name, figures in frontier.references.items())
