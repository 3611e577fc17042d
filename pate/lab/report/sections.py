"""The sections of a page on a run: pure functions of the findings, or of private files.

First the sections that may be published; then those that must not be, with figures of ``private/``
without privacy.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from pate._core.accounting.base import event_from_dict
from pate._core.accounting.charges import Charge, account, for_group_size
from pate._core.accounting.cost import (
    NeighboringRelation,
    format_epsilon,
    format_exact,
    format_guess,
)
from pate._core.accounting.statement_words import (
    FIXED_BEFOREHAND,
    by_relation,
    describe_budget,
    describe_reach,
    describe_state,
    ledger_words,
)
from pate._core.files.reading import Json, read_json
from pate._core.validation import FloatArray
from pate._labeling.runs.released import ReleasedLabels
from pate._labeling.runs.run import (
    METRICS,
    REFERENCES,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    VOTES_IMPORT,
    Run,
)
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.votes.kinds import Counts, rows_of
from pate.lab.report.page import (
    Bar,
    Block,
    Figure,
    Figures,
    Findings,
    Learned,
    Listing,
    Released,
    Section,
    Table,
    Text,
    barred,
    barred_share,
    gallery,
    histogram,
    line_chart,
    read_frontier,
    read_log,
    shown,
)

SUMMARY = {
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "mAP": "mAP",
    "roc_auc": "ROC AUC",
    "balanced_accuracy": "balanced accuracy",
    "accuracy": "accuracy",
}
"""Figures over all labels, by their name in ``metrics.json``."""

_TITLES = {
    "student": "student",
    "linear_student": "linear student beside it",
    "released_constant": "constant answer released",
    "all_majority": "best constant answer",
}
_PER_LABEL = {
    "f1": "F1",
    "average_precision": "AP",
    "roc_auc": "ROC AUC",
    "recall": "recall",
    "specificity": "specificity",
}
_COVERS = (
    "This covers the released labels, the student, and whatever else is computed from them,"
    " such as this page. It does"
    " not cover the folder private/, nor figures marked PRIVATE."
)


def public_sections(findings: Findings, num_samples: int) -> tuple[Section, ...]:
    """Return the sections from public files, public and test records, and the ledger."""
    released = findings.released
    if released is None:
        return _sections(("statement", "What is guaranteed", _statement_to_come(findings)))
    return _sections(
        ("statement", "What is guaranteed", _statement(released)),
        ("ledger", "The ledger", _ledger(released)),
        ("answers", "Queries and answers", _answers(released.labels)),
        ("samples", "Samples", _samples(findings, num_samples)),
        ("student", "The student", _student(findings)),
        ("labels", "Label by label", _labels(findings, released.labels)),
        ("curves", "Training", _curves(findings.learned)),
        ("frontier", "The frontier of simulated votes", findings.frontier),
        ("settings", "Settings", starmap(Listing, findings.settings.items())),
    )


def _sections(
    *contents: tuple[str, str, Iterable[Block]], private: bool = False
) -> tuple[Section, ...]:
    """Return sections of an anchor, a title and blocks, without those that have no blocks."""
    sections = (
        Section(anchor, title, tuple(blocks), private) for anchor, title, blocks in contents
    )
    return tuple(section for section in sections if section.blocks)


def _statement_to_come(findings: Findings) -> Iterator[Block]:
    yield Text("This run has no labels with a statement yet.")
    root = findings.run.root
    yield Text(
        "Once the teachers are trained, let them vote and release labels:",
        "next",
        f"pate teachers vote --run {root} && pate label --run {root} --target_epsilon 1"
        " --delta 1e-6",
    )


def _statement(released: Released) -> Iterator[Block]:
    statement, today = released.statement, released.today
    if not today["private"]:
        yield Text(today.text.partition("\n")[0], "warning")
    else:
        stated = by_relation(today.content, "guarantees")[0][1]
        if stated["unit"] is not None:
            most = format_guess(stated, today.total_variation)
            yield Text(
                f"An observer of everything published guesses right at most {most} of the time"
                f" which of two data sets was used, where {stated['neighbors']}."
                " Blind guesses are right 50% of the time."
            )
    figures = [
        Figure(
            f"ε = {format_epsilon(guarantee['epsilon'])}",
            f"at δ = {format_exact(guarantee['delta'])} under {name.upper()}",
            f"Neighbors are data sets where {guarantee['neighbors']}.",
        )
        for name, guarantee in by_relation(today.content, "guarantees")
        if guarantee["unit"] is not None
    ]
    missing = dict.fromkeys(g["missing"] for g in today["guarantees"].values() if g["missing"])
    if "world" in today.content:
        figures += [
            Figure(
                f"ε = {format_epsilon(figure['epsilon'])}",
                f"to the world, at δ = {format_exact(figure['delta'])} under {name.upper()}",
                "If all who took part drew their noise and tell nobody; the figures before hold"
                " against them.",
            )
            for name, figure in by_relation(today.content, "world")
        ]
    figures += [
        Figure(
            f"ε = {format_exact(row['epsilon'])}",
            f"at δ = {format_exact(row['delta'])}, of records of this budget",
            "Such a record counts with a weight, and no release of the ledger takes it further.",
        )
        for row in today.content.get("budgets", ())
    ]
    yield Figures(tuple(figures))
    if missing:
        yield Text(" ".join(missing), "warning")
    yield Text(_COVERS)
    later = len(today["releases"]) - len(statement["releases"])
    if later:
        yield Text(
            f"The ledger has gained {later} release(s) since these labels were released. The"
            " figures above, and the"
            " statement below, count them too.",
            "warning",
        )
        yield Listing("The statement, as of today", _wrapped(today.text), open=True)
    title = "The statement, as made with these labels" if later else "The statement"
    yield Listing(title, _wrapped(statement.text), open=not later)


def _ledger(released: Released) -> Iterator[Block]:
    today, book = released.today, released.book
    whose = ledger_words(today.content)[0]
    teachers = today["max_teachers_per_unit"]
    units = f" Epsilons are{describe_reach(teachers, teachers)}." if teachers > 1 else ""
    yield Text(
        f"{whose}, with all its releases. Each was reserved before its noise was drawn.{units}"
    )
    if book is None:
        yield Text(
            "The ledger is not available: these are its rows as listed in the statement.", "warning"
        )
    relation = NeighboringRelation(today["neighboring_relation"])
    delta = today["costs"][relation.value]["delta"]
    reserved = for_group_size([_charge(release) for release in today["releases"]], teachers)
    rows = []
    for release, charge in zip(today["releases"], reserved, strict=True):
        cells = (
            str(release["at"]).replace("T", " ").replace("+00:00", " UTC"),
            release["run"],
            f"{release['count']:,}",
            release["description"],
            describe_state(release),
        )
        rows.append((str(release["release"]), *cells, _epsilon([charge], relation, delta)))
    if len(reserved) > 1:
        queries = sum(count for _, count in reserved)
        whom = today["guarantees"][relation.value]["unit"]
        together = next(row for row in today["reach"] if row["teachers"] == teachers)
        total = "no total" if whom is None else format_epsilon(together[relation.value])
        rows.append(("all", "", "", f"{queries:,}", "", "together", total))
    head = (
        "release",
        "when",
        "run",
        "queries",
        "mechanism",
        "state",
        f"ε reserved, {relation.value.upper()}",
    )
    yield Table(head, tuple(rows), wordy=(1, 2, 4, 5), strong=released.labels.release - 1)
    if len(reserved) > 1:
        yield Text(f"What all of them cost together holds if {FIXED_BEFOREHAND}.")
    budget = None if book is None else describe_budget(book)
    if budget is not None:
        yield Text(budget)


def _charge(release: Mapping[str, Any]) -> Charge:
    return {
        relation: event_from_dict(release["events"][relation.value])
        for relation in NeighboringRelation
    }, release["count"]


def _epsilon(charges: Sequence[Charge], relation: NeighboringRelation, delta: float) -> str:
    return format_epsilon(account(charges, relation).get_epsilon(delta=delta))


def _wrapped(text: str) -> str:
    """Return a text with its lines of more than 100 columns continued below, indented."""
    lines: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        lines += wrap(line, 100, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def _teachers(labels: ReleasedLabels) -> Figure:
    number = labels.facts["num_teachers"]
    if number is None:
        return Figure(
            "1", "teacher for each", "their number is private, and was counted with noise"
        )
    return Figure(f"{number:,}", "teachers", "the nominal number, a public constant")


def _answers(labels: ReleasedLabels) -> Iterator[Block]:
    num_queries, answered = len(labels.ids), int(labels.answered.sum())
    figures = [
        Figure(
            f"{num_queries:,}",
            "queries",
            f"public samples, each on {len(labels.label_names)} labels",
        ),
        _teachers(labels),
        Figure(f"{answered / num_queries:.1%}", "answered", f"{answered:,} queries"),
    ]
    if answered:
        shares = labels.mask[labels.answered].sum(axis=1)
        ones = labels.labels[labels.answered].sum(axis=1)
        figures += [
            Figure(
                f"{shares.mean():.1f}",
                "labels released",
                f"of {len(labels.label_names)} on average, per answered query",
            ),
            Figure(f"{ones.mean():.1f}", "positive labels", "of those released, on average"),
        ]
    yield Figures(tuple(figures))
    if labels.unlike is not None:
        yield Text(labels.unlike)
    if labels.linear:
        yield Text(
            "What was released are the answers of a linear model, which was learned from noisy"
            " sums."
        )
    elif labels.noise_std is not None:
        share = labels.noise_std / labels.num_teachers
        text = (
            f"Each count has noise of standard deviation {labels.noise_std:,.1f} votes,"
            f" {share:.0%} of the teachers."
        )
        if share > 0.1:
            text += " A single label is often wrong; a student of all counts averages the noise."
        yield Text(text)
    if labels.tiers is not None:
        tiers, counts = np.unique(labels.tiers, return_counts=True)
        rows = zip(tiers.tolist(), counts.tolist(), strict=True)
        yield Table(
            ("price tier", "queries"), tuple((str(tier), f"{count:,}") for tier, count in rows)
        )
    noise = tuple(_flat(labels.aggregator["init_args"]))
    path = labels.aggregator["class_path"]
    if noise:
        yield Table((path.rpartition(".")[2], "setting"), noise, wordy=(1,))
    else:
        yield Text(path)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as pairs of dotted name and text, with short names of classes."""
    if isinstance(value, Mapping) and {"class_path"} <= set(value):
        yield name, str(value["class_path"]).rpartition(".")[2]
        value = value.get("init_args", {})
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}".strip("."))
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
        for number, item in enumerate(value):
            yield from _flat(item, f"{name}[{number}]")
    else:
        yield name, f"{value:.6g}" if isinstance(value, float) else str(value)


