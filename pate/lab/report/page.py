"""A page on a run: what its public files say, and the typed blocks that show it.

First the findings: public files, public records and the ledger. Nothing in ``private/`` is read for
them. Then sections of blocks, each of a type that the template can draw. Charts become lines,
columns and ticks in units of a drawing; queried samples become pictures as data URIs, or rows of
numbers, with their released labels.
"""

import base64
import csv
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from PIL import Image

from pate._core.accounting.history import LedgerSnapshot
from pate._core.accounting.ledger import read_ledger
from pate._core.accounting.statement import Statement
from pate._core.files.reading import Json, read_arrays, read_json
from pate._core.validation import Float32Array, FloatArray, IntArray, StrArray, UInt8Array, require
from pate._labeling.data.records import Features, Role
from pate._labeling.data.source import DataSource
from pate._labeling.runs.data_file import read_locations
from pate._labeling.runs.released import ReleasedLabels
from pate._labeling.runs.run import LABEL, METRICS, STUDENT, Run, labels_file
from pate._labeling.votes.kinds import rows_of


@dataclass(frozen=True, eq=False)
class Released:
    """The labels of a run with their statement, which agree.

    Attributes:
        labels: the released labels.
        statement: the statement that was made with them.
        today: the same statement on all releases now in the ledger.
        book: the content of the ledger. None if it is not available.
        features: features of the queried samples, in the order of the queries. None if they are not
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
        num_test: number of test records. None if they are not available.
        curves: rows of the log of training, figures by name.
        older: whether the metrics are older than the labels.
    """

    metrics: Json
    num_test: int | None
    curves: tuple[dict[str, float], ...]
    older: bool


@dataclass(frozen=True, eq=False)
class Findings:
    """All that a report shows of a run.

    Attributes:
        run: the run.
        released: its labels and their statement. None before `pate label`.
        learned: its student. None before `pate student fit`.
        predictions: labels in {0, 1} by the student for queried samples, by query row; empty if it
            predicted none.
        frontier: the blocks of a frontier of simulated votes in ``public/frontier``, if one was
            drawn there.
        settings: saved settings as text, by the name of their file.
        has_data: whether `data.yaml` names public and test records.
    """

    run: Run
    released: Released | None
    learned: Learned | None
    predictions: dict[int, IntArray]
    frontier: "tuple[Block, ...]"
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
            f"pate report: the ledger is not at {run.ledger_path}; the statement lists its"
            " releases",
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
    if source is not None:
        try:
            num_test = len(source.load(Role.TEST))
        except (OSError, ValueError) as error:
            print(f"pate report: the test records are not counted: {error}", file=sys.stderr)
    logs = sorted(
        folder.glob("logs/*/metrics.csv"),
        key=lambda path: (len(path.parent.name), path.parent.name),
    )
    return Learned(metrics, num_test, tuple(read_log(logs[-1])) if logs else (), older)


def read_log(path: Path) -> Iterable[dict[str, float]]:
    """Yield the rows of a ``metrics.csv``, figures by name; empty cells are left out."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield {name: float(text) for name, text in row.items() if text}


def read_frontier(folder: Path, *, private: bool) -> "tuple[Block, ...]":
    """Return the blocks that show the frontier in ``folder``; none where there is no frontier.

    Raises ``ValueError`` if it is of real votes and not ``private``.
    """
    picture, table = folder / "frontier.png", folder / "frontier.txt"
    if not (picture.is_file() and table.is_file()):
        return ()
    text = table.read_text()
    require(
        private or not text.startswith("PRIVATE"),
        "a frontier of simulated votes in public/, not one of real votes",
        frontier=str(folder),
    )
    caption = text.partition("\n")[0]
    return Picture(data_uri(picture.read_bytes()), caption), Listing("The figures", text)


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


ABSENT = "\u2013"
"""Stands for a missing figure."""


@dataclass(frozen=True)
class Block:
    """A part of a section."""

    @property
    def kind(self) -> str:
        """The macro of the template that draws it."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Text(Block):
    """A paragraph with, if not empty, a ``command`` below it.

    Its tone is ``warning`` for texts that a reader must not miss, ``next`` for the next step.
    """

    text: str
    tone: Literal["plain", "warning", "next"] = "plain"
    command: str = ""


@dataclass(frozen=True)
class Figure:
    """One figure in large digits, with its name and a note."""

    value: str
    name: str
    note: str = ""


