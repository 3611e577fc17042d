"""The sections of a page that must not be published: figures of ``private/``, without privacy."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pate._files import Json, read_json
from pate._reporting.findings import Findings, Released, read_frontier, read_log
from pate._reporting.page import (
    Block,
    Figure,
    Figures,
    Listing,
    Section,
    Table,
    Text,
    barred,
    barred_share,
    histogram,
    line_chart,
    shown,
)
from pate._reporting.sections import frontier_blocks, summary_blocks
from pate._runs import METRICS, REFERENCES, TEACHERS_FIT, TEACHERS_VOTE, VOTES_IMPORT, Run
from pate._validation import FloatArray
from pate._votes import Counts, rows_of
from pate._votes.store import finished_votes

_BINS = 20
_TITLES = {
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
    contents = {
        "The teachers' votes": _votes(run, findings.released),
        "Without privacy": _references(findings),
        "The frontier": frontier_blocks(read_frontier(run.private / "frontier", private=True)),
        "Rivals": _rivals(run.private / "rivals" / "rivals.csv"),
        "Training of the teachers": _losses(run),
        "Private settings": _settings(run),
    }
    anchors = ("votes", "references", "frontier-of-votes", "rivals", "losses", "private-settings")
    sections = [
        Section(anchor, title, tuple(blocks), private=True)
        for anchor, (title, blocks) in zip(anchors, contents.items(), strict=True)
    ]
    return tuple(section for section in sections if section.blocks)


def _votes(run: Run, released: Released | None) -> Iterator[Block]:
    if not (run.is_finished(VOTES_IMPORT) or run.is_finished(TEACHERS_VOTE)):
        return
    store = finished_votes(run)
    kind = store.manifest().kind
    if not issubclass(kind, Counts):
        yield Text(f"{kind.__name__}: there are no votes to count.")
        return
    ids = np.array(store.manifest().ids)
    rows = None if released is None else rows_of(released.labels.ids, ids)
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
    names = store.manifest().label_names
    yield Table(
        head,
        tuple(
            (name, *(barred_share(float(column[j])) for column in columns))
            for j, name in enumerate(names)
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
    yield from summary_blocks(metrics, _TITLES)
    per_label = {
        title: metrics[name]["per_label"] for name, title in _TITLES.items() if name in metrics
    }
    names = next(iter(per_label.values()))
    rows = [
        (name, *(barred(labels.get(name, {}).get("f1")) for labels in per_label.values()))
        for name in names
    ]
    yield Table(("F1", *per_label), tuple(rows))


def _rivals(path: Path) -> Iterator[Block]:
    if not path.is_file():
        return
    with path.open(newline="") as file:
        scores = list(csv.DictReader(line for line in file if not line.startswith("#")))
    figures = ("epsilon", *_RIVAL_FIGURES)
    rows = [
        (score["rival"], *(shown(float(score[figure])) for figure in figures)) for score in scores
    ]
    yield Text(
        "Private learning without votes on the same records, and references without privacy."
    )
    yield Table(("rival", "ε", *_RIVAL_FIGURES.values()), tuple(rows))


def _losses(run: Run) -> Iterator[Block]:
    path = run.root / TEACHERS_FIT.outputs[0] / "PRIVATE_losses" / "metrics.csv"
    if not path.is_file():
        return
    rows = list(read_log(path))
    series = {name: [(row["step"], row[name]) for row in rows if name in row] for name in _LOSSES}
    chart = line_chart("loss over all teachers", "step", series)
    if chart is not None:
        yield chart


def _settings(run: Run) -> Iterator[Block]:
    yield Text("The location of the records and their ledger, and the settings of training.")
    for path in (run.data_config, *sorted(run.private.glob("*.yaml"))):
        yield Listing(path.name, path.read_text())
