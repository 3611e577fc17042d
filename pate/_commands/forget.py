"""The command `pate forget`."""

from collections.abc import Sequence
from pathlib import Path

from pate._commands.parsing import from_options, new_parser
from pate._data_file import load_data
from pate._pipeline import Pipeline, open_run
from pate._runs import LABEL
from pate.teachers._jobs import Execution

_SUMMARY = (
    "Remake teachers and votes as in a run without some private records, bit for bit.\n\nOnly the"
    " chunks of teachers that saw one of them are trained again; all teachers vote again. Call it"
    " while the data still hold the records, so that the run can check that all others are the"
    " same. Then take them out of the data and call it again, which checks that they are gone and"
    " nothing else changed. Released labels and everything made of them stay: their guarantee"
    " covers every record, including the forgotten ones."
)


def main(args: Sequence[str]) -> None:
    """Run `pate forget`."""
    parser = new_parser("forget", _SUMMARY)
    parser.add_argument(
        "ids", nargs="+", help="ids of private records or, with `unit: group`, groups"
    )
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_class_arguments(Execution, as_group=False, skip={"shared"})
    parsed = parser.parse_args(list(args))
    forgotten = Pipeline(parsed.run).forget(parsed.ids, from_options(Execution, parsed))
    print("\n".join(_report(parsed.run, len(set(parsed.ids)), forgotten)))


def _report(root: Path, number: int, forgotten: bool) -> list[str]:
    """Return the next step, the files that stay, and the files that only the owner can delete."""
    from pate._stages.forgetting import residual_files

    run = open_run(root)
    if forgotten:
        lines = [
            f"Forgotten: {number}. Teachers and votes of {root} equal those of a run without.",
            "Next: take the same out of the data, which the run refuses until then, and call this"
            " again to check that.",
        ]
    else:
        lines = ["The data hold none of these, and all other records equal those of the teachers."]
    if run.is_finished(LABEL):
        lines.append(
            "Released files stay: labels, statement and student. Their guarantee covers the"
            " forgotten like everybody else. New labels by the present votes would be another"
            " release, at a further cost."
        )
    lines += [
        f"May hold forgotten records, and is yours to delete: {path}"
        for path in residual_files(run, load_data(run))
    ]
    return [*lines, "Other runs on these data, copies and backups are not looked at."]
