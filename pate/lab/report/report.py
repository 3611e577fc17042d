"""The command `pate report`: a page on a run that may be published.

First the findings: public files, public records and the ledger. Nothing in ``private/`` is read.
Then tables, charts as SVG in the colors of the page that holds them, and queried samples, as
pictures or as named values. At the end the figures of the page, which the template `sections.html`
sets in words.
"""

from __future__ import annotations

import base64
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from PIL import Image

from pate._core.accounting.charges import account, for_group_size
from pate._core.accounting.cost import (
    NeighboringRelation,
    format_epsilon,
    format_exact,
    format_guess,
)
from pate._core.accounting.history import LedgerSnapshot
from pate._core.accounting.ledger import read_ledger
from pate._core.accounting.statement import (
    FIXED_BEFOREHAND,
    Statement,
    by_relation,
    describe_budget,
    describe_reach,
    describe_state,
    ledger_words,
)
from pate._core.files.reading import Json, load_json, read_text
from pate._core.files.writing import require_new, write_text
from pate._core.package import __version__
from pate._core.validation import Float32Array, StrArray, UInt8Array, require_count
from pate._labeling.commands.parsing import FLAG, run_command
from pate._labeling.commands.run import describe_verdict
from pate._labeling.data.records import Features, Role
from pate._labeling.data.source import DataSource
from pate._labeling.release.between_runs import require_present_ledger
from pate._labeling.runs.released import ReleasedLabels
from pate._labeling.runs.run import (
    LABEL,
    METRICS,
    REPORT,
    STUDENT,
    Run,
    labels_file,
    read_locations,
)
from pate._labeling.votes.kinds import rows_of


@dataclass(frozen=True, eq=False)
class Released:
    """The labels of a run with their statement, which agree.

    Attributes:
        labels: the released labels.
        statement: the statement that was made with them.
        today: the same statement on all releases now in the ledger.
        book: the content of the ledger.
        features: features of the queried samples, in the order of the queries. None if they are not
            available.
    """

    labels: ReleasedLabels
    statement: Statement
    today: Statement
    book: LedgerSnapshot
    features: Features | None


@dataclass(frozen=True, eq=False)
class Learned:
    """A student's test metrics.

    Attributes:
        metrics: figures on the test set, of the student and of constant answers.
        num_test: number of test records. None if they are not available.
        older: whether the metrics are older than the labels.
    """

    metrics: Json
    num_test: int | None
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

    Records that are not available are left out, with a line on stderr that says why.

    Raises:
        ValueError: if ``root`` is no run, the ledger of its labels is missing, a file is damaged,
            an epsilon of the statement does not follow from its events, or the statement belongs to
            other labels or another ledger.
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
    require_present_ledger(run)  # it counts the releases since
    book = read_ledger(run.ledger_path)
    return Released(
        labels, statement, statement.today(book), book, _public_features(source, labels.ids)
    )


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
    return Learned(metrics, num_test, older)


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
    draw: Callable[[Any], object],
    size: tuple[float, float] = (6.8, 2.6),
) -> Picture:
    """Return a chart that a function draws."""

    def drawn(figure: Any) -> None:
        axes = figure.subplots()
        draw(axes)
        axes.set_xlabel(x_label)

    return drawing(caption, drawn, size)


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
    # of the shape ``[N, 1 or 3, height, width]``
    if (
        len(features.shape) == 4
        and features.shape[1] in (1, 3)
        and min(features.shape[2:]) >= _SMALLEST_SIDE
    ):
        encoded = [base64.b64encode(_encoded(pixels)).decode() for pixels in _bytes_of(values)]
        pictures = [f"data:image/png;base64,{content}" for content in encoded]
    return [
        {
            "name": str(labels.ids[row]),
            "picture": picture,
            "values": () if picture else _texts(features, values[row]),
            "released": tuple(np.array(labels.label_names)[labels.labels[row] > 0].tolist()),
            "answered": bool(labels.answered[row]),
            "withheld": int((~labels.mask[row]).sum()),
        }
        for row, picture in enumerate(pictures)
    ]


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


SECTIONS = {
    "labels": "Label by label",
    "quality": "Calibration and precision",
    "statement": "What is guaranteed",
    "samples": "Samples",
    "student": "The student",
    "answers": "Queries and answers",
    "ledger": "The ledger",
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
        "describe_verdict": describe_verdict,
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
    center, width = share + square / 2, math.sqrt(square * share * (1 - share) + square**2 / 4)
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


def report(
    run: Path, *, output: Path | None = None, num_samples: int = 20, overwrite: bool = False
) -> None:
    """Write one page of HTML on a run.

    It shows the privacy statement, the ledger, queries and answers, samples with their labels, the
    student's figures and curves, and the settings. It follows only from public files, public and
    test records and the ledger, and may be published.

    Args:
        run: folder of the run, at any stage.
        output: the file; None for public/report.html in the run, which each report replaces.
        num_samples: number of queries shown with their labels.
        overwrite: replace an output that is there.

    Raises:
        ValueError: as `make_page` does, or if there is such a file as ``output``.
    """
    path = run / REPORT if output is None else output
    require_new(path, overwrite=overwrite or output is None)
    write_text(path, make_page(run, num_samples=num_samples))
    print(path)


main = partial(run_command, "report", report, special={"--overwrite": FLAG})


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
    environment.filters |= {"epsilon": format_epsilon, "exact": format_exact}
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