@dataclass(frozen=True)
class Figures(Block):
    """Figures side by side."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Bar:
    """A figure in [0, 1] with a bar of its length, and a mark at the figure for comparison."""

    text: str
    share: float
    mark: float | None = None


@dataclass(frozen=True)
class Table(Block):
    """Rows below a head: names in the first column and those in ``wordy``, figures in the others.

    The row ``strong`` is set in bold.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str | Bar, ...], ...]
    wordy: tuple[int, ...] = ()
    strong: int | None = None


@dataclass(frozen=True)
class Sample:
    """A public sample with its released labels.

    Attributes:
        name: its id.
        picture: a data URI; empty for a sample that is not a picture.
        values: its features, for a sample that is not a picture.
        released: names of its positive released labels.
        answered: whether any label was released.
        withheld: number of labels that were not released.
        predicted: names of the positive labels by the student. None without predictions.
    """

    name: str
    picture: str = ""
    values: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    answered: bool = True
    withheld: int = 0
    predicted: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Gallery(Block):
    """Pictures side by side, or other samples one below the other."""

    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class Tick:
    """A mark on an axis, in units of the drawing."""

    place: float
    text: str


@dataclass(frozen=True)
class Line:
    """A named line through points in units of the drawing."""

    name: str
    points: tuple[tuple[float, float], ...]
    dots: bool = False


@dataclass(frozen=True)
class Column:
    """A column of a histogram, in units of the drawing, with a text shown on hovering."""

    left: float
    top: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class Chart(Block):
    """Lines or columns between two axes, in a drawing of ``width`` by ``height``."""

    width: ClassVar[int] = 680
    height: ClassVar[int] = 260
    left: ClassVar[int] = 58
    right: ClassVar[int] = 664
    top: ClassVar[int] = 12
    bottom: ClassVar[int] = 216
    title: str
    x_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...] = ()
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Picture(Block):
    """A picture as a data URI, with a caption."""

    source: str
    caption: str


@dataclass(frozen=True)
class Listing(Block):
    """Monospaced text, folded unless it is ``open``."""

    title: str
    text: str
    open: bool = False


@dataclass(frozen=True)
class Section:
    """A titled part of a page. One that must not be published is ``private`` and marked as such."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]
    private: bool = False


@dataclass(frozen=True)
class Page:
    """A page on a run: its name, a summary, its sections from the statement on, and the version."""

    title: str
    summary: str
    sections: tuple[Section, ...]
    version: str

    @property
    def private(self) -> bool:
        """Whether any part must not be published."""
        return any(section.private for section in self.sections)


def shown(value: float | None) -> str:
    """Return a figure as text, `ABSENT` if there is none."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:,.3f}"


def barred(value: float | None, mark: float | None = None) -> str | Bar:
    """Return a figure in [0, 1] with a bar, `ABSENT` if there is none."""
    return Bar(shown(value), value, mark) if value is not None and math.isfinite(value) else ABSENT


def barred_share(value: float) -> str | Bar:
    """Return a share in percent with a bar, `ABSENT` if it is NaN."""
    return Bar(f"{value:.0%}", value) if math.isfinite(value) else ABSENT


_MOST_DOTS = 40  # points of a line that are drawn as dots, too
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


