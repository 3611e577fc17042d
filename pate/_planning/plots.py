"""Plots of quality against epsilon, and of epsilon against queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pate._files import atomic_write
from pate._planning.comparison import (
    LABEL_FIGURES,
    STUDENT_FIGURES,
    Frontier,
    Point,
    best_of_families,
    ranked,
)
from pate.accounting import Event, NeighboringRelation, epsilon_of
from pate.accounting._cost import Conversion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMED = 5  # lines with a color and a name
_MARKERS = "osD^v"
_ACROSS = 3  # panels side by side
_GREY: Mapping[str, Any] = {"color": "0.8", "linewidth": 0.9, "zorder": 2}
_TITLES = {
    "answered": "share of labels released",
    "label_accuracy": "released labels that are the majority's",
    "label_macro_f1": "macro-F1 of released labels against the majority",
    "student_accuracy": "accuracy of the student",
    "student_macro_f1": "macro-F1 of the student",
    "student_mAP": "mAP of the student",
}


def draw_frontier(path: Path, frontier: Frontier) -> None:
    """Write the picture of `frontier_figure`."""
    save_figure(path, frontier_figure(frontier), dpi=130)


def draw_variants(path: Path, frontier: Frontier) -> None:
    """Write the picture of `variants_figure`."""
    save_figure(path, variants_figure(frontier), dpi=90)


def save_figure(path: Path, figure: Figure, *, dpi: int) -> None:
    """Write a figure in the format of the file's suffix, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix(".") or "png", dpi=dpi)


def log2_axis(axes: Axes, ticks: Sequence[float], **style: Any) -> None:
    """Give the plot a grid, and a logarithmic axis that shows exactly the values ``ticks``."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], **style)
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def frontier_figure(frontier: Frontier) -> Figure:
    """Plot each figure against epsilon, a line for each aggregator and a level for each reference.

    The five aggregators with the best mean ranks have colors and names, the best first; the others
    are gray. If variants are compared, each class counts once, by its best form. Values far below
    the constant answer are cut off.
    """
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    points, references = frontier.points, frontier.references
    shown = STUDENT_FIGURES if frontier.comparison.student else LABEL_FIGURES
    best = best_of_families(frontier, shown)[:_NAMED]
    names = best + [name for name in ranked(points, shown) if name not in best]
    others = len(names) - len(best)
    figure = Figure(figsize=(4.4 * len(shown) + 3.2, 4.8), layout="constrained")
    for axes, measured in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown, strict=True):
        for i, name in enumerate(names):
            style = dict(_GREY)
            if i < len(best):
                style = {
                    "color": f"C{i}",
                    "marker": _MARKERS[i],
                    "markersize": 6,
                    "linewidth": 2.2,
                    "zorder": 9 - i,
                }
            word = name if i < len(best) else f"{others} other{'s' if others > 1 else ''}"
            _line(axes, points, name, measured, **style, label=word if i <= len(best) else None)
        for (name, figures), dashes in zip(references.items(), (":", "--", "-."), strict=False):
            axes.axhline(
                figures[measured], color="black", linestyle=dashes, linewidth=1, label=name
            )
        axes.set_ylim(_limits(frontier, measured))
        log2_axis(axes, sorted({point.target_epsilon for point in points}))
        axes.set(xlabel="epsilon", title=_TITLES[measured])
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize="small")
    figure.suptitle(f"{frontier.comparison.title}\n{frontier.notice}", fontsize="medium")
    return figure


def variants_figure(frontier: Frontier) -> Figure:
    """Plot a panel for each class with several forms, in color; all other classes are gray.

    The panels show the accuracy of the student or, without a student, macro-F1 of the labels.
    """
    from matplotlib.figure import Figure

    measured = "student_accuracy" if frontier.comparison.student else "label_macro_f1"
    points, names = frontier.points, dict.fromkeys(point.aggregator for point in frontier.points)
    forms: dict[str, list[str]] = {}
    for name in names:
        forms.setdefault(frontier.families.get(name, name), []).append(name)
    panels = {
        family: family_forms for family, family_forms in forms.items() if len(family_forms) > 1
    }
    down = max(1, -(-len(panels) // _ACROSS))
    figure = Figure(figsize=(4.6 * _ACROSS, 0.6 + 4.2 * down), layout="constrained")
    grid = np.ravel(figure.subplots(down, _ACROSS, sharex=True, sharey=True, squeeze=False))
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes, (family, family_forms) in zip(grid, panels.items(), strict=False):
        for name in names:
            if name not in family_forms:
                _line(axes, points, name, measured, **_GREY)
        for i, name in enumerate(family_forms):
            style = {
                "linestyle": "-" if i < 5 else "--",
                "marker": _MARKERS[i % 5],
                "markersize": 4,
            }
            _line(axes, points, name, measured, **style, color=f"C{i % 10}", zorder=9, label=name)
        axes.axhline(
            frontier.references["constant answer"][measured],
            color="black",
            linestyle=":",
            linewidth=1,
        )
        axes.set_ylim(_limits(frontier, measured))
        log2_axis(axes, sorted({point.target_epsilon for point in points}))
        axes.tick_params(labelbottom=True)
        axes.set_title(family)
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.08), frameon=False, fontsize="x-small"
        )
    heading = f"{_TITLES[measured]} against epsilon, by class"
    figure.suptitle(f"{heading}\n{frontier.comparison.title}\n{frontier.notice}", fontsize="medium")
    return figure


def _line(axes: Axes, points: Sequence[Point], name: str, measured: str, **style: Any) -> None:
    line = sorted((p.target_epsilon, getattr(p, measured)) for p in points if p.aggregator == name)
    axes.plot(*zip(*line, strict=True), **style)


def _limits(frontier: Frontier, measured: str) -> tuple[float, float]:
    """Return the limits of a plot, which begins at most a little below the constant answer."""
    levels = [figures[measured] for figures in frontier.references.values()]
    values = np.array([*levels, *(getattr(point, measured) for point in frontier.points)])
    constant, high = frontier.references["constant answer"][measured], float(np.nanmax(values))
    low = float(np.nanmin(values))
    if measured != "answered":
        low = max(low, constant - 0.1 * (high - constant))
    margin = 0.04 * max(high - low, 0.01)
    return low - margin, high + margin


def draw_epsilons(
    path: Path,
    events: Mapping[NeighboringRelation, Event],
    configured: NeighboringRelation,
    num_queries: int,
    delta: float,
) -> None:
    """Plot epsilon against the number of queries under both relations, by two conversions."""
    from matplotlib.figure import Figure

    counts = np.unique(np.linspace(1, num_queries, 60).astype(int))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    styles: dict[Conversion, str] = {"tightest": "-", "classic": ":"}
    for relation, event in events.items():
        for conversion, style in styles.items():
            epsilons = [
                epsilon_of(event, count=count, delta=delta, conversion=conversion)
                for count in counts.tolist()
            ]
            name = (
                f"{relation.value}{' (configured)' if relation is configured else ''}, {conversion}"
            )
            color = "tab:blue" if relation is configured else "tab:orange"
            axes.plot(counts, epsilons, style, color=color, label=name)
    axes.set(
        xlabel="queries", ylabel=f"epsilon at delta = {delta:g}", xlim=(0, None), ylim=(0, None)
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_figure(path, figure, dpi=150)
