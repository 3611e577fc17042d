"""The command `pate report`: a page that may be published.

The figures of the page come first, which the template `sections.html` sets in words.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import sqrt
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pate._core.accounting.charges import account, for_group_size
from pate._core.accounting.cost import (
    NeighboringRelation,
    format_epsilon,
    format_exact,
    format_guess,
)
from pate._core.accounting.statement import (
    FIXED_BEFOREHAND,
    by_relation,
    describe_budget,
    describe_reach,
    describe_state,
    ledger_words,
)
from pate._core.files.reading import Json
from pate._core.files.writing import write_text
from pate._core.package import __version__
from pate._core.validation import require_count
from pate._labeling.commands.parsing import run_command
from pate._labeling.commands.run import describe_verdict
from pate._labeling.runs.released import ReleasedLabels
from pate._labeling.runs.run import REPORT
from pate.lab.report.page import (
    INK,
    Bar,
    Findings,
    Learned,
    Picture,
    Released,
    Table,
    barred,
    chart,
    line_chart,
    read_findings,
    samples_of,
    shown,
)

SECTIONS = {
    "labels": "Label by label",
    "quality": "Calibration and precision",
    "statement": "What is guaranteed",
    "samples": "Samples",
    "student": "The student",
    "answers": "Queries and answers",
    "ledger": "The ledger",
    "curves": "Training",
    "settings": "Settings",
}
"""Titles of sections by their anchor, a macro of the template."""
SUMMARY = {
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "mAP": "mAP",
    "roc_auc": "ROC AUC",
    "balanced_accuracy": "balanced accuracy",
    "accuracy": "accuracy",
}
"""Figures over all labels, by their name in ``metrics.json``."""

_DEVIATIONS = 1.96  # deviations of a normal law within which 95% of it lie


def words_of(findings: Findings, num_samples: int) -> dict[str, Any]:
    """Return all that the template's macros name: the findings, and functions of figures."""
    return {
        "findings": findings,
        "by_relation": by_relation,
        "format_guess": format_guess,
        "ledger_words": ledger_words,
        "describe_reach": describe_reach,
        "describe_budget": describe_budget,
        "FIXED_BEFOREHAND": FIXED_BEFOREHAND,
        "ledger_table": ledger_table,
        "tier_table": tier_table,
        "samples_shown": samples_of(findings, num_samples),
        "SUMMARY": SUMMARY,
        "summaries": summaries,
        "label_table": label_table,
        "released_table": released_table,
        "quality_charts": quality_charts,
        "verdict": verdict,
        "training_charts": training_charts,
    }


def ledger_table(released: Released) -> Table:
    """Return the releases of a ledger, each with the epsilon that was reserved for it."""
    today = released.today
    relation = NeighboringRelation(today["neighboring_relation"])
    teachers, delta = today["max_teachers_per_unit"], today["costs"][relation.value]["delta"]
    entries = today.book.entries
    listed = [entries[release["release"] - 1] for release in today["releases"]]
    reserved = for_group_size([(entry.events, entry.count) for entry in listed], teachers)
    rows = [
        (
            str(release["release"]),
            str(release["at"]).replace("T", " ").replace("+00:00", " UTC"),
            release["run"],
            f"{release['count']:,}",
            release["description"],
            describe_state(release),
            format_epsilon(account([charge], relation).get_epsilon(delta=delta)),
        )
        for release, charge in zip(today["releases"], reserved, strict=True)
    ]
    if len(entries) > 1:
        queries = sum(entry.count for entry in entries)
        whom = today["guarantees"][relation.value]["unit"]
        together = next(row for row in today["reach"] if row["teachers"] == teachers)
        total = "no total" if whom is None else format_epsilon(together[relation.value])
        rows.append(("all", "", "", f"{queries:,}", "", "together", total))
    reserved_under = f"ε reserved, {relation.value.upper()}"
    head = ("release", "when", "run", "queries", "mechanism", "state", reserved_under)
    return Table(
        head, rows, wordy=(1, 2, 4, 5), strong=listed.index(entries[released.labels.release - 1])
    )


