"""Tables of figures, as text for a terminal and as comma-separated values."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from pate._files.writing import atomic_write

_WIDTH = 100
_LEAST = 24  # columns for names, however many figures there are


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: each row is a name, wrapped if it is long, and figures.

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
    """Write rows with some or all fields of the first row, below a comment ``notice``."""
    first, *others = rows
    with atomic_write(path, "w") as file:
        file.write(f"# {notice}\n")
        writer = csv.DictWriter(file, fieldnames=list(first))
        writer.writeheader()
        writer.writerows([first, *others])
