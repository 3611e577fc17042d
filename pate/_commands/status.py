"""The command `pate status`: the progress of each stage of a run, and its processes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pate._commands.parsing import run_command
from pate._files import lease, read_json
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
from pate._validation import require

_CHUNKS = {TEACHERS_FIT: "teachers_*.pt", TEACHERS_VOTE: "votes_*.json"}
"""The file that a stage writes for each chunk."""


def status(run: Path) -> None:
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


main = partial(run_command, "status", status)


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
