"""The content of a run's public files, its public records and its ledger.

Nothing in ``private/`` is read here.
"""

import csv
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pate._data_file import read_locations
from pate._files import Json, read_arrays, read_json
from pate._runs import LABEL, METRICS, STUDENT, Run, labels_file
from pate._runs.released import ReleasedLabels
from pate._validation import IntArray, StrArray, require
from pate._votes import rows_of
from pate.accounting import LedgerSnapshot, Statement, read_ledger
from pate.data import DataSource, Features, Role


@dataclass(frozen=True, eq=False)
class Released:
    """The labels of a run with their statement, which agree.

    Attributes:
        labels: the released labels.
        statement: the statement that was made with them.
        today: the same statement on all releases now in the ledger.
        book: the content of the ledger; None if it is not available.
        features: features of the queried samples, in the order of the queries; None if they are not
            available.
    """

    labels: ReleasedLabels
    statement: Statement
    today: Statement
    book: LedgerSnapshot | None
    features: Features | None


@dataclass(frozen=True, eq=False)
class Learned:
    """A student's test metrics and training curves.

    Attributes:
        metrics: figures on the test set, of the student and of constant answers.
        num_test: number of test records; None if they are not available.
        curves: rows of the log of training, figures by name.
        older: whether the metrics are older than the labels.
    """

    metrics: Json
    num_test: int | None
    curves: tuple[dict[str, float], ...]
    older: bool


@dataclass(frozen=True, eq=False)
class DrawnFrontier:
    """The output of `pate frontier`: its picture as the bytes of a PNG, and its figures as text."""

    picture: bytes
    text: str


@dataclass(frozen=True, eq=False)
class Findings:
    """All that a report shows of a run.

    Attributes:
        run: the run.
        released: its labels and their statement; None before `pate label`.
        learned: its student; None before `pate student fit`.
        predictions: labels in {0, 1} by the student for queried samples, by query row; empty if it
            predicted none.
        frontier: a frontier of simulated votes in ``public/frontier``, if one was drawn there.
        settings: saved settings as text, by the name of their file.
        has_data: whether `data.yaml` names public and test records.
    """

    run: Run
    released: Released | None
    learned: Learned | None
    predictions: dict[int, IntArray]
    frontier: DrawnFrontier | None
    settings: dict[str, str]
    has_data: bool


def read_findings(root: Path) -> Findings:
    """Read the public files of the run in ``root``, its public records and its ledger.

    Records or a ledger that are not available are left out, with a line on stderr that says why.

    Raises:
        ValueError: if ``root`` is no run, a file is damaged, an epsilon of the statement does not
            follow from its events, or the statement belongs to other labels or another ledger.
    """
    source, ledger = read_locations(root)
    run = Run(root, ledger=ledger)
    released = _read_released(run, source)
    learned = _read_learned(run, source)
    return Findings(
        run=run,
        released=released,
        learned=learned,
        predictions={}
        if released is None or learned is None
        else _read_predictions(run, released.labels),
        frontier=read_frontier(run.public / "frontier", private=False),
        settings={
            name.name: (root / name).read_text()
            for name in (LABEL.config, STUDENT.config)
            if (root / name).is_file()
        },
        has_data=source is not None,
    )


def _read_released(run: Run, source: DataSource | None) -> Released | None:
    path, stated = labels_file(run), run.root / LABEL.outputs[1]
    if not stated.is_file():
        # a release without its statement is not shown
        return None
    labels = ReleasedLabels.read(path)
    statement = Statement.read(stated)
    statement.verify(released=path, facts=labels.facts)
    book, today = None, statement
    if run.ledger_path.is_file():
        book = read_ledger(run.ledger_path)
        today = statement.today(book)
    else:
        print(
            f"pate report: the ledger is not at {run.ledger_path}; the statement lists its releases",
            file=sys.stderr,
        )
    return Released(labels, statement, today, book, _public_features(source, labels.ids))


def _public_features(source: DataSource | None, ids: StrArray) -> Features | None:
    if source is None:
        return None
    try:
        public = source.load(Role.PUBLIC)
        return public.features.select(rows_of(ids, public.ids))
    except (OSError, ValueError) as error:
        print(f"pate report: no samples are shown: {error}", file=sys.stderr)
        return None


def _read_learned(run: Run, source: DataSource | None) -> Learned | None:
    folder = run.root / STUDENT.outputs[0]
    if not folder.is_dir():
        return None
    path, num_test, older = folder / METRICS, None, False
    metrics: Json = {}
    if path.is_file():
        metrics = read_json(path.read_text())
        older = (
            labels_file(run).is_file() and path.stat().st_mtime < labels_file(run).stat().st_mtime
        )
    if metrics and source is not None:
        try:
            num_test = len(source.load(Role.TEST))
        except (OSError, ValueError) as error:
            print(f"pate report: the test records are not counted: {error}", file=sys.stderr)
    logs = sorted(
        folder.glob("logs/*/metrics.csv"),
        key=lambda path: (len(path.parent.name), path.parent.name),
    )
    curves = tuple(read_log(logs[-1])) if logs else ()
    return Learned(metrics, num_test, curves, older)


def read_log(path: Path) -> Iterable[dict[str, float]]:
    """Yield the rows of a ``metrics.csv``, figures by name; empty cells are left out."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield {name: float(text) for name, text in row.items() if text}


def read_frontier(folder: Path, *, private: bool) -> DrawnFrontier | None:
    """Return the frontier in ``folder``, or None.

    Raises ``ValueError`` if it is of real votes and not ``private``.
    """
    picture, text = folder / "frontier.png", folder / "frontier.txt"
    if not (picture.is_file() and text.is_file()):
        return None
    frontier = DrawnFrontier(picture.read_bytes(), text.read_text())
    require(
        private or not frontier.text.startswith("PRIVATE"),
        "a frontier of simulated votes in public/, not one of real votes",
        frontier=str(folder),
    )
    return frontier


def _read_predictions(run: Run, labels: ReleasedLabels) -> dict[int, IntArray]:
    """Return the student's predictions by row of the queries; empty for other samples."""
    path = run.root / STUDENT.outputs[0] / "predictions.npz"
    if not path.is_file():
        return {}
    arrays = read_arrays(
        path,
        ("ids", "labels", "label_names"),
        unread=("probabilities",),
        what="predictions of a student",
    )
    if tuple(arrays["label_names"].tolist()) != labels.label_names:
        return {}
    rows = {str(name): row for row, name in enumerate(arrays["ids"].tolist())}
    predicted = arrays["labels"].astype(np.int64)
    return {
        row: predicted[rows[name]] for row, name in enumerate(labels.ids.tolist()) if name in rows
    }
