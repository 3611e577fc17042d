"""A page on a run: what its public files say, and the tables, charts and pictures that show it.

First the findings: public files, public records and the ledger. Nothing in ``private/`` is read for
them. Then figures in tables and charts, as SVG in the colors of the page that holds it. At the end
queried samples, as pictures or as named values, with their released labels.
"""

from __future__ import annotations

import base64
import csv
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pate._core.accounting.history import LedgerSnapshot
from pate._core.accounting.ledger import read_ledger
from pate._core.accounting.statement import Statement
from pate._core.files.reading import Json, load_json, read_lines, read_text
from pate._core.validation import Float32Array, IntArray, StrArray, UInt8Array
from pate._labeling.data.records import Features, Role
from pate._labeling.data.source import DataSource
from pate._labeling.runs.released import ReleasedLabels
from pate._labeling.runs.run import LABEL, METRICS, STUDENT, Run, labels_file, read_locations
from pate._labeling.votes.kinds import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        settings: saved settings as text, by the name of their file.
        has_data: whether `data.yaml` names public and test records.
    """

    run: Run
    released: Released | None
    learned: Learned | None
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
        settings={
            name.name: read_text(root / name)
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
        metrics = load_json(path)
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
    for row in csv.DictReader(read_lines(path)):
        yield {name: float(text) for name, text in row.items() if text}


ABSENT = "\u2013"
"""Stands for a missing figure."""


@dataclass(frozen=True)
class Bar:
    """A figure in [0, 1] with a bar of its length, and a mark at the figure for comparison."""

    text: str
    share: float
    mark: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows below a head: names in the first column and those in ``wordy``, figures in the others.

    The row ``strong`` is set in bold.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str | Bar]]
    wordy: tuple[int, ...] = ()
    strong: int | None = None


@dataclass(frozen=True)
class Picture:
    """A drawing as SVG, with a caption."""

    source: str
    caption: str


def shown(value: float | None) -> str:
    """Return a figure as text, `ABSENT` if there is none."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:,.3f}"


def barred(value: float, text: str, mark: float | None = None) -> str | Bar:
    """Return a figure in [0, 1] as a text with a bar, `ABSENT` if it is NaN."""
    return Bar(text, value, mark) if math.isfinite(value) else ABSENT


_FIXED = "#0000"  # begins the colors of drawings, which a page replaces by its own
INK = f"{_FIXED}00"
"""The color of text."""
SERIES = tuple(f"{_FIXED}{number:02x}" for number in range(1, 7))
"""Colors of series: the variables ``--line-1`` to ``--line-6`` of a page."""
_STYLE: Any = {
    "svg.fonttype": "none",  # texts are those of the page
    "text.parse_math": False,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.5,
    "legend.frameon": False,
    "axes.grid": True,
}


def drawing(caption: str, draw: Callable[[Any], object], size: tuple[float, float]) -> Picture:
    """Return as SVG what a function draws on a figure of matplotlib, without a color of its own.

    Ink is the color of the text around it, series are `SERIES`. It has no ids but those of its
    markers, and names no address.
    """
    import matplotlib as mpl  # a page without charts does not wait for it
    from matplotlib.figure import Figure
    from matplotlib.rcsetup import cycler

    style: Any = _STYLE | {"svg.hashsalt": caption, "axes.prop_cycle": cycler(color=SERIES)}
    with mpl.rc_context(style):
        figure, file = Figure(figsize=size, layout="constrained"), BytesIO()
        draw(figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    text = file.getvalue().decode()
    text = re.sub(r"^.*?<svg [^>]*(viewBox=\"[^\"]*\")[^>]*>", r"<svg \1>", text, flags=re.DOTALL)
    text = re.sub(
        r"<style.*?</style>| clip-path=\"[^\"]*\"| id=\"\w+_\d+\"", "", text, flags=re.DOTALL
    )
    text = re.sub(r" font-family: [^;\"]*;?", "", re.sub(r"\s*\n\s*", " ", text))
    text = text.replace(
        "<svg ", f'<svg role="img" fill="currentColor" aria-label="{escape(caption)}" ', 1
    )
    text = re.sub(rf"{_FIXED}(0[1-9])\b", lambda match: f"var(--line-{int(match[1])})", text)
    return Picture(re.sub(rf"{INK}\b", "currentColor", text), caption)


def chart(
    caption: str,
    x_label: str,
    draw: Callable[[Axes], object],
    size: tuple[float, float] = (6.8, 2.6),
) -> Picture:
    """Return a chart that a function draws."""

    def drawn(figure: Any) -> None:
        axes = figure.subplots()
        draw(axes)
        axes.set_xlabel(x_label)

    return drawing(caption, drawn, size)


def line_chart(
    title: str, x_label: str, series: Mapping[str, Sequence[tuple[float, float]]]
) -> Picture | None:
    """Return a chart of named series of points ``(x, y)``. None if no point is finite.

    Points that are not finite are left out.
    """
    finite = {
        name: [point for point in sorted(points) if np.isfinite(point).all()]
        for name, points in series.items()
    }
    lines = {name: points for name, points in finite.items() if points}

    def draw(axes: Axes) -> None:
        for name, points in lines.items():
            marker = "." if len(points) <= _MOST_DOTS else ""
            axes.plot(*zip(*points, strict=True), marker=marker, label=name)
        axes.legend()

    caption = f"{title} against {x_label}: {', '.join(lines)}"
    return chart(caption, x_label, draw) if lines else None


_MOST_DOTS = 40  # points of a line that are drawn as dots, too
_SIDE = 128  # pixels of the longer side of a picture, at most
_SMALLEST_SIDE = 8
_VALUES = 6  # of a record that is no picture


def samples_of(findings: Findings, num_samples: int) -> list[dict[str, Any]] | None:
    """Return the first ``num_samples`` queries with released labels. None without features.

    Each has its ``name``, a ``picture`` or ``values``, the names of the positive labels that were
    ``released``, whether it was ``answered``, and how many labels were ``withheld``.
    """
    released = findings.released
    if released is None or released.features is None:
        return None
    labels, features = released.labels, released.features
    rows = np.arange(min(num_samples, len(labels.ids)))
    values, pictures = features[rows], [""] * len(rows)
    if _are_pictures(features):
        encoded = [base64.b64encode(_encoded(pixels)).decode() for pixels in _bytes_of(values)]
        pictures = [f"data:image/png;base64,{content}" for content in encoded]
    samples = []
    for row, picture in enumerate(pictures):
        samples.append(
            {
                "name": str(labels.ids[row]),
                "picture": picture,
                "values": () if picture else _texts(features, values[row]),
                "released": _named(labels, labels.labels[row]),
                "answered": bool(labels.answered[row]),
                "withheld": int((~labels.mask[row]).sum()),
            }
        )
    return samples


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


def _texts(features: Features, values: Float32Array) -> list[tuple[str, str]]:
    """Return the first values of a record with their names: columns of a table, or numbers."""
    flat = values.ravel()
    numbered = ((f"[{place}]", f"{value:,.6g}") for place, value in enumerate(flat.tolist()))
    encoding = getattr(features, "encoding", None)
    texts = [*islice(encoding.describe(flat) if encoding else numbered, _VALUES + 1)]
    return texts if len(texts) <= _VALUES else [*texts[:_VALUES], ("...", "")]
