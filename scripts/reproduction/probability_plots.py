"""Panels of curves: one color for each mechanism, one kind of line for each measure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

Dashes = Literal["-", "--", ":"]


def panels(
    number: int, columns: int, labels: tuple[str, str], height: float = 2.4
) -> tuple[Figure, list[Axes]]:
    """Return a figure of so many panels and its axes, with labels at the left and at the foot of each column."""
    lines = math.ceil(number / columns)
    figure = Figure(figsize=(3.4 * columns, height * lines + 0.8), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).ravel())
    for place, axis in enumerate(axes):
        axis.grid(alpha=0.25)
        if place >= number:
            axis.set_axis_off()
        if place % columns == 0:
            axis.set_ylabel(labels[1])
        if number - columns <= place:
            axis.set_xlabel(labels[0])
    return figure, axes[:number]


def legend(
    figure: Figure, colors: Mapping[str, str], dashes: Mapping[str, Dashes], columns: int = 4
) -> None:
    """Add one legend below all panels, of colors and of kinds of lines."""
    handles = [Line2D([], [], color=color, label=name) for name, color in colors.items()]
    handles += [
        Line2D([], [], color="black", linestyle=kind, label=name) for name, kind in dashes.items()
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8
    )
