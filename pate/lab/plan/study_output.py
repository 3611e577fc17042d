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

from pate._core.accounting.cost import format_exact
from pate._core.files.reading import code_version
from pate._core.files.writing import atomic_write, write_text
from pate._core.tables import text_table, write_csv
from pate.lab.plan.output import log2_axis, save_figure
from pate.lab.plan.study import FIGURES, StudyResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = "recall"  # of the picture and the table for LaTeX
_ACROSS = 3  # panels side by side
_SPECIAL = str.maketrans({sign: f"\\{sign}" for sign in "_&%#$"})


def panels(result: StudyResult) -> list[dict[str, Any]]:
    """Return the votes and the k of each panel of a figure, in the order of the settings."""
    places = dict.fromkeys((row["votes"], row["k"]) for row in result.rows)
    return [{"votes": votes, "k": k} for votes, k in places]


def names_of(result: StudyResult) -> list[str]:
    """Return the names of the mechanisms, in the order of the settings."""
    return list(dict.fromkeys(row["mechanism"] for row in result.rows))


def study_text(result: StudyResult) -> str:
    """Return means over seeds with intervals of 95%, for all votes, k and epsilons, as text."""
    lines = [result.study.notice]
    for place in panels(result):
        for epsilon in result.study.epsilons:
            lines += ["", f"{place['votes']}: k = {place['k']}, epsilon = {epsilon:g}"]
            rows: list[tuple[str, ...]] = [("mechanism", *FIGURES)]
            for name in names_of(result):
                where = {**place, "epsilon": epsilon, "mechanism": name}
                rows.append((name, *(_cell(*result.interval(each, **where)) for each in FIGURES)))
            lines += text_table(rows)
    return "\n".join([*lines, "", method_text(result), ""])


def _cell(mean: float, half: float, sign: str = " +-") -> str:
    if math.isnan(mean):
        return "-"
    return f"{mean:.3f}" + ("" if math.isnan(half) else f"{sign}{half:.3f}")


def study_tex(result: StudyResult) -> str:
    """Return a ``tabular`` of recall for each file of votes, with a column for each k and epsilon."""
    tables = [f"% {result.study.notice}"]
    for votes in dict.fromkeys(row["votes"] for row in result.rows):
        columns = [(k, epsilon) for k in result.study.k for epsilon in result.study.epsilons]
        heads = [f"$k={k}$, $\\varepsilon={epsilon:g}$" for k, epsilon in columns]
        lines = [
            f"% {_SHOWN}, {votes}",
            f"\\begin{{tabular}}{{l{'r' * len(columns)}}}",
            " & ".join(["mechanism", *heads]) + r" \\ \hline",
        ]
        for name in names_of(result):
            cells = [
                _cell(
                    *result.interval(_SHOWN, votes=votes, k=k, epsilon=epsilon, mechanism=name),
                    r"\,\pm\,",
                )
                for k, epsilon in columns
            ]
            lines.append(
                " & ".join([name.translate(_SPECIAL), *(f"${cell}$" for cell in cells)]) + r" \\"
            )
        tables.append("\n".join([*lines, r"\end{tabular}"]))
    return "\n\n".join(tables) + "\n"


def method_text(result: StudyResult) -> str:
    """Return a paragraph on what was done, with versions and prices."""
    study, rows = result.study, result.rows
    spent = [row["spent"] for row in rows]
    kinds = {
        (row["votes"], row["num_queries"], row["num_teachers"], row["num_labels"]) for row in rows
    }
    votes = "; ".join(
        f"{name}: {queries} {'query' if queries == 1 else 'queries'} on {labels} items"
        + ("" if teachers is None else f" by {teachers} teachers")
        for name, queries, teachers, labels in sorted(kinds, key=str)
    )
    against = "the exact k largest counts" if study.truth is None else "the given true labels"
    names = ("numpy", "scipy")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    relation = study.neighboring_relation.value.upper()
    return (
        f"Method. {len(names_of(result))} mechanisms release the same votes ({votes}). All queries"
        f" on some votes together cost each of them epsilon ="
        f" {', '.join(f'{value:g}' for value in study.epsilons)} at most, at delta ="
        f" {format_exact(study.delta)} under {relation}; the cost was {min(spent):.4g} to"
        f" {max(spent):.4g}. One factor scales all noise of a mechanism to the least that meets"
        f" epsilon; a class such as StableTopK splits its noise for it. Noise is drawn {study.seeds} times;"
        f" intervals of 95% are Student's t over these draws, for the same votes. Figures compare"
        f" releases with {against}, which is private where the votes are; what is not released"
        f" counts as not found. pate {code_version()}, {versions}, Python"
        f" {platform.python_version()}."
    )


def study_figure(result: StudyResult) -> Figure:
    """Plot recall for each file of votes and each k, with intervals: a panel each.

    For one epsilon, mechanisms are listed; for several, they are lines against epsilon. The figure
    is matplotlib's, so that a program may change all of it before it is saved.
    """
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    places, names, epsilons = panels(result), names_of(result), sorted(result.study.epsilons)
    across = min(_ACROSS, len(places))
    down = -(-len(places) // across)
    size = (4.4 * across + 2.4, 0.9 + down * max(2.6, 0.45 * len(names)))
    figure = Figure(figsize=size, layout="constrained")
    grid = np.ravel(figure.subplots(down, across, sharex=True, sharey=True, squeeze=False))
    for axes in grid[len(places) :]:
        axes.set_visible(False)
    for axes, place in zip(grid, places, strict=False):
        for i, name in enumerate(names):
            means, halves = zip(
                *(
                    result.interval(_SHOWN, **place, epsilon=epsilon, mechanism=name)
                    for epsilon in epsilons
                ),
                strict=True,
            )
            style = {"color": f"C{i % 10}", "marker": "osD^v"[i % 5], "capsize": 3}
            if len(epsilons) == 1:
                axes.errorbar(means, [i], xerr=np.nan_to_num(halves), **style)
            else:
                axes.errorbar(epsilons, means, yerr=np.nan_to_num(halves), label=name, **style)
        short = textwrap.shorten(Path(place["votes"]).name, 34, placeholder=" ...)")
        axes.set_title(f"{short}, k = {place['k']}", fontsize="medium")
        if len(epsilons) == 1:
            axes.set_yticks(range(len(names)), names)
            axes.set_xlabel(_SHOWN)
            axes.grid(alpha=0.3)
        else:
            log2_axis(axes, epsilons)
            axes.set(xlabel="epsilon", ylabel=_SHOWN)
    if len(epsilons) == 1:
        grid[0].invert_yaxis()
    else:
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.suptitle(result.study.notice, fontsize="medium")
    return figure


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