def _samples(findings: Findings, num_samples: int) -> Iterator[Block]:
    shown_samples = gallery(findings, num_samples)
    if shown_samples is None:
        why = (
            "are not available"
            if findings.has_data
            else "are unknown to this run, whose votes were imported"
        )
        yield Text(f"The public records {why}: no samples are shown.")
        return
    text = f"The first {len(shown_samples.samples)} queries with their released labels."
    if any(sample.predicted is not None for sample in shown_samples.samples):
        text += " Below them: the student's."
    yield Text(text)
    yield shown_samples


def _student(findings: Findings) -> Iterator[Block]:
    learned, root = findings.learned, findings.run.root
    if learned is None and not findings.has_data:
        yield Text(
            "A student needs the public and test records: `pate label --votes` with a data.yaml"
            " adds them.",
            "next",
        )
    elif learned is None:
        yield Text(
            "No student has been trained on these labels yet:",
            "next",
            f"pate student fit --run {root} --model.network pate.models.Linear",
        )
    elif not learned.metrics and learned.num_test == 0:
        yield Text("The data have no test records, by which the student would be measured.")
    elif not learned.metrics:
        yield Text(
            "The student has not been tested yet:", "next", f"pate student test --run {root}"
        )
    else:
        if learned.older:
            yield Text(
                "These figures are older than the labels: they may be of a student of earlier"
                " ones.",
                "warning",
            )
        number = "the" if learned.num_test is None else f"{learned.num_test:,}"
        yield Text(
            f"Measured on {number} test records with true labels, seen by neither teachers nor"
            " student. They are not"
            " private records: the statement does not protect them."
        )
        yield from _summary(learned.metrics, _TITLES)


