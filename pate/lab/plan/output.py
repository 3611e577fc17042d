"""What commands that look ahead write: tables, pictures, and a plan as a recipe.

First the table and the pictures of a frontier, and epsilon against queries; then the tables, the
recipe and the picture of a sweep over numbers of teachers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pate._core.accounting.cost import NeighboringRelation, format_exact
from pate._core.files.writing import atomic_write, write_text
from pate._core.settings import Partial
from pate._core.tables import text_table, write_csv
from pate._labeling.aggregators.top_k import StableTopK
from pate._labeling.release.completion import teachers_that_start
from pate._labeling.release.label_settings import LabelSettings
from pate.lab.plan.frontier import (
    LABEL_FIGURES,
    STUDENT_FIGURES,
    Frontier,
    best_at,
    best_of_families,
    reached,
)
from pate.lab.plan.sweep import SweepResult, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_WIDTH = 5.0  # inches: type of pictures is legible on a phone
_NAMED = 5  # lines with a color and a name
_MARKERS = "osD^v"
_ACROSS = 3  # panels side by side
_TITLES = {
    "answered": "share of labels released",
    "label_accuracy": "released labels that are the majority's",
    "label_macro_f1": "macro-F1 of released labels against the majority",
    "student_accuracy": "accuracy of the student",
    "student_macro_f1": "macro-F1 of the student",
    "student_mAP": "mAP of the student",
}


def rendered(template: str, **words: Any) -> str:
    """Return the text of a template in a file next to this one."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"exact": format_exact, "tex": _tex, "yaml": _yaml}
    return environment.get_template(template).render(words)


def _tex(text: str) -> str:
    return text.translate({ord(sign): f"\\{sign}" for sign in "_&%#$"})


def _yaml(number: float) -> str:
    return yaml.safe_dump(number).splitlines()[0]  # 1e-06 would be a text


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