def wrapped(text: str) -> str:
    """Return a text with its lines of more than 100 columns continued below, indented."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        lines += wrap(line, 100, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def tier_table(labels: ReleasedLabels) -> Table | None:
    """Return the numbers of queries by price tier. None if all cost the same."""
    if labels.tiers is None:
        return None
    tiers, counts = np.unique(labels.tiers, return_counts=True)
    rows = [(str(tier), f"{count:,}") for tier, count in zip(tiers, counts, strict=True)]
    return Table(("price tier", "queries"), rows)


def summaries(metrics: Json, titles: Mapping[str, str]) -> Iterator[tuple[str, Table]]:
    """Yield tables of figures over all labels with a heading, one for each purpose of the cuts.

    Args:
        metrics: the content of ``metrics.json``.
        titles: the titles of the rows, by the names in ``metrics``; absent ones are left out.
    """
    chosen: str = metrics["optimize"]
    figures_of = {title: metrics[name] for name, title in titles.items() if name in metrics}

    def table(figures: Mapping[str, Json], columns: Iterable[str]) -> Table:
        return Table(
            ("", *(SUMMARY[column] for column in columns)),
            [
                (title, *(shown(values.get(column)) for column in columns))
                for title, values in figures.items()
            ],
            strong=0,
        )

    yield f"By cuts that serve {SUMMARY[chosen]}, as was chosen:", table(figures_of, SUMMARY)
    purposes = next(iter(figures_of.values()))["at_cut"]
    for purpose in purposes:
        if purpose != chosen:
            at_cut = {title: values["at_cut"][purpose] for title, values in figures_of.items()}
            yield f"By cuts that serve {SUMMARY[purpose]}:", table(at_cut, purposes)


def verdict(learned: Learned | None) -> str | None:
    """Return a line on the student beside the best constant answer. None without test figures."""
    if learned is None or not learned.metrics:
        return None
    return describe_verdict(learned.metrics["optimize"], learned.metrics)


def released_table(labels: ReleasedLabels) -> Table:
    """Return how often each label was released, and how often it was positive there."""
    answered, ones = labels.mask.sum(axis=0), (labels.labels * labels.mask).sum(axis=0)
    shares = ones / np.where(answered, answered, np.nan)
    rows = [
        (name, f"{int(count):,}", barred(float(share), f"{share:.0%}"))
        for name, count, share in zip(labels.label_names, answered, shares, strict=True)
    ]
    return Table(("label", "released", "positive"), rows)


def label_table(metrics: Json) -> Table:
    """Return the test figures of a student for each label, with a mark at weak ones.

    A label is weak if the interval of its average precision reaches down to the average precision
    of constant answers, which is the share of records that have it, or if none of these is found.
    """
    rows = []
    constant = metrics["all_majority"]["per_label"]
    for name, label in metrics["student"]["per_label"].items():
        precision, number = label["average_precision"], label["support"]
        low, high = interval(precision, number)
        blind = constant[name]["average_precision"]
        weak = number and (low <= blind or not label["recall"])
        text = f"{precision:.3f} ({low:.2f} to {high:.2f})" if number else ""
        figures = [shown(label[each] if number else None) for each in ("recall", "precision", "f1")]
        bar = barred(precision if number else float("nan"), text, blind)
        rows.append((name, f"{number:,.0f}", *figures, bar, "weak" if weak else ""))
    head = ("label", "support", "recall", "precision", "F1", "average precision", "note")
    return Table(head, rows, wordy=(6,))


def interval(share: float, number: float) -> tuple[float, float]:
    """Return the 95% interval of Wilson (1927) of a share of so many records.

    An average precision is a mean over the records with a label of figures in [0, 1], which vary no
    more than records that count as 0 or 1 (Boyd, Eng & Page (2013)).

    >>> interval(0.5, 100)
    (0.40382..., 0.59617...)
    """
    if not number:
        return 0.0, 1.0
    square = _DEVIATIONS**2 / number
    center, width = share + square / 2, sqrt(square * share * (1 - share) + square**2 / 4)
    return (center - width) / (1 + square), (center + width) / (1 + square)


def quality_charts(metrics: Json, names: Sequence[str]) -> list[Picture]:
    """Return a calibration plot, and a plot of precision against recall, of a student."""
    curves = metrics["student"]["curves"]
    mean, share, number = np.array(curves["calibration"]).T

    def calibration(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], linestyle=":", color=INK, linewidth=1)
        axes.plot(mean, share)
        axes.scatter(mean, share, s=10 + 90 * number / number.max())
        axes.set(ylabel="share that have the label", xlim=(-0.02, 1.02), ylim=(-0.02, 1.05))

    def precision(axes: Any) -> None:
        for name, row in zip(("all labels", *names), curves["precision"], strict=False):
            wide = 2.2 if name == "all labels" else 1.0
            recalls = np.arange(1, len(row) + 1) / (len(row) or 1)
            style = {"color": INK} if wide > 1 else {}
            axes.plot(recalls, row, label=name, linewidth=wide, **style)
        axes.set(ylabel="precision", xlim=(-0.02, 1.02), ylim=(-0.02, 1.05))
        axes.legend(loc="lower left")

    return [
        chart(
            "Calibration: the share of records that have a label, against the probability that the"
            " student gives it, by tenths, all labels pooled. The area of a dot is the number of"
            " its answers; on the dotted line probabilities are right.",
            "probability",
            calibration,
            _SQUARE,
        ),
        chart(
            "Precision against recall: the share of right labels among the surest answers that"
            " find so many of the records with a label.",
            "recall",
            precision,
            _SQUARE,
        ),
    ]


_SQUARE = (4.4, 3.4)


def training_charts(learned: Learned | None) -> list[Picture]:
    """Return charts of the losses and of other figures of a student's training."""
    rows = () if learned is None else learned.curves
    series: dict[str, dict[str, list[tuple[float, float]]]] = {"loss": {}, "figures": {}}
    for name in sorted({name for row in rows for name in row} - {"epoch", "step"}):
        points = [(row["epoch"], row[name]) for row in rows if name in row and "epoch" in row]
        if len(points) > 1:
            series["loss" if name.endswith("loss") else "figures"][name] = points
    charts = (line_chart(title, "epoch", lines) for title, lines in series.items())
    return [each for each in charts if each is not None]