def _summary(metrics: Json, titles: Mapping[str, str]) -> Iterator[Block]:
    """Yield tables of figures over all labels, one for each purpose of the cuts.

    Args:
        metrics: the content of ``metrics.json``.
        titles: the titles of the rows, by the names in ``metrics``; absent ones are left out.
    """
    chosen: str = metrics["optimize"]
    figures_of = {title: metrics[name] for name, title in titles.items() if name in metrics}

    def table(figures: Mapping[str, Json], columns: Iterable[str]) -> Table:
        return Table(
            ("", *(SUMMARY[column] for column in columns)),
            tuple(
                (title, *(shown(values.get(column)) for column in columns))
                for title, values in figures.items()
            ),
            strong=0,
        )

    yield Text(f"By cuts that serve {SUMMARY[chosen]}, as was chosen:")
    yield table(figures_of, SUMMARY)
    purposes = next(iter(figures_of.values()))["at_cut"]
    for purpose in purposes:
        if purpose != chosen:
            yield Text(f"By cuts that serve {SUMMARY[purpose]}:")
            yield table(
                {title: values["at_cut"][purpose] for title, values in figures_of.items()}, purposes
            )


def _labels(findings: Findings, labels: ReleasedLabels) -> Iterator[Block]:
    metrics = findings.learned.metrics if findings.learned is not None else {}
    student = metrics.get("student", {}).get("per_label", {})
    constant = metrics.get("released_constant", {}).get("per_label", {})
    answered, ones = labels.mask.sum(axis=0), (labels.labels * labels.mask).sum(axis=0)
    rows = []
    for j, name in enumerate(labels.label_names):
        share = float(ones[j] / answered[j]) if answered[j] else float("nan")
        row: list[str | Bar] = [name, f"{int(answered[j]):,}", barred_share(share)]
        if student:
            metric, mark = student.get(name, {}), constant.get(name, {})
            row += [barred(metric.get(figure), mark.get(figure)) for figure in _PER_LABEL]
        rows.append(tuple(row))
    text = "How often each label was released, and how often it was positive where released."
    if student:
        text += (
            " Then the student on the test records; marks: the constant answer that the"
            " release supports."
        )
    yield Text(text)
    figures = _PER_LABEL.values() if student else ()
    yield Table(("label", "released", "positive", *figures), tuple(rows))


