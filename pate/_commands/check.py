"""The commands `pate check` and `pate pack`."""

from functools import partial
from pathlib import Path

from pate._commands.parsing import run_command
from pate._commands.run_check import check_run
from pate._commands.suggestions import with_options
from pate._release.statements import pack as write_archive
from pate._validation import one_line


def check_and_print(run: Path) -> None:
    """Check that a run is as its commands left it.

    Files and their digests, the seal of its labels, ledger and statement, the mode of its private
    folder, and a public folder without private files. Prints the next command, or ends with status
    1 and a line for each fault.

    Args:
        run: folder of the run, at any stage.
    """
    result = check_run(run)
    if result.problems:
        print("\n".join(one_line(with_options(f"{run}: {problem}")) for problem in result.problems))
        raise SystemExit(1)
    print(f"{run}: all is well; finished: {', '.join(result.finished) or 'nothing yet'}")
    for note in result.notes:
        print(f"{run}: {note}")
    print(f"next: {result.next_command}")


def pack_public(run: Path, *, output: Path | None = None) -> None:
    """Write the public files of a run, and nothing else, as one zip archive.

    It has labels, statement, student and report. The same files give the same bytes. Refused if
    anything in the public folder is private or unexpected.

    Args:
        run: folder of the run.
        output: the archive; None for public.zip in the run.
    """
    archive = output or run / "public.zip"
    write_archive(run, archive)
    print(archive)


check = partial(run_command, "check", check_and_print)
pack = partial(run_command, "pack", pack_public)