def panel_grid(count: int, *, width: float, height: float) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure, and its panels of a size in inches with shared axes, three in a row."""
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    across = min(_ACROSS, max(1, count))
    down = max(1, -(-count // across))
    figure = Figure(figsize=(width * across, 0.8 + height * down), layout="constrained")
    grid = np.ravel(figure.subplots(down, across, sharex=True, sharey=True, squeeze=False))
    for i, axes in enumerate(grid.tolist()):
        axes.set_visible(i < count)
        axes.tick_params(labelbottom=True)
    return figure, grid[:count].tolist()


def frontier_table(frontier: Frontier) -> str:
    """Return all rows and references as text, and the best aggregator at each epsilon."""
    names = frontier.comparison.figures
    table = [("aggregator", "epsilon", "realised", *names)]
    for row in frontier.rows:
        epsilons = f"{row['epsilon']:.3f}", f"{row['realised_epsilon']:.3f}"
        table.append((row["aggregator"], *epsilons, *(f"{row[name]:.4f}" for name in names)))
    for reference, figures in frontier.references.items():
        table.append((reference, "", "", *(f"{figures[name]:.4f}" for name in names)))
    return rendered(
        "frontier.txt",
        frontier=frontier,
        table="\n".join(text_table(table)),
        measures=STUDENT_FIGURES if frontier.comparison.student else ("label_accuracy",),
        best_at=best_at,
        reached=reached,
    )


def frontier_figure(frontier: Frontier) -> Figure:
    """Plot each figure against epsilon, a line for each aggregator and a level for each reference.

    The five aggregators with the best mean ranks have colors and names, the best first. The others
    are gray. If variants are compared, each class counts once, by its best form. Values far below
    the constant answer are cut off.
    """
    from matplotlib.figure import Figure

    shown = STUDENT_FIGURES if frontier.comparison.student else LABEL_FIGURES
    styles = {
        name: {"color": f"C{i}", "marker": _MARKERS[i], "linewidth": 2.2, "zorder": 9 - i}
        for i, name in enumerate(best_of_families(frontier, shown)[:_NAMED])
    }
    figure = Figure(figsize=(_WIDTH, 2.9 * len(shown) + 2.4), layout="constrained")
    for axes, measured in zip(figure.subplots(len(shown), 1), shown, strict=True):
        _draw(axes, frontier, measured, styles)
        axes.set(xlabel="epsilon", title=_TITLES[measured])
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", frameon=False, fontsize="medium")
    figure.suptitle(f"{frontier.comparison.title}\n{frontier.notice}", fontsize="medium")
    return figure


def variants_figure(frontier: Frontier) -> Figure:
    """Plot a panel for each class with several forms, in color. All other classes are gray.

    The panels show the accuracy of the student or, without a student, macro-F1 of the labels.
    """
    measured = "student_accuracy" if frontier.comparison.student else "label_macro_f1"
    forms: dict[str, list[str]] = {}
    for name in frontier.names:
        forms.setdefault(frontier.families.get(name, name), []).append(name)
    several = {family: names for family, names in forms.items() if len(names) > 1}
    figure, grid = panel_grid(len(several), width=4.6, height=4.2)
    for axes, (family, names) in zip(grid, several.items(), strict=True):
        styles = {
            name: {"color": f"C{i % 10}", "marker": _MARKERS[i % 5], "ls": "-" if i < 5 else "--"}
            for i, name in enumerate(names)
        }
        _draw(axes, frontier, measured, styles)
        axes.set_title(family)
        axes.legend(
            handles=axes.lines[: len(names)],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.08),
            frameon=False,
            fontsize="x-small",
        )
    heading = f"{_TITLES[measured]} against epsilon, by class"
    figure.suptitle(f"{heading}\n{frontier.comparison.title}\n{frontier.notice}", fontsize="medium")
    return figure


def _draw(
    axes: Axes, frontier: Frontier, measured: str, styles: Mapping[str, Mapping[str, Any]]
) -> None:
    """Draw a figure of all aggregators, those with a style first, and levels of references."""
    names = [*styles, *(name for name in frontier.names if name not in styles)]
    others = len(names) - len(styles)
    gray = {"color": "0.8", "linewidth": 0.9, "zorder": 2}
    for i, name in enumerate(names):
        found = [row for row in frontier.rows if row["aggregator"] == name]
        line = sorted((row["target_epsilon"], row[measured]) for row in found)
        style: Mapping[str, Any] = gray
        if name in styles:
            style = {"label": name, "markersize": 5, "zorder": 9, **styles[name]}
        elif i == len(styles):
            style = {"label": f"{others} other{'s' if others > 1 else ''}", **gray}
        axes.plot(*zip(*line, strict=True), **style)
    for (name, levels), dashes in zip(frontier.references.items(), (":", "--", "-."), strict=False):
        axes.axhline(levels[measured], color="black", linestyle=dashes, linewidth=1, label=name)
    axes.set_ylim(_limits(frontier, measured))
    log2_axis(axes, frontier.targets)


def _limits(frontier: Frontier, measured: str) -> tuple[float, float]:
    """Return the limits of a plot, which begins at most a little below the constant answer."""
    shown = [*frontier.rows, *frontier.references.values()]
    values = [each[measured] for each in shown]
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if measured != "answered":
        constant = frontier.references["constant answer"][measured]
        low = max(low, constant - 0.1 * (high - constant))
    margin = 0.04 * max(high - low, 0.01)
    return low - margin, high + margin


NOTICE = "from public facts and simulated votes alone: nothing private was touched"
_FEW_QUERIES = 20
_HEAD = ("aggregator", "teachers", "records of each", "its accuracy", "accuracy", "macro-F1", "")


def sweep_text(result: SweepResult) -> str:
    """Return all numbers of teachers with the figures of the student, and the choice, as text."""

    def figure(mean: float, error: float) -> str:
        return f"{mean:.4f}" if math.isnan(error) else f"{mean:.4f} +-{error:.4f}"

    def table(epsilon: float, choice: Trial) -> str:
        levels = [f"{level:.4f}" for level in result.constant.values()]
        rows = [
            (
                trial.aggregator,
                f"{trial.num_teachers}",
                f"{trial.records:.1f}",
                f"{trial.teacher_accuracy:.4f}",
                *(figure(*trial.spread(by)) for by in result.constant),
                "<- take" if trial == choice else "",
            )
            for trial in result.trials
            if trial.epsilon == epsilon
        ]
        return "\n".join(text_table([_HEAD, *rows, ("constant answer", "", "", "", *levels, "")]))

    return rendered(
        "plan.txt",
        notice=NOTICE,
        result=result,
        facts=result.facts,
        sweep=result.sweep,
        learner=result.learner,
        queries=result.sweep.queries(result.facts),
        table=table,
        exact_sets=_exact_sets,
    )


def _exact_sets(result: SweepResult, epsilon: float) -> tuple[int | None, int]:
    """Return as many teachers that start from a first release as StableTopK needs, and queries.

    There are as many queries as asked, or as many as teachers with five records, and a group,
    answer. None if such teachers have no total with their release.
    """
    facts, sweep, queries = result.facts, result.sweep, result.sweep.queries(result.facts)
    if sweep.neighboring_relation is not NeighboringRelation.REPLACE_RECORD:
        return None, queries
    aggregator = Partial(StableTopK, neighboring_relation=sweep.neighboring_relation)
    while True:
        settings = LabelSettings(
            aggregator, delta=sweep.delta, target_epsilon=epsilon, num_queries=queries
        )
        number = teachers_that_start(settings, facts.num_labels, facts.num_public)
        # the gap is about as wide as the root of the number of queries
        fewer = int(0.9 * queries * (facts.most_teachers / number) ** 2)
        if number <= facts.most_teachers or fewer < _FEW_QUERIES:
            return number, queries
        queries = fewer


def write_sweep(path: Path, result: SweepResult) -> None:
    """Write all trials as comma-separated values, below a comment that nothing is private."""
    names = ("epsilon", "num_teachers", "records", "teacher_accuracy", "aggregator")
    write_csv(
        path,
        NOTICE,
        (
            {name: getattr(trial, name) for name in names}
            | {by: trial.spread(by)[0] for by in result.constant}
            | {"taken": int(trial == result.choice(trial.epsilon))}
            for trial in result.trials
        ),
    )


def write_recipe(folder: Path, result: SweepResult, choice: Trial) -> None:
    """Write ``teachers.yaml`` and ``label.yaml`` of a choice, with a target in place of noise."""
    for name in ("teachers.yaml", "label.yaml"):
        text = rendered(
            name,
            notice=NOTICE,
            choice=choice,
            facts=result.facts,
            relation=result.sweep.neighboring_relation,
            queries=result.sweep.queries(result.facts),
            delta=result.sweep.delta,
        )
        write_text(folder / name, text)


def draw_sweep(path: Path, result: SweepResult) -> None:
    """Plot figures of the student against the number of teachers, a line for each epsilon.

    A line has the better of one round and two of networks; squares vote in closed form.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    figure = Figure(figsize=(_WIDTH, 7.6), layout="constrained")
    epsilons, sizes = result.sweep.epsilons, sorted({trial.num_teachers for trial in result.trials})
    for axes, (by, level) in zip(figure.subplots(2, 1), result.constant.items(), strict=True):
        for i, epsilon in enumerate(epsilons):
            color = colormaps["viridis"](0.85 * i / max(1, len(epsilons) - 1))
            for marker, in_closed_form in ((".-", False), ("s", True)):
                best = {
                    trial.num_teachers: trial
                    for trial in sorted(result.trials, key=lambda trial: trial.spread(by)[0])
                    if trial.epsilon == epsilon and trial.in_closed_form == in_closed_form
                }
                shown = [best[size] for size in sorted(best)]
                means, errors = zip(*(trial.spread(by) for trial in shown), strict=True)
                axes.errorbar(
                    [trial.num_teachers for trial in shown],
                    means,
                    yerr=np.nan_to_num(errors),
                    fmt=marker,
                    color=color,
                    capsize=2,
                    label=None if in_closed_form else f"epsilon {epsilon:g}",
                )
            choice, ring = result.choice(epsilon), {"markersize": 12, "markerfacecolor": "none"}
            axes.plot(choice.num_teachers, choice.spread(by)[0], "o", color=color, **ring)
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label="constant answer")
        log2_axis(axes, sizes, rotation=45)
        title = f"{'macro-F1' if by == 'macro_f1' else by} of the student"
        axes.set(xlabel="teachers", title=title)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", frameon=False, ncols=2)
    facts = result.facts
    figure.suptitle(
        f"{facts.num_records} records, {facts.num_labels} labels\n"
        "lines: networks; squares: closed form; circles: taken\n"
        "from public facts and simulated votes alone",
        fontsize="medium",
    )
    save_figure(path, figure, dpi=144)