def _curves(learned: Learned | None) -> Iterator[Block]:
    rows = () if learned is None else learned.curves
    charts: dict[str, dict[str, list[tuple[float, float]]]] = {"loss": {}, "figures": {}}
    for name in sorted({name for row in rows for name in row} - {"epoch", "step"}):
        points = [(row["epoch"], row[name]) for row in rows if name in row and "epoch" in row]
        if len(points) > 1:
            charts["loss" if name.endswith("loss") else "figures"][name] = points
    drawn = [line_chart(title, "epoch", series) for title, series in charts.items()]
    if any(drawn):
        yield Text("During training; val: on held-out released labels.")
        yield from filter(None, drawn)


_BINS = 20
_PRIVATE_TITLES = {
    "student": "student",
    "teacher_majority": "noiseless teacher majority",
    "linear_fit": "linear fit to private records",
    "true_label_student": "true-label student",
}
_RIVAL_FIGURES = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "mAP": "mAP",
    "macro_f1_at_its_cut": "macro-F1, cut for it",
    "micro_f1_at_its_cut": "micro-F1, cut for it",
}
_LOSSES = ("max", "q90", "median", "q10", "min")


def private_sections(findings: Findings) -> tuple[Section, ...]:
    """Return a section for each private figure that the run has, all of them marked. PRIVATE.

    Raises:
        ValueError: if votes are missing or damaged.
    """
    run = findings.run
    return _sections(
        ("votes", "The teachers' votes", _votes(run, findings.released)),
        ("references", "Without privacy", _references(findings)),
        (
            "frontier-of-votes",
            "The frontier",
            read_frontier(run.private / "frontier", private=True),
        ),
        ("rivals", "Rivals", _rivals(run.private / "rivals" / "rivals.csv")),
        ("losses", "Training of the teachers", _losses(run)),
        ("private-settings", "Private settings", _private_settings(run)),
        private=True,
    )


