"""The summary at the end of `pate run`: figures of the student, and the privacy statement."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pate._files import Json, read_json
from pate._planning.tables import text_table
from pate._runs import LABEL, METRICS, MODEL, REFERENCES, STUDENT, Run

_ROWS = {
    "all_majority": "best constant answer",
    "released_constant": "constant answer released",
    "student": "private student",
    "teacher_majority": "noiseless teacher majority",
    "linear_fit": "linear fit to private records",
    "true_label_student": "true-label student",
}

_LEDGERS = {
    "private data": "of the private data",
    "named": "named for this run; another of these data adds up",
    "run": "of this run alone",
    "audit": "of this audit alone",
}


def describe_run(run: Run) -> str:
    """Return a table of metrics on the test set, the privacy statement, and the places of files."""
    figures_of: Json = {}
    for stage in (STUDENT, REFERENCES):
        path = run.root / stage.outputs[0] / METRICS
        if path.is_file():
            figures_of |= read_json(path.read_text())
    known = ("teacher_majority", "linear_fit", "true_label_student")
    private = [name for name in known if name in figures_of]
    chosen = figures_of.pop("optimize")
    lines = _table(f"Test set, cut for {chosen}", figures_of, private)
    for purpose in figures_of["student"]["at_cut"]:
        if purpose != chosen:
            cut = {
                name: figures["at_cut"][purpose]
                for name, figures in figures_of.items()
                if name in _ROWS
            }
            lines += ["", *_table(f"The same, cut for {purpose}", cut, private)]
    if private:
        lines.append("* PRIVATE: computed without privacy, for comparison only")
    if "true_label_student" in figures_of:
        gain = {
            name: figures_of[name]["macro_f1"] - figures_of["all_majority"]["macro_f1"]
            for name in figures_of
            if name in _ROWS
        }
        if gain["true_label_student"] > 0:
            share = gain["student"] / gain["true_label_student"]
            lines.append(
                f"The private student keeps {share:.0%} of the macro-F1 gain of the true-label"
                " student."
            )
    statement = (run.root / LABEL.outputs[-1]).read_text()
    files = {
        "released labels": LABEL.outputs[0],
        "privacy statement": LABEL.outputs[1],
        "student": STUDENT.outputs[0],
    }
    places = [f"{name + ':':<19}{run.root / place}" for name, place in files.items()]
    places.append(f"{'predictions:':<19}pate predict {run.root / STUDENT.outputs[0] / MODEL} FILE")
    counts = read_json((run.root / LABEL.outputs[1]).read_text())["ledger"]["counts"]
    places.append(f"{'ledger:':<19}{_relative_to_cwd(run.ledger_path)} ({_LEDGERS[counts]})")
    return (
        "\n".join(
            [*lines, "", statement.rstrip(), "", *places, f"{'PRIVATE files:':<19}{run.private}"]
        )
        + "\n"
    )


def _table(title: str, figures_of: Mapping[str, Json], private: Sequence[str]) -> list[str]:
    """Return a head, and a row of figures for each of the `_ROWS`."""
    metrics = [
        name for name, value in figures_of.get("student", {}).items() if isinstance(value, float)
    ]
    rows = [(title, *metrics)]
    for name, row in _ROWS.items():
        if name in figures_of:
            mark = " *" if name in private else ""
            rows.append((row + mark, *(f"{figures_of[name][metric]:.3f}" for metric in metrics)))
    return text_table(rows)


def _relative_to_cwd(path: Path) -> Path:
    """Return a path relative to the working directory if it lies within."""
    folder = Path.cwd()
    return path.relative_to(folder) if path.is_relative_to(folder) else path
