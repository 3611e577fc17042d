"""The output of a sweep: a table, rows, a picture, and configurations for each epsilon."""

from pathlib import Path

import yaml

from pate._files import Json, write_text
from pate._planning.completion import teachers_that_start
from pate._planning.plots import log2_axis, save_figure
from pate._planning.sweep import SweepResult, Trial
from pate._planning.tables import write_csv
from pate._release.label_settings import LabelSettings
from pate.accounting._cost import NeighboringRelation
from pate.aggregators import Partial, StableTopK

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
            _line(trial, trial == choice) for trial in result.trials if trial.epsilon == epsilon
        ]
        lines.append(
            f"{'constant answer':>58}{result.constant[0]:>9.4f}{result.constant[1]:>20.4f}"
        )
        lines += [*_advice(result, choice), _exact_sets(result, epsilon)]
    return "\n".join(lines) + "\n"


def _line(trial: Trial, recommended: bool) -> str:
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
    names = (
        "epsilon",
        "num_teachers",
        "records",
        "teacher_accuracy",
        "aggregator",
        "accuracy",
        "macro_f1",
    )
    rows = (
        {name: getattr(trial, name) for name in names}
        | {"taken": int(trial == result.choice(trial.epsilon))}
        for trial in result.trials
    )
    write_csv(path, NOTICE, rows)


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
    init_args = (
        {}
        if relation is NeighboringRelation.REPLACE_RECORD
        else {"neighboring_relation": relation.name}
    )
    label = {
        "aggregator": {"class_path": choice.aggregator, "init_args": init_args},
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
    """Plot figures of the student against the number of teachers, a line for each epsilon."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    epsilons, sizes = result.sweep.epsilons, sorted({trial.num_teachers for trial in result.trials})
    names = {
        "Rounds": ("-", ""),
        "ClippedVotes": (":", ", one round"),
        "ScoreVotes": ("--", ", closed form"),
    }
    colors = colormaps["viridis"]
    for axes, by, level in zip(
        figure.subplots(1, 2), ("accuracy", "macro_f1"), result.constant, strict=True
    ):
        for i, epsilon in enumerate(epsilons):
            color = colors(0.85 * i / max(1, len(epsilons) - 1))
            for name, (style, suffix) in names.items():
                shown = [
                    trial
                    for trial in result.trials
                    if trial.epsilon == epsilon and trial.aggregator == name
                ]
                means, errors = zip(*(_spread(trial, by) for trial in shown), strict=True)
                label = f"epsilon {epsilon:g}{suffix}"
                axes.errorbar(
                    [trial.num_teachers for trial in shown],
                    means,
                    yerr=None if None in errors else errors,
                    color=color,
                    linestyle=style,
                    marker=".",
                    capsize=2,
                    linewidth=1.4,
                    label=label,
                )
            choice = result.choice(epsilon)
            axes.plot(
                choice.num_teachers,
                choice.figures(by).mean(),
                "o",
                color=color,
                markersize=11,
                markerfacecolor="none",
            )
        axes.axhline(level, color="black", linestyle="--", linewidth=1, label="constant answer")
        log2_axis(axes, sizes, fontsize="small", rotation=45)
        axes.set(
            xlabel="teachers", title=f"{'macro-F1' if by == 'macro_f1' else by} of the student"
        )
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize="small")
    facts = result.facts
    figure.suptitle(
        f"{facts.num_records} records, {facts.num_labels} labels; circles are taken\n{NOTICE}",
        fontsize=9,
    )
    save_figure(path, figure, dpi=110)
