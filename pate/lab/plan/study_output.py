"""What a study writes: its table, intervals as text and for LaTeX, a figure, and its method."""

from __future__ import annotations

import math
import platform
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pate._core.files.reading import code_version
from pate._core.files.writing import atomic_write, write_text
from pate._core.tables import text_table, write_csv
from pate._core.version import __version__
from pate.lab.plan.output import log2_axis, panel_grid, rendered, save_figure
from pate.lab.plan.study import FIGURES, StudyResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TICKS = 8  # numbers along an axis, beyond which they are powers of ten


def panels(result: StudyResult) -> list[dict[str, Any]]:
    """Return the votes and the k of each panel of a figure, in the order of the settings."""
    places = dict.fromkeys((row["votes"], row["k"]) for row in result.rows)
    return [{"votes": votes, "k": k} for votes, k in places]


def study_text(result: StudyResult) -> str:
    """Return means over seeds with intervals of 95%, for all votes, k and epsilons, as text."""

    def table(place: Mapping[str, Any], epsilon: float) -> str:
        rows: list[tuple[str, ...]] = [("mechanism", *FIGURES)]
        for name in result.study.named:
            where = {**place, "epsilon": epsilon, "mechanism": name}
            rows.append((name, *(_cell(*result.interval(each, **where)) for each in FIGURES)))
        return "\n".join(text_table(rows))

    return rendered(
        "study.txt",
        study=result.study,
        places=panels(result),
        table=table,
        method=method_text(result),
    )


def _cell(mean: float, half: float, sign: str = " +-") -> str:
    if math.isnan(mean):
        return "-"
    return f"{mean:.3f}" + ("" if math.isnan(half) else f"{sign}{half:.3f}")


def study_tex(result: StudyResult) -> str:
    """Return a ``tabular`` for each file of votes, with a column for each k and epsilon."""

    def cell(votes: str, k: int, epsilon: float, name: str) -> str:
        where = {"votes": votes, "k": k, "epsilon": epsilon, "mechanism": name}
        return _cell(*result.interval(result.study.shown, **where), r"\,\pm\,")

    places = dict.fromkeys(row["votes"] for row in result.rows)
    return rendered("study.tex", study=result.study, places=places, cell=cell)


def method_text(result: StudyResult) -> str:
    """Return a paragraph on what was done, with versions and prices."""
    facts = ("votes", "num_queries", "num_teachers", "num_labels")
    names = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    own = f"pate {__version__} (source {code_version().partition('+')[2]})"
    return rendered(
        "method.txt",
        study=result.study,
        kinds=sorted({tuple(row[name] for name in facts) for row in result.rows}, key=str),
        spent=[row["spent"] for row in result.rows],
        versions=f"{own}, {names}, Python {platform.python_version()}",
    ).rstrip()


def study_figure(result: StudyResult) -> Figure:
    """Plot a figure of all mechanisms with its intervals, a panel for each file of votes.

    The lines are against epsilon if there are several, with a panel for each k too, and against k
    if there is one epsilon and several k. For one of each, mechanisms are listed. The figure is
    matplotlib's, so that a program may change all of it before it is saved.
    """
    study, names = result.study, result.study.named
    settings: dict[str, list[float]] = {"epsilon": sorted(study.epsilons), "k": [*sorted(study.k)]}
    against = next((name for name, values in settings.items() if len(values) > 1), None)
    places = panels(result)
    if against == "k":
        places = [{"votes": votes} for votes in dict.fromkeys(place["votes"] for place in places)]
    figure, grid = panel_grid(len(places), width=4.4, height=max(2.6, 0.45 * len(names)))
    for axes, place in zip(grid, places, strict=True):
        title = textwrap.shorten(Path(place["votes"]).name, 34, placeholder=" ...)")
        axes.set_title(f"{title}, k = {place['k']}" if "k" in place else title, fontsize="medium")
        if against is None:
            _draw_list(axes, result, place)
        else:
            _draw_lines(axes, result, place, against, settings[against])
    if against is None:
        grid[0].invert_yaxis()
    else:
        figure.set_figwidth(figure.get_figwidth() + 2.4)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.suptitle(study.notice, fontsize="medium")
    return figure


def _style(i: int) -> dict[str, Any]:
    return {"color": f"C{i % 10}", "marker": "osD^v"[i % 5], "capsize": 3}


def _draw_list(axes: Axes, result: StudyResult, place: Mapping[str, Any]) -> None:
    names, shown = result.study.named, result.study.shown
    for i, name in enumerate(names):
        mean, half = result.interval(shown, **place, mechanism=name)
        axes.errorbar([mean], [i], xerr=np.nan_to_num([half]), **_style(i))
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel(shown)
    axes.grid(alpha=0.3)


def _draw_lines(
    axes: Axes, result: StudyResult, place: Mapping[str, Any], against: str, at: Sequence[float]
) -> None:
    shown = result.study.shown
    for i, name in enumerate(result.study.named):
        where = ({**place, against: value, "mechanism": name} for value in at)
        means, halves = zip(*(result.interval(shown, **each) for each in where), strict=True)
        axes.errorbar(at, means, yerr=np.nan_to_num(halves), label=name, **_style(i))
    axes.set(xlabel=against, ylabel=shown)
    if len(at) <= _TICKS:
        log2_axis(axes, at)
    else:
        axes.set_xscale("log")
        axes.grid(alpha=0.3)


def write_study(folder: Path, result: StudyResult) -> list[Path]:
    """Write all that a study gives, and return the files; parquet if pyarrow is installed."""
    written = [folder / f"study.{suffix}" for suffix in ("csv", "txt", "tex", "png")]
    table, text, tex, picture = written
    write_csv(table, result.study.notice, result.rows)
    write_text(text, study_text(result))
    write_text(tex, study_tex(result))
    save_figure(picture, study_figure(result), dpi=130)
    if find_spec("pyarrow") is not None:
        written.append(folder / "study.parquet")
        _write_parquet(written[-1], result.study.notice, result.rows)
    return written


def _write_parquet(path: Path, notice: str, rows: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.Table.from_pylist([dict(row) for row in rows])
    with atomic_write(path) as file:
        parquet.write_table(table.replace_schema_metadata({"notice": notice}), file)
