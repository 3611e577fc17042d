"""The command `pate study`, and what it writes: tables, text, a figure, and its method."""

from __future__ import annotations

import math
import platform
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pate._core.accounting.cost import format_exact
from pate._core.files.reading import code_version
from pate._core.files.writing import (
    atomic_write,
    rendered,
    require_new,
    text_table,
    write_csv,
    write_text,
)
from pate._core.package import __version__
from pate._labeling.commands.parsing import FLAG, run_command
from pate._labeling.commands.places import find_study
from pate.lab.study.study import FIGURES, PRIVATE, Study, StudyResult, run_study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FOLDER = Path(__file__).parent  # of templates
_ACROSS = 3  # panels side by side
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
        _FOLDER / "study.txt",
        study=result.study,
        places=panels(result),
        table=table,
        method=method_text(result),
    )


def _cell(mean: float, half: float) -> str:
    if math.isnan(mean):
        return "-"
    return f"{mean:.3f}" + ("" if math.isnan(half) else f" +-{half:.3f}")


def method_text(result: StudyResult) -> str:
    """Return a paragraph on what was done, with versions and prices."""
    facts = ("votes", "num_queries", "num_teachers", "num_labels")
    names = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    own = f"pate {__version__} (source {code_version().partition('+')[2]})"
    return rendered(
        _FOLDER / "method.txt",
        exact=format_exact,
        study=result.study,
        kinds=sorted({tuple(row[name] for name in facts) for row in result.rows}, key=str),
        spent=[row["spent"] for row in result.rows],
        versions=f"{own}, {names}, Python {platform.python_version()}",
    ).rstrip()


def study_figure(result: StudyResult) -> Figure:
    """Plot a figure of all mechanisms with its intervals, a panel for each file of votes.

    The lines are against epsilon if there are several, with a panel for each k too, and against k
    otherwise. The figure is matplotlib's, so that a program may change all of it before it is
    saved.
    """
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    study, places = result.study, panels(result)
    against, at = "epsilon", sorted(study.epsilons)
    if len(at) == 1:
        against, at = "k", [float(k) for k in sorted(study.k)]
        places = [{"votes": votes} for votes in dict.fromkeys(place["votes"] for place in places)]
    across = min(_ACROSS, len(places))
    down = -(-len(places) // across)
    figure = Figure(figsize=(4.4 * across + 2.4, 0.8 + 2.6 * down), layout="constrained")
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    for axes in grid[len(places) :]:
        axes.set_visible(False)
    for axes, place in zip(grid, places, strict=False):
        title = textwrap.shorten(Path(place["votes"]).name, 34, placeholder=" ...)")
        axes.set_title(f"{title}, k = {place['k']}" if "k" in place else title, fontsize="medium")
        _draw_lines(axes, result, place, against, at)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    figure.suptitle(study.notice, fontsize="medium")
    return figure


def _draw_lines(
    axes: Axes, result: StudyResult, place: Mapping[str, Any], against: str, at: Sequence[float]
) -> None:
    shown = result.study.shown
    for i, name in enumerate(result.study.named):
        where = ({**place, against: value, "mechanism": name} for value in at)
        means, halves = zip(*(result.interval(shown, **each) for each in where), strict=True)
        style: dict[str, Any] = {"color": f"C{i % 10}", "marker": "osD^v"[i % 5], "capsize": 3}
        axes.errorbar(at, means, yerr=np.nan_to_num(halves), label=name, **style)
    axes.set(xlabel=against, ylabel=shown, xscale="log" if len(at) > 1 else "linear")
    axes.tick_params(labelbottom=True)
    axes.grid(alpha=0.3)
    if len(at) <= _TICKS:
        axes.set_xticks(at, [f"{value:g}" for value in at])
        axes.minorticks_off()


_FILES = ("study.csv", "study.txt", "study.png")  # in the order in which they are written


def write_study(folder: Path, result: StudyResult) -> list[Path]:
    """Write all that a study gives, and return the files."""
    written = table, text, picture = [folder / name for name in _FILES]
    write_csv(table, result.study.notice, result.rows)
    write_text(text, study_text(result))
    with atomic_write(picture) as file:
        study_figure(result).savefig(file, format="png", dpi=130)
    return written


def study(
    settings: Study, output: Path | None = None, workers: int = 1, overwrite: bool = False
) -> StudyResult:
    """Compare mechanisms at one price, over many k, epsilons, votes and seeds of the noise.

    Each has its own best noise for each target. A release is compared with the exact top k of its
    votes, or with a given truth: on private votes the results are PRIVATE, for the owner's screen.
    A command that was stopped goes on with the cells that its folder lacks.

    `pate study FILE` reads the settings from a file of YAML, and `pate study NAME` takes those of a
    shipped study, such as zhu_wang_covid. Options override them.

    Args:
        settings: the settings of the study.
        output: folder for study.csv, study.txt and study.png, and for the finished cells. None for
            private/study, or study for made-up and public votes.
        workers: number of processes, one for each core at most.
        overwrite: replace what a finished study left there. Cells that are there are not made
            again.

    Returns:
        The written rows.

    Raises:
        ValueError: on votes or a target that a mechanism cannot serve, before the first release.
    """
    folder = Path(output or ("private/study" if settings.notice == PRIVATE else "study"))
    require_new(folder / _FILES[-1], overwrite=overwrite)
    result = run_study(settings, folder, workers=workers)
    written = write_study(folder, result)
    print(study_text(result), ", ".join(map(str, written)), sep="\n")
    return result


def study_main(args: Sequence[str]) -> None:
    """Run `pate study`, whose first word may be a file of its settings, or a shipped study."""
    words = [*args]
    if words and not words[0].startswith("-"):
        words[:1] = ["--config", find_study(words[0])]
    run_command("study", study, words, grouped={"settings": Study}, special={"--overwrite": FLAG})