def line_chart(
    title: str, x_label: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> Chart | None:
    """Return a chart of named series of points ``(x, y)``. None if no point is finite.

    Points that are not finite are left out.
    """
    finite = {
        name: [(x, y) for x, y in sorted(points) if math.isfinite(x) and math.isfinite(y)]
        for name, points in series.items()
    }
    finite = {name: points for name, points in finite.items() if points}
    if not finite:
        return None
    xs, ys = zip(*(point for points in finite.values() for point in points), strict=True)
    x_ticks, place_x = _axis(min(xs), max(xs), Chart.left, Chart.right, integers=True)
    y_ticks, place_y = _axis(min(ys), max(ys), Chart.bottom, Chart.top, widened=True)
    return Chart(
        title,
        x_label,
        x_ticks,
        y_ticks,
        lines=tuple(
            Line(
                name,
                tuple((place_x(x), place_y(y)) for x, y in points),
                dots=len(points) <= _MOST_DOTS,
            )
            for name, points in finite.items()
        ),
    )


def histogram(title: str, x_label: str, counts: FloatArray, edges: FloatArray) -> Chart:
    """Return a histogram of ``counts`` ``[B]`` between ``edges`` ``[B + 1]``."""
    x_ticks, place_x = _axis(float(edges[0]), float(edges[-1]), Chart.left, Chart.right)
    y_ticks, place_y = _axis(
        0.0, max(float(counts.max(initial=0)), 1.0), Chart.bottom, Chart.top, widened=True
    )
    columns = []
    for count, low, high in zip(
        counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True
    ):
        left, right, top = place_x(low), place_x(high), place_y(count)
        columns.append(
            Column(
                left=left + 0.5,
                top=top,
                width=max(right - left - 1, 0.5),
                height=round(place_y(0.0) - top, 2),
                text=f"{low:.2f} to {high:.2f}: {count:,.0f}",
            )
        )
    return Chart(title, x_label, x_ticks, y_ticks, columns=tuple(columns))


def _axis(
    low: float, high: float, begin: int, end: int, *, integers: bool = False, widened: bool = False
) -> tuple[tuple[Tick, ...], Callable[[float], float]]:
    """Return the ticks of an axis and the function that places values on it.

    Args:
        low: the smallest value, and ``high`` the largest.
        high: see ``low``.
        begin: where the axis begins, and ``end`` where it ends, in units of the drawing.
        end: see ``begin``.
        integers: whether the values are integers.
        widened: whether the axis begins and ends at a tick.
    """
    if high <= low:
        low, high = low - 0.5, high + 0.5
    step = _step((high - low) / 5)
    step = max(1.0, step) if integers else step
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if widened:
        low, high = first * step, last * step

    def place(value: float) -> float:
        return round(begin + (value - low) / (high - low) * (end - begin), 2)

    slack = 1e-9 * (high - low)
    digits = max(0, -int(Decimal(f"{step:.3g}").normalize().as_tuple().exponent))
    ticks = tuple(
        Tick(place(value), f"{value:,.{digits}f}")
        for value in (np.arange(first, last + 1) * step).tolist()
        if low - slack <= value <= high + slack
    )
    return ticks, place


def _step(rough: float) -> float:
    """Return the smallest round step that is no smaller than ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))


_SIDE = 128  # pixels of the longer side of a picture, at most
_SMALLEST_SIDE = 8
_VALUES = 6  # of a record that is no picture


def gallery(findings: Findings, num_samples: int) -> Gallery | None:
    """Return the first ``num_samples`` queries with released labels. None without features."""
    released = findings.released
    if released is None or released.features is None:
        return None
    labels, features = released.labels, released.features
    rows = np.arange(min(num_samples, len(labels.ids)))
    values = features[rows]
    pictures = (
        [data_uri(_encoded(pixels)) for pixels in _bytes_of(values)]
        if _are_pictures(features)
        else None
    )
    samples = []
    for row in rows.tolist():
        predicted = findings.predictions.get(row)
        samples.append(
            Sample(
                name=str(labels.ids[row]),
                picture="" if pictures is None else pictures[row],
                values=() if pictures is not None else _texts(values[row]),
                released=_named(labels, labels.labels[row]),
                answered=bool(labels.answered[row]),
                withheld=int((~labels.mask[row]).sum()),
                predicted=None if predicted is None else _named(labels, predicted),
            )
        )
    return Gallery(tuple(samples))


def data_uri(content: bytes) -> str:
    """Return a PNG picture as a data URI."""
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _named(labels: ReleasedLabels, answers: IntArray) -> tuple[str, ...]:
    return tuple(
        name
        for name, positive in zip(labels.label_names, answers.tolist(), strict=True)
        if positive
    )


def _are_pictures(features: Features) -> bool:
    """Whether features have the shape ``[N, 1 or 3, height, width]``."""
    return (
        len(features.shape) == 4
        and features.shape[1] in (1, 3)
        and min(features.shape[2:]) >= _SMALLEST_SIDE
    )


def _bytes_of(values: Float32Array) -> UInt8Array:
    """Return pictures ``[n, channels, height, width]`` as ``[n, height, width, 3]``.

    Values in [0, 1] or whole bytes are taken as they are. Others are stretched from the least to
    the greatest.
    """
    low, high = float(values.min(initial=0)), float(values.max(initial=0))
    if low >= 0 and high <= 255:
        low, high = 0.0, 1.0 if high <= 1 else 255.0
    shades = np.rint((values.transpose(0, 2, 3, 1) - low) / (high - low) * 255).astype(np.uint8)
    return np.array(np.broadcast_to(shades, (*shades.shape[:3], 3)))


def _encoded(pixels: UInt8Array) -> bytes:
    picture = Image.fromarray(pixels)
    picture.thumbnail((_SIDE, _SIDE))
    file = BytesIO()
    picture.save(file, format="png", optimize=True)
    return file.getvalue()


def _texts(values: Float32Array) -> tuple[str, ...]:
    flat = values.ravel()
    more = (f"and {len(flat) - _VALUES} more",) if len(flat) > _VALUES else ()
    return (*(f"{value:.3g}" for value in flat[:_VALUES].tolist()), *more)