def report(run: Path, *, output: Path | None = None, num_samples: int = 20) -> None:
    """Write one page of HTML on a run.

    It shows the privacy statement, the ledger, queries and answers, samples with their labels, the
    student's figures and curves, and the settings. It follows only from public files, public and
    test records and the ledger, and may be published.

    Args:
        run: folder of the run, at any stage.
        output: the file; None for public/report.html in the run.
        num_samples: number of queries shown with their labels.

    Raises:
        ValueError: as `make_page` does.
    """
    path = run / REPORT if output is None else output
    write_text(path, make_page(run, num_samples=num_samples))
    print(path)


main = partial(run_command, "report", report)


def make_page(root: Path, *, num_samples: int = 20) -> str:
    """Return the page on the run in ``root`` as HTML, at whatever stage it is. Changes nothing.

    It has no scripts or addresses, and every text of the run is escaped.

    Args:
        root: the run's folder.
        num_samples: number of queries that are shown with their labels.

    Raises:
        ValueError: if ``root`` is no run, or its files are damaged or do not belong together.
    """
    require_count(0, num_samples=num_samples)
    findings = read_findings(root)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
    environment.filters |= {"epsilon": format_epsilon, "exact": format_exact, "wrapped": wrapped}
    environment.tests["bar"] = lambda cell: isinstance(cell, Bar)
    words = words_of(findings, num_samples)
    macros: Any = environment.get_template("sections.html").make_module(words)
    titles = {"statement": SECTIONS["statement"]} if findings.released is None else SECTIONS
    sections = []
    for anchor, title in titles.items():
        if (content := getattr(macros, anchor)()).strip():
            sections.append({"anchor": anchor, "title": title, "content": content})
    return environment.get_template("page.html").render(
        title=root.resolve().name,
        summary=macros.headline(),
        sections=sections,
        version=__version__,
    )
