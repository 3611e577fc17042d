"""The checks of `pate check`: whether a run is as its commands left it, and its next command."""

import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pate._data_file import load_ledger, require_data_config
from pate._release.labels import require_stated
from pate._release.ledger_file import require_ledger
from pate._runs import (
    LABEL,
    METRICS,
    REFERENCES,
    REPORT,
    STUDENT,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    VOTES_IMPORT,
    Run,
    Stage,
    first_stage,
)
from pate._runs.released import require_student, unexpected_public_files
from pate._validation import Faults, require
from pate.accounting._ledger import verify_ledger

_FIRST_SETTINGS = {
    TEACHERS_FIT: "--config data.yaml --config teachers.yaml",
    VOTES_IMPORT: "votes.npz",
    LABEL: "--target_epsilon 1 --delta 1e-6",
    STUDENT: "--model.network pate.models.Linear",
}
"""Settings to begin a stage with."""


@dataclass(frozen=True)
class RunCheck:
    """The state of a run.

    Attributes:
        finished: the commands of finished stages.
        problems: one line for each fault, with its remedy.
        next_command: the command that continues the run; None as long as there are problems.
        notes: one line for each thing that happened elsewhere and calls for the next command.
    """

    finished: tuple[str, ...]
    problems: tuple[str, ...]
    next_command: str | None
    notes: tuple[str, ...] = ()


def check_run(root: Path) -> RunCheck:
    """Check the digests of a run's files, the seal of its labels, its ledger and its statement.

    Ledger and statement are computed again from their events. Nothing is written.

    Raises:
        ValueError: if ``root`` is not the folder of a run.
    """
    run, faults = Run(root), Faults()
    begun = run.data_config.is_file() or (root / first_stage(run).state).is_file()
    require(begun, "the folder of a run, with its data.yaml", path=str(root))
    if not run.private.is_dir():  # all other faults would follow from that
        return RunCheck((), (f"Expected {run.private}, got no such folder. Put it back",), None)
    later, fit = 0, run.state(TEACHERS_FIT)
    if fit is not None and fit.forgotten and (fit.again or not fit.finished):
        ended = f"an end of `pate forget` of {root}, which the same call reaches"
        return RunCheck((), (f"Expected {ended}",), None)
    with faults.gather((OSError, ValueError)):
        require_data_config(run)
        run = replace(run, ledger=load_ledger(root))
        require_ledger(run)
        if run.ledger_path.exists():
            verify_ledger(run.ledger_path)
    for stage in _stages(run):
        with faults.gather((OSError, ValueError)):
            _require_intact(run, stage)
    with faults.gather((OSError, ValueError)):
        later = require_stated(run)
    with faults.gather((OSError, ValueError)):
        mode = stat.S_IMODE(run.private.stat().st_mode)
        closed = f"{run.private} of mode 0700: chmod 700 {shlex.quote(str(run.private))}"
        require(not mode & 0o077, closed, mode=f"{mode:04o}")
    with faults.gather((OSError, ValueError)):
        faults.lines.extend((*_unreadable(run.private), *unexpected_public_files(run)))
    if faults.lines:
        return RunCheck((), tuple(faults.lines), None)
    finished = tuple(stage.name for stage in _stages(run) if run.is_finished(stage))
    place, notes = shlex.quote(str(root)), []
    if later:
        notes.append(
            f"the ledger holds {later} later release(s) of other runs on these data, which the"
            " statement does not count until labels are stated again"
        )
    if fit is not None and fit.forgotten:
        notes.append(run.to_forget)
        return RunCheck(finished, (), f"pate forget ID ... --run {place}", tuple(notes))
    if later:
        again = f"pate label --config {shlex.quote(str(run.root / LABEL.config))} --run {place}"
        return RunCheck(finished, (), again, tuple(notes))
    return RunCheck(finished, (), _next_command(run))


def _stages(run: Run) -> tuple[Stage, ...]:
    voting = (VOTES_IMPORT,) if first_stage(run) is VOTES_IMPORT else (TEACHERS_FIT, TEACHERS_VOTE)
    return (*voting, LABEL, STUDENT, REFERENCES)


def _require_intact(run: Run, stage: Stage) -> None:
    """Raise ``ValueError`` unless a stage's files are unchanged and match the stages before it."""
    left = (
        run.state(stage) is None
        and not stage.self_describing
        and any((run.root / path).exists() for path in stage.outputs)
    )
    if stage is STUDENT and run.is_finished(STUDENT):
        require_student(run)
    elif run.is_finished(stage) or left:
        run.require_finished(stage)


def _unreadable(private: Path) -> Iterator[str]:
    """Yield an error for each entry of the private folder that is neither a file nor a folder."""
    for path in sorted(private.rglob("*")):
        if not (path.is_file() or path.is_dir()):
            yield f"Expected plain files in {private}, got {path.relative_to(private)}. Delete it"


def _next_command(run: Run) -> str:
    """Return the first command that has not finished."""
    place = shlex.quote(str(run.root))
    for stage in _stages(run):
        data = run.inputs_of(first_stage(run)).settings.get("data")
        optional = stage is REFERENCES and run.state(stage) is None
        if run.is_finished(stage) or optional or (stage is STUDENT and data is None):
            continue
        settings = _FIRST_SETTINGS.get(stage, "")
        if stage is not VOTES_IMPORT and (run.root / stage.config).is_file():
            settings = f"--config {shlex.quote(str(run.root / stage.config))}"
        return " ".join(filter(None, ["pate", stage.name, settings, "--run", place]))
    if run.is_finished(STUDENT) and not (run.root / STUDENT.outputs[0] / METRICS).is_file():
        return f"pate student test --run {place}"
    return f"pate {'pack' if (run.root / REPORT).is_file() else 'report'} {place}"
