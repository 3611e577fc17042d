"""The sections of a page that may be published: pure functions of what is known of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pate.accounting.base import event_from_dict
from pate.accounting.charges import Charge, account
from pate.accounting.conditions import FIXED_BEFOREHAND, describe_budget
from pate.accounting.figures import epsilon_text, exact_text
from pate.accounting.relation import NeighboringRelation
from pate.accounting.statement_words import ledger_words
from pate.reporting.charts import line_chart
from pate.reporting.findings import DrawnFrontier, Findings, Learned, Released
from pate.reporting.page import (
    Bar,
    Block,
    Figure,
    Figures,
    Listing,
    Picture,
    Section,
    Table,
    Text,
    barred,
    barred_share,
    shown,
)
from pate.reporting.samples import data_uri, gallery
from pate.runs import Json
from pate.runs.released import ReleasedLabels

SUMMARY = {
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "mAP": "mAP",
    "balanced_accuracy": "balanced accuracy",
    "accuracy": "accuracy",
}
"""Figures over all labels, by their name in ``metrics.json``."""

_TITLES = {
    "student": "student",
    "released_constant": "constant answer released",
    "all_majority": "all-majority answer",
}
_PER_LABEL = {"f1": "F1", "average_precision": "AP", "recall": "recall", "specificity": "specificity"}
_COVERS = (
    "This covers the released labels, the student, and whatever else is computed from them, such as this page. It does"
    " not cover the folder private/, nor figures marked PRIVATE."
)


def public_sections(findings: Findings, num_samples: int) -> tuple[Section, ...]:
    """Return all sections that follow from public files, public and test records, and the ledger."""
    released = findings.released
    if released is None:
        return (_statement_to_come(findings),)
    sections = [
        _statement(released),
        _ledger(released),
        _answers(released.labels),
        _samples(findings, num_samples),
        _student(findings, released.labels),
        _labels(findings, released.labels),
        _curves(findings.learned),
        Section("frontier", "The frontier of simulated votes", frontier_blocks(findings.frontier)),
        _settings(findings),
    ]
    return tuple(section for section in sections if section.blocks)


def _statement_to_come(findings: Findings) -> Section:
    root = findings.run.root
    command = f"pate teachers vote --run {root} && pate label --run {root} --target_epsilon 1 --delta 1e-6"
    blocks = (
        Text("This run has no labels with a statement of what they cost, and so nothing to show."),
        Text("Once its teachers are fitted they vote, and then labels are released:", "next", command),
    )
    return Section("statement", "What is guaranteed", blocks)


def _statement(released: Released) -> Section:
    made, today = released.statement, released.today
    blocks: list[Block] = []
    if not today["private"]:
        # the first words of the statement
        blocks.append(Text(today.text.partition("\n")[0], "warning"))
    own = today["neighboring_relation"]
    figures = [
        Figure(
            f"ε = {epsilon_text(each['epsilon'])}",
            f"at δ = {exact_text(each['delta'])} under {name.upper()}",
            f"Neighbors are data sets where {each['neighbors']}.",
        )
        for name, each in sorted(today["guarantees"].items(), key=lambda item: item[0] != own)
    ]
    blocks += [Figures(tuple(figures)), Text(_COVERS)]
    later = len(today["releases"]) - len(made["releases"])
    if later:
        text = (
            f"The ledger has gained {later} release(s) since these labels were released. The figures above, and the"
            " statement below, count them too."
        )
        blocks += [Text(text, "warning"), Listing("The statement, as of today", today.text, open=True)]
    title = "The statement, as it was made with these labels" if later else "The statement"
    blocks.append(Listing(title, made.text, open=not later))
    return Section("statement", "What is guaranteed", tuple(blocks))


def _ledger(released: Released) -> Section:
    today, book = released.today, released.book
    whose = ledger_words(today.content)[0]
    blocks: list[Block] = [Text(f"{whose}, with all its releases. Each was reserved before its noise was drawn.")]
    if book is None:
        blocks.append(Text("The ledger is not at hand: these are its rows as the statement lists them.", "warning"))
    own = NeighboringRelation(today["neighboring_relation"])
    delta = today["costs"][own.value]["delta"]
    reserved = [_charge(release) for release in today["releases"]]
    rows = []
    for release, charge in zip(today["releases"], reserved, strict=True):
        when = str(release["at"]).replace("T", " ").replace("+00:00", " UTC")
        cells = (when, release["run"], f"{release['count']:,}", release["description"], _state(release))
        rows.append((str(release["release"]), *cells, _epsilon([charge], own, delta)))
    conditions: list[Block] = []
    if len(reserved) > 1:
        conditions.append(Text(f"What all of them cost together holds if {FIXED_BEFOREHAND}."))
        queries = sum(count for _, count in reserved)
        rows.append(("all", "", "", f"{queries:,}", "", "together", _epsilon(reserved, own, delta)))
    budget = None if book is None else describe_budget(book)
    if budget is not None:
        conditions.append(Text(budget))
    head = ("release", "when", "run", "queries", "mechanism", "state", f"ε reserved, {own.value.upper()}")
    table = Table(head, tuple(rows), wordy=(1, 2, 4, 5), strong=released.labels.release - 1)
    return Section("ledger", "The ledger", (*blocks, table, *conditions))


def _charge(release: Mapping[str, Any]) -> Charge:
    return {each: event_from_dict(release["events"][each.value]) for each in NeighboringRelation}, release["count"]


def _epsilon(charges: Sequence[Charge], relation: NeighboringRelation, delta: float) -> str:
    return epsilon_text(account(charges, relation).get_epsilon(delta=delta))


def _state(release: Mapping[str, Any]) -> str:
    state = "settled" if release["settled"] else "reserved, counts in full"
    state += ", for less than reserved" if release["realised"] is not None else ""
    return state + (", SEEDED: not private" if release["seeded"] else "")


def _answers(labels: ReleasedLabels) -> Section:
    num_queries, answered = len(labels.ids), int(labels.answered.sum())
    shares = labels.mask[labels.answered]
    ones = labels.labels[labels.answered].sum(axis=1)
    figures = [
        Figure(f"{num_queries:,}", "queries", f"public samples, each on {len(labels.label_names)} labels"),
        Figure(f"{labels.num_teachers:,}", "teachers", "the nominal number, a public constant"),
        Figure(f"{answered / num_queries:.1%}", "answered", f"{answered:,} queries"),
    ]
    if answered:
        of_all = f"of {len(labels.label_names)} on average, for each query that was answered"
        figures += [
            Figure(f"{shares.sum(axis=1).mean():.1f}", "labels released", of_all),
            Figure(f"{ones.mean():.1f}", "labels given", "of those released, on average"),
        ]
    blocks: list[Block] = [Figures(tuple(figures))]
    if labels.noise_std == 0:
        blocks.append(Text("What was released are the answers of a linear model, which was learnt from noisy sums."))
    elif labels.noise_std is not None:
        share = labels.noise_std / labels.num_teachers
        text = (
            f"Each released count of teachers carries noise of standard deviation {labels.noise_std:,.1f} votes,"
            f" {share:.0%} of the teachers. "
        )
        text += "A label by itself is often wrong; a student of all counts averages the noise." if share > 0.1 else ""
        blocks.append(Text(text.strip()))
    if labels.tiers is not None:
        tiers, counts = np.unique(labels.tiers, return_counts=True)
        rows = tuple((str(tier), f"{count:,}") for tier, count in zip(tiers.tolist(), counts.tolist(), strict=True))
        blocks.append(Table(("price tier", "queries"), rows))
    noise = tuple((name, value) for name, value in _flat(labels.aggregator["init_args"]))
    path = labels.aggregator["class_path"]
    blocks.append(Table((path.rpartition(".")[2], "setting"), noise, wordy=(1,)) if noise else Text(path))
    return Section("answers", "What was asked and answered", tuple(blocks))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested settings as pairs of a dotted name and a text; classes are named without their module."""
    if isinstance(value, Mapping) and {"class_path"} <= set(value):
        yield name, str(value["class_path"]).rpartition(".")[2]
        value = value.get("init_args", {})
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}".strip("."))
    elif isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value):
            yield from _flat(each, f"{name}[{number}]")
    else:
        yield name, f"{value:.6g}" if isinstance(value, float) else str(value)


