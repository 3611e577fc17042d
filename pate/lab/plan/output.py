"""What commands that look ahead write: tables, pictures, and a plan as a recipe.

First the table and the pictures of a frontier, and epsilon against queries; then the tables, the
recipe and the picture of a sweep over numbers of teachers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from pate._core.accounting.accountant import Conversion, epsilon_of
from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import Event
from pate._core.files.reading import Json
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
    Point,
    best_at,
    best_of_families,
    ranked,
)
from pate.lab.plan.sweep import SweepResult, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_WIDTH = 5.0  # inches: type of pictures is legible on a phone
_NAMED = 5  # lines with a color and a name
_MARKERS = "osD^v"
_ACROSS = 3  # panels side by side
_GRAY: Mapping[str, Any] = {"color": "0.8", "linewidth": 0.9, "zorder": 2}
_TITLES = {
    "answered": "share of labels released",
    "label_accuracy": "released labels that are the majority's",
    "label_macro_f1": "macro-F1 of released labels against the majority",
    "student_accuracy": "accuracy of the student",
    "student_macro_f1": "macro-F1 of the student",
    "student_mAP": "mAP of the student",
}


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
    lines = [frontier.notice, comparison.title, "", *text_table(rows)]
    for measured in STUDENT_FIGURES if comparison.student else ("label_accuracy",):
        words = measured if comparison.student else "the share of labels released and right"
        lines += ["", f"Best by {words}:"]
        for target, point in best_at(points, measured).items():
            share = 1.0 if comparison.student else point.answered
            reached = share * getattr(point, measured)
            lines.append(f"    epsilon {target:g}: {point.aggregator} ({reached:.4f})")
    return "\n".join(lines) + "\n"


def frontier_rows(frontier: Frontier) -> Iterable[Mapping[str, Any]]:
    """Yield all points, then the references, without epsilons, as rows of a file."""
    yield from map(asdict, frontier.points)
    yield from ({"aggregator": name, **figures} for name, figures in frontier.references.items())


def frontier_figure(frontier: Frontier) -> Figure:
    """Plot each figure against epsilon, a line for each aggregator and a level for each reference.

    The five aggregators with the best mean ranks have colors and names, the best first. The others
    are gray. If variants are compared, each class counts once, by its best form. Values far below
    the constant answer are cut off.
    """
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    points, references = frontier.points, frontier.references
    shown = STUDENT_FIGURES if frontier.comparison.student else LABEL_FIGURES
    best = best_of_families(frontier, shown)[:_NAMED]
    names = best + [name for name in ranked(points, shown) if name not in best]
    others = len(names) - len(best)
    figure = Figure(figsize=(_WIDTH, 2.9 * len(shown) + 2.4), layout="constrained")
    for axes, measured in zip(np.atleast_1d(figure.subplots(len(shown), 1)), shown, strict=True):
        for i, name in enumerate(names):
            style = dict(_GRAY)
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
    figure.legend(handles, labels, loc="outside lower center", frameon=False, fontsize="medium")
    figure.suptitle(f"{frontier.comparison.title}\n{frontier.notice}", fontsize="medium")
    return figure


def variants_figure(frontier: Frontier) -> Figure:
    """Plot a panel for each class with several forms, in color. All other classes are gray.

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
                _line(axes, points, name, measured, **_GRAY)
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
            axes.plot(
                counts,
                epsilons,
                style,
                color="tab:blue" if relation is configured else "tab:orange",
                label=f"{relation.value}{' (configured)' * (relation is configured)}, {conversion}",
            )
    axes.set(
        xlabel="queries", ylabel=f"epsilon at delta = {delta:g}", xlim=(0, None), ylim=(0, None)
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_figure(path, figure, dpi=150)


NOTICE = "from public facts and simulated votes alone: nothing private was touched"
_NUM_STEPS, _BATCH_SIZE = 150, 100
_FEW_QUERIES = 20
_HEAD = (
    f"{'teachers':>10}{'records of each':>17}{'its accuracy':>14}   {'aggregator':<14}"
    f"{'accuracy':>17}{'macro-F1':>20}"
)


def sweep_text(result: SweepResult) -> str:
    """Return all numbers of teachers with the figures of the student, and the choice, as text."""
    facts, sweep, learner = result.facts, result.sweep, result.learner
    lines = [
        NOTICE,
        f"{facts.num_records} records ({facts.unit}s of {facts.records_per_group:g}),"
        f" {facts.num_labels} labels, {sweep.queries(facts)} queries, delta {sweep.delta:g},"
        f" {sweep.neighboring_relation.value.upper()}",
        f"one teacher: signal {learner.signal:.2f}, noise {learner.noise:.2f},"
        f" ridge {learner.ridge:.2f}"
        + (" (no learning curve was given: a guess)" if facts.curve is None else ", fitted to"),
    ]
    for records, accuracy in (facts.curve or {}).items():
        reached = learner.accuracy(facts, records)
        lines.append(
            f"    {records:>8} records: accuracy {accuracy:.4f}, of the model {reached:.4f}"
        )
    for epsilon in sweep.epsilons:
        choice = result.choice(epsilon)
        lines += ["", f"epsilon {epsilon:g}", _HEAD]
        lines += [
            _row(trial, trial == choice) for trial in result.trials if trial.epsilon == epsilon
        ]
        lines.append(
            f"{'constant answer':>58}{result.constant[0]:>9.4f}{result.constant[1]:>20.4f}"
        )
        lines += [*_advice(result, choice), _exact_sets(result, epsilon)]
    return "\n".join(lines) + "\n"


def _row(trial: Trial, recommended: bool) -> str:
    accuracy, f1 = (_figure(*_spread(trial, by)) for by in ("accuracy", "macro_f1"))
    size = f"{trial.num_teachers:>10}{trial.records:>17.1f}{trial.teacher_accuracy:>14.4f}"
    figures = f"{accuracy:>17}{f1:>20}{'  <- take' if recommended else ''}"
    return f"{size}   {trial.aggregator:<14}{figures}"


def _figure(mean: float, error: float | None) -> str:
    return f"{mean:.4f}" if error is None else f"{mean:.4f} +-{error:.4f}"


def _spread(trial: Trial, by: str) -> tuple[float, float | None]:
    """Return the mean of a figure over simulated tasks, and its standard error (None for one)."""
    figures, num = trial.figures(by), len(trial.figures(by))
    return float(figures.mean()), float(figures.std(ddof=1) / num**0.5) if num > 1 else None


def _advice(result: SweepResult, choice: Trial) -> list[str]:
    facts, form = result.facts, "two rounds" if choice.aggregator == "Rounds" else "one round"
    if choice.in_closed_form:
        own = choice.num_teachers == facts.num_units
        form = f"fit: closed_form, {'each its own' if own else 'parts as'} teacher"
    queries = result.sweep.queries(facts)
    advice = [
        f"take {choice.num_teachers} teachers, {choice.aggregator} ({form}), {queries} queries"
    ]
    constant = result.constant[0 if result.sweep.by == "accuracy" else 1]
    if float(choice.figures(result.sweep.by).mean()) <= constant:
        advice.append(
            "no number of teachers is better than the constant answer here: a larger epsilon, or"
            " more records"
        )
    if choice.in_closed_form:
        return advice
    sizes = [trial.num_teachers for trial in result.trials if not trial.in_closed_form]
    if choice.num_teachers in (min(sizes), max(sizes)) and len(set(sizes)) > 1:
        advice.append("this is at an end of what was tried (num_teachers)")
    return advice


def _exact_sets(result: SweepResult, epsilon: float) -> str:
    """Return a line on teachers that start from a first release, as many as StableTopK needs.

    There are as many queries as asked, or as many as teachers with five records, and a group,
    answer.
    """
    facts, sweep, most = result.facts, result.sweep, result.facts.most_teachers
    if sweep.neighboring_relation is not NeighboringRelation.REPLACE_RECORD:
        return (
            "for exact sets or none: plan for REPLACE_RECORD, since teachers that start from a"
            f" release have no total with it under {sweep.neighboring_relation.name}"
        )
    aggregator = Partial(StableTopK, neighboring_relation=sweep.neighboring_relation)
    queries, number = sweep.queries(facts), 0
    while True:
        settings = LabelSettings(
            aggregator, delta=sweep.delta, target_epsilon=epsilon, num_queries=queries
        )
        number = teachers_that_start(settings, facts.num_labels, facts.num_public)
        # the gap is about as wide as the root of the number of queries
        fewer = int(0.9 * queries * (most / number) ** 2)
        if number <= most or fewer < _FEW_QUERIES:
            break
        queries = fewer
    line = f"for exact sets or none: {number} teachers that start from a release"
    if number > most:
        return (
            f"{line}, for {queries} queries; {most} have enough records: a larger epsilon or more"
            " records"
        )
    return f"{line}, StableTopK (fit: closed_form, start_from: first), {queries} queries"


def write_sweep(path: Path, result: SweepResult) -> None:
    """Write all trials as comma-separated values, below a comment that nothing is private."""
    names = ("epsilon", "num_teachers", "records", "teacher_accuracy", "aggregator")
    write_csv(
        path,
        NOTICE,
        (
            {name: getattr(trial, name) for name in names}
            | {by: float(trial.figures(by).mean()) for by in ("accuracy", "macro_f1")}
            | {"taken": int(trial == result.choice(trial.epsilon))}
            for trial in result.trials
        ),
    )


def write_recipe(folder: Path, result: SweepResult, choice: Trial) -> None:
    """Write ``teachers.yaml`` and ``label.yaml`` of a choice, with a target in place of noise."""
    relation, facts = result.sweep.neighboring_relation, result.facts
    teachers: Json = {"network": "pate.models.Linear", "unit": facts.unit}
    if choice.in_closed_form:
        teachers["fit"] = "closed_form"
    if not choice.in_closed_form or choice.num_teachers != facts.num_units:
        teachers["num_teachers"] = choice.num_teachers
    if not choice.in_closed_form:
        teachers |= {
            "num_steps": _NUM_STEPS,
            "batch_size": max(1, min(_BATCH_SIZE, round(choice.records))),
            "optimizer": {
                "class_path": "torch.optim.AdamW",
                "init_args": {"lr": 0.1, "weight_decay": 0.01},
            },
            "chunk_size": "auto",
        }
    label = {
        "aggregator": {
            "class_path": choice.aggregator,
            "init_args": {}
            if relation is NeighboringRelation.REPLACE_RECORD
            else {"neighboring_relation": relation.name},
        },
        "num_queries": result.sweep.queries(result.facts),
        "delta": result.sweep.delta,
        "target_epsilon": choice.epsilon,
    }
    notice = f"# Planned {NOTICE}.\n"
    scale = (
        "# In data.yaml: `features: PublicScaling`, or another map after which rows are about one"
        " unit long.\n"
    )
    for name, heading, content in (
        ("teachers", notice + scale, teachers),
        ("label", notice, label),
    ):
        write_text(folder / f"{name}.yaml", heading + yaml.safe_dump(content, sort_keys=False))


def draw_sweep(path: Path, result: SweepResult) -> None:
    """Plot figures of the student against the number of teachers, a line for each epsilon.

    A line has the better of one round and two of networks; squares vote in closed form.
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    figure = Figure(figsize=(_WIDTH, 7.6), layout="constrained")
    epsilons, sizes = result.sweep.epsilons, sorted({trial.num_teachers for trial in result.trials})
    for axes, by, level in zip(
        figure.subplots(2, 1), ("accuracy", "macro_f1"), result.constant, strict=True
    ):
        for i, epsilon in enumerate(epsilons):
            color = colormaps["viridis"](0.85 * i / max(1, len(epsilons) - 1))
            trials = [trial for trial in result.trials if trial.epsilon == epsilon]
            for marker, in_closed_form in ((".-", False), ("s", True)):
                shown = _best_of_sizes(trials, by, in_closed_form)
                means, errors = zip(*(_spread(trial, by) for trial in shown), strict=True)
                axes.errorbar(
                    [trial.num_teachers for trial in shown],
                    means,
                    yerr=None if None in errors else errors,
                    fmt=marker,
                    color=color,
                    capsize=2,
                    label=None if in_closed_form else f"epsilon {epsilon:g}",
                )
            choice = result.choice(epsilon)
            axes.plot(
                choice.num_teachers,
                choice.figures(by).mean(),
                "o",
                color=color,
                markersize=12,
                markerfacecolor="none",
            )
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label="constant answer")
        log2_axis(axes, sizes, rotation=45)
        axes.set(
            xlabel="teachers", title=f"{'macro-F1' if by == 'macro_f1' else by} of the student"
        )
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


def _best_of_sizes(trials: Sequence[Trial], by: str, in_closed_form: bool) -> list[Trial]:
    """Return the trial with the best figure for each number of teachers, ascending."""
    best: dict[int, Trial] = {}
    for trial in trials:
        rival = best.get(trial.num_teachers)
        if trial.in_closed_form == in_closed_form and (
            rival is None or trial.figures(by).mean() > rival.figures(by).mean()
        ):
            best[trial.num_teachers] = trial
    return [best[size] for size in sorted(best)]
