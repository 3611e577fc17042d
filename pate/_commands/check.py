"""The commands `pate check` and `pate pack`."""

from collections.abc import Sequence
from pathlib import Path

from pate._commands.parsing import new_parser
from pate._commands.run_check import check_run
from pate._commands.suggestions import with_options
from pate._release.statements import pack as write_archive
from pate._validation import one_line


def check(args: Sequence[str]) -> None:
    """Run `pate check`. Ends with status 1 and a line for each problem, if there are any."""
    summary = (
        "Check that a run is as its commands left it: files and their digests, the seal of its"
        " labels, ledger and statement, the mode of its private folder, and a public folder without"
        " private files. Prints the next command, or ends with status 1 and a line for each fault."
    )
    parser = new_parser("check", summary)
    parser.add_argument("run", type=Path, help="folder of the run, at any stage")
    run: Path = parser.parse_args(list(args)).run
    result = check_run(run)
    if result.problems:
        print("\n".join(one_line(with_options(f"{run}: {problem}")) for problem in result.problems))
        raise SystemExit(1)
    print(f"{run}: all is well; finished: {', '.join(result.finished) or 'nothing yet'}")
    for note in result.notes:
        print(f"{run}: {note}")
    print(f"next: {result.next_command}")


def pack(args: Sequence[str]) -> None:
    """Run `pate pack`."""
    summary = (
        "Write the public files of a run, and nothing else, as one zip archive: labels, statement,"
        " student, report. The same files give the same bytes. Refused if anything in the public"
        " folder is private or unexpected."
    )
    parser = new_parser("pack", summary)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument(
        "--output",
        type=Path | None,
        default=None,
        help="the archive; None for public.zip in the run",
    )
    parsed = parser.parse_args(list(args))
    output: Path = parsed.output or parsed.run / "public.zip"
    write_archive(parsed.run, output)
    print(output)
