"""The command `pate report`."""

from collections.abc import Sequence
from pathlib import Path

from pate._commands.parsing import new_parser
from pate._reporting.disclosure import write_disclosure
from pate._reporting.report import write_report
from pate._validation import require

_NUM_SAMPLES = 20


def main(args: Sequence[str]) -> None:
    """Run `pate report`."""
    parser = new_parser(
        "report",
        "Write one page of HTML on a run: the privacy statement, the ledger, queries and answers,"
        " samples with their labels, the student's figures and curves, and the settings. It follows"
        " only from public files, public and test records and the ledger, and may be published.",
    )
    parser.add_argument("run", type=Path, help="folder of the run, at any stage")
    parser.add_argument(
        "--output",
        type=Path | None,
        default=None,
        help="the file; None for public/report.html in the run, or private/report.html with"
        " --private; with --disclosure the folder, None for public/disclosure",
    )
    parser.add_argument(
        "--private",
        action="store_true",
        help="add the teachers' votes, references, frontier, rivals and losses: PRIVATE, not to be"
        " published",
    )
    parser.add_argument(
        "--disclosure",
        action="store_true",
        help="write a folder instead: a model card (README.md) and an entry for the registry of"
        " deployments (registry.yaml), from public files",
    )
    parser.add_argument(
        "--num_samples",
        type=int | None,
        default=None,
        help=f"number of queries shown with their labels; {_NUM_SAMPLES} by default",
    )
    parsed = parser.parse_args(list(args))
    number = parsed.num_samples
    if parsed.disclosure:
        require(not parsed.private, "a disclosure without --private", private=parsed.private)
        require(number is None, "a disclosure without --num_samples", num_samples=number)
        print(write_disclosure(parsed.run, output=parsed.output))
        return
    num_samples = _NUM_SAMPLES if number is None else number
    path = write_report(
        parsed.run, output=parsed.output, private=parsed.private, num_samples=num_samples
    )
    print(f"{path}{' (PRIVATE: not to be published)' if parsed.private else ''}")