def _samples(findings: Findings, num_samples: int) -> Section:
    shown_samples = gallery(findings, num_samples)
    if shown_samples is None:
        why = "are not at hand" if findings.has_data else "are not named by this run, whose votes came from elsewhere"
        return Section("samples", "Samples", (Text(f"The public records {why}: no samples are shown."),))
    text = (
        f"The first {len(shown_samples.samples)} queries, in the order in which they were asked, with the labels that"
        " were released of them."
    )
    if any(sample.predicted is not None for sample in shown_samples.samples):
        text += " Below them: the labels that the student gives."
    return Section("samples", "Samples", (Text(text), shown_samples))


def _student(findings: Findings, labels: ReleasedLabels) -> Section:
    learned, root = findings.learned, findings.run.root
    title = "The student"
    if learned is None:
        if not findings.has_data:
            needs = "A student needs the public and test records: `pate label --votes` with a data.yaml adds them."
            return Section("student", title, (Text(needs, "next"),))
        command = f"pate student fit --run {root} --model.network pate.models.Linear"
        return Section("student", title, (Text("No student has learned from these labels yet:", "next", command),))
    if not learned.metrics:
        untested = Text("The student was not measured yet:", "next", f"pate student test --run {root}")
        return Section("student", title, (untested,))
    blocks: list[Block] = []
    if learned.older:
        blocks.append(Text("These figures are older than the labels: they may be of a student of others.", "warning"))
    number = "the" if learned.num_test is None else f"{learned.num_test:,}"
    blocks.append(
        Text(
            f"Measured on {number} test records with their true labels, which neither teachers nor the student have"
            " seen. They are not among the private records, and so the statement does not protect them."
        )
    )
    blocks.append(summary_table(learned.metrics, _TITLES))
    return Section("student", title, tuple(blocks))


