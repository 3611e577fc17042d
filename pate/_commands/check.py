"""The commands `pate check`, `pate pack` and `pate status`."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pate._commands.parsing import run_command
from pate._commands.run_check import check_run
from pate._commands.suggestions import with_options
from pate._files import lease, read_json
from pate._release.labels import pack as write_archive
from pate._runs import (
    LABEL,
    STUDENT,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    VOTES_IMPORT,
    Run,
    Stage,
    first_stage,
)
from pate._validation import one_line, require


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


_CHUNKS = {TEACHERS_FIT: "teachers_*.pt", TEACHERS_VOTE: "votes_*.json"}
"""The file that a stage writes for each chunk."""


def print_status(run: Path) -> None:
    """Show the progress of each stage of a run, and the processes that work on its chunks.

    It is quick because it compares no contents, unlike `pate check`. Leases of dead processes are
    removed.

    Args:
        run: folder of the run.
    """
    begun = Run(run)
    require(begun.private.is_dir(), "the folder of a run that was begun", path=str(run))
    imported = first_stage(begun) is VOTES_IMPORT
    stages = (VOTES_IMPORT,) if imported else (TEACHERS_FIT, TEACHERS_VOTE)
    for stage in (*stages, LABEL, STUDENT):
        print(f"{stage.name:<15}{_progress(begun, stage)}")
        for worker in _workers(begun, stage):
            print(f"{'':<15}{worker}")


status = partial(run_command, "status", print_status)


def _progress(run: Run, stage: Stage) -> str:
    state = run.state(stage)
    if state is None:
        return "not begun"
    if state.finished:
        return "finished"
    folder, size = run.root / stage.outputs[0], run.private / "teachers" / "chunk_size.json"
    if stage not in _CHUNKS or not size.is_file():
        return "begun"
    num_teachers = run.inputs_of(TEACHERS_FIT).settings["num_teachers"]
    num_chunks = -(-num_teachers // read_json(size.read_text())["chunk_size"])
    return f"{len(list(folder.glob(_CHUNKS[stage])))} of {num_chunks} chunks"


def _workers(run: Run, stage: Stage) -> Iterator[str]:
    """Yield the chunks under work, each with its process."""
    for path in sorted((run.root / stage.outputs[0]).glob("*.lease")):
        worker = path.read_text()
        with lease(path) as free:
            if not free:
                yield f"{path.stem}: {worker}"