def _votes(run: Run, released: Released | None) -> Iterator[Block]:
    if not (run.is_finished(VOTES_IMPORT) or run.is_finished(TEACHERS_VOTE)):
        return
    store = finished_votes(run)
    kind = store.manifest().kind
    if not issubclass(kind, Counts):
        yield Text(f"{kind.__name__}: there are no votes to count.")
        return
    rows = (
        None if released is None else rows_of(released.labels.ids, np.array(store.manifest().ids))
    )
    votes, _ = store.load(Counts, rows=rows)
    shares: FloatArray = votes.counts / votes.num_teachers
    agreement = np.maximum(shares, 1 - shares)
    which = "samples" if released is None else "queries"
    figures = [
        Figure(
            f"{agreement.mean():.1%}", "agreement", "average share of the teachers in the majority"
        ),
        Figure(
            f"{(agreement < 0.6).mean():.1%}", "undecided", "of votes, with less than 60% agreement"
        ),
    ]
    majority = 2 * votes.counts > votes.num_teachers
    if released is not None and released.labels.mask.any():
        correct = (released.labels.labels == majority)[released.labels.mask]
        figures.append(
            Figure(
                f"{correct.mean():.1%}",
                "correct",
                "of released labels equal the noiseless majority",
            )
        )
    yield Text(f"Counts of votes on {len(shares):,} {which}, without noise.")
    yield Figures(tuple(figures))
    counts, edges = np.histogram(shares, bins=_BINS, range=(0.0, 1.0))
    yield histogram(
        "votes", "share of the teachers voting for a label", counts.astype(np.float64), edges
    )
    head: tuple[str, ...] = ("label", "positive by majority", "agreement")
    columns: list[FloatArray] = [majority.mean(axis=0), agreement.mean(axis=0)]
    if released is not None:
        head = (*head, "released equal to it")
        mask = released.labels.mask
        correct = ((released.labels.labels == majority) & mask).sum(axis=0)
        columns.append(correct / np.where(mask.any(axis=0), mask.sum(axis=0), np.nan))
    yield Table(
        head,
        tuple(
            (name, *(barred_share(float(column[j])) for column in columns))
            for j, name in enumerate(store.manifest().label_names)
        ),
    )


def _references(findings: Findings) -> Iterator[Block]:
    path = findings.run.root / REFERENCES.outputs[0] / METRICS
    if not path.is_file():
        return
    metrics: Json = read_json(path.read_text())
    if findings.learned is not None:
        metrics = findings.learned.metrics | metrics
    yield Text("References for the student on the test records, computed without privacy.")
    yield from _summary(metrics, _PRIVATE_TITLES)
    per_label = {
        title: metrics[name]["per_label"]
        for name, title in _PRIVATE_TITLES.items()
        if name in metrics
    }
    rows = (
        (name, *(barred(labels.get(name, {}).get("f1")) for labels in per_label.values()))
        for name in next(iter(per_label.values()))
    )
    yield Table(("F1", *per_label), tuple(rows))


def _rivals(path: Path) -> Iterator[Block]:
    if not path.is_file():
        return
    with path.open(newline="") as file:
        scores = list(csv.DictReader(line for line in file if not line.startswith("#")))
    figures = ("epsilon", *_RIVAL_FIGURES)
    yield Text(
        "Private learning without votes on the same records, and references without privacy."
    )
    yield Table(
        ("rival", "ε", *_RIVAL_FIGURES.values()),
        tuple(
            (score["rival"], *(shown(float(score[figure])) for figure in figures))
            for score in scores
        ),
    )


def _losses(run: Run) -> Iterator[Block]:
    path = run.root / TEACHERS_FIT.outputs[0] / "PRIVATE_losses" / "metrics.csv"
    if not path.is_file():
        return
    rows = list(read_log(path))
    series = {name: [(row["step"], row[name]) for row in rows if name in row] for name in _LOSSES}
    chart = line_chart("loss over all teachers", "step", series)
    if chart is not None:
        yield chart


def _private_settings(run: Run) -> Iterator[Block]:
    yield Text("The location of the records and their ledger, and the settings of training.")
    for path in (run.data_config, *sorted(run.private.glob("*.yaml"))):
        yield Listing(path.name, path.read_text())