def summary_table(metrics: Json, titles: Mapping[str, str]) -> Table:
    """Return the figures over all labels of those in ``titles``, by their name in ``metrics``, that are there."""
    rows = [
        (title, *(shown(metrics[name].get(figure)) for figure in SUMMARY))
        for name, title in titles.items()
        if name in metrics
    ]
    return Table(("", *SUMMARY.values()), tuple(rows), strong=0)


def _labels(findings: Findings, labels: ReleasedLabels) -> Section:
    metrics = findings.learned.metrics if findings.learned is not None else {}
    student = metrics.get("student", {}).get("per_label", {})
    constant = metrics.get("released_constant", {}).get("per_label", {})
    answered, ones = labels.mask.sum(axis=0), (labels.labels * labels.mask).sum(axis=0)
    rows = []
    for j, name in enumerate(labels.label_names):
        share = float(ones[j] / answered[j]) if answered[j] else float("nan")
        row: list[str | Bar] = [name, f"{int(answered[j]):,}", barred_share(share)]
        if student:
            given, mark = student.get(name, {}), constant.get(name, {})
            row += [barred(given.get(figure), mark.get(figure)) for figure in _PER_LABEL]
        rows.append(tuple(row))
    head = ("label", "released", "share given", *(_PER_LABEL.values() if student else ()))
    text = "How often each label was released, and given where it was released."
    if student:
        text += " Then the student on the test records; a mark shows the constant answer that the release supports."
    return Section("labels", "Label by label", (Text(text), Table(head, tuple(rows))))


def _curves(learned: Learned | None) -> Section:
    rows = () if learned is None else learned.curves
    named = sorted({name for row in rows for name in row} - {"epoch", "step"})
    series = {name: [(row["epoch"], row[name]) for row in rows if name in row and "epoch" in row] for name in named}
    if series and max(len(points) for points in series.values()) < 2:
        last = ", ".join(f"{name} {shown(points[0][1])}" for name, points in series.items() if points)
        text = f"The student is the solution of one linear problem, found in one step: there is no curve ({last})."
        return Section("curves", "Learning", (Text(text),))
    charts = [
        line_chart("loss", "epoch", {name: points for name, points in series.items() if name.endswith("loss")}),
        line_chart("figures", "epoch", {name: points for name, points in series.items() if not name.endswith("loss")}),
    ]
    found = tuple(chart for chart in charts if chart is not None)
    held = Text("While it learned. What begins with val is measured on released labels that were held out.")
    return Section("curves", "Learning", (held, *found) if found else ())


def frontier_blocks(frontier: DrawnFrontier | None) -> tuple[Block, ...]:
    """Return the blocks that show a frontier, if there is one."""
    if frontier is None:
        return ()
    picture = Picture(data_uri(frontier.picture), frontier.text.partition("\n")[0])
    return (picture, Listing("The figures", frontier.text))


def _settings(findings: Findings) -> Section:
    listings = tuple(Listing(name, text) for name, text in findings.settings.items())
    return Section("settings", "Settings", listings)
