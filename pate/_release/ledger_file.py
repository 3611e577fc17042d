"""The choice of a run's ledger: one for all runs on the same private data, where possible."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pate._data_file import load_ledger
from pate._files import Json
from pate._runs import LABEL, Run, first_stage, labels_file
from pate._validation import require
from pate.accounting._ledger import Ledger, is_ledger_of, one_ledger
from pate.accounting._statement_words import AUDIT
from pate.data import Role
from pate.data._source import DataSource, expand_path

_CANARIES = "pate._audit.canaries.CanaryRecords"


@dataclass(frozen=True)
class PrivateSource:
    """A private source of records or votes, with the ledger that counts its releases.

    Attributes:
        what: a plural noun for it in errors.
        ledger: the file next to it, or None if it has no place.
        same: returns whether the run began with it, given the inputs that its first stage recorded.
    """

    what: str
    ledger: Path | None
    same: Callable[[Json], bool]


def choose_ledger(
    root: Path, requested: Path | None, data: DataSource, *, overwrite: bool = False
) -> Path | None:
    """Return the absolute path of the ledger of the run at ``root``; None for the run's own.

    Writes nothing.

    A run keeps the ledger that it began with. A new run takes the requested one, or else the file
    next to the data, unless no file can be created there.

    Args:
        root: the run's folder.
        requested: the ledger that the user names, or None.
        data: the source of the records.
        overwrite: whether the run's teachers are trained again.

    Raises:
        ValueError: if the run began with another ledger than the requested one and is not
            overwritten; if it is overwritten with records that another ledger counts; if the ledger
            next to the data is read-only, or another one there may count them too.
    """
    source = PrivateSource(
        "private records",
        data.ledger_path,
        lambda inputs: inputs.get(Role.PRIVATE.value) == data.fingerprint(Role.PRIVATE),
    )
    return choose_ledger_of(root, requested, source, overwrite=overwrite)


def choose_ledger_of(
    root: Path, requested: Path | None, source: PrivateSource, *, overwrite: bool = False
) -> Path | None:
    """Return the ledger of the run at ``root`` like `choose_ledger`, for any private ``source``."""
    ledger_of_run = root / "ledger.sqlite"
    begun, recorded = (root / "data.yaml").is_file(), load_ledger(root)
    same = (
        requested is None
        or expand_path(requested).resolve() == (recorded or ledger_of_run).resolve()
    )
    if begun and (same or not overwrite):
        require(
            same,
            f"`ledger` left out, or the ledger that {root} was begun with,"
            f" {recorded or ledger_of_run}",
            ledger=str(requested),
        )
        run = Run(root)
        state = run.state(first_stage(run))
        if overwrite and state is not None and _ledger_beside(source) != recorded:
            # releases from other records belong in another ledger
            require(
                source.same(dict(state.inputs.digests)),
                f"the {source.what} that {root} was begun with, whose releases"
                f" {recorded or ledger_of_run} counts. Choose another run folder with `run`, or"
                " name the ledger of these by `ledger`",
            )
        return recorded
    return _ledger_beside(source) if requested is None else expand_path(requested).absolute()


def ledger_setting(run: Run) -> str | None:
    """Return the place of the ledger among the settings of a run's first stage.

    The place affects no output, and the ledger may have moved since the stage began: as long as the
    run keeps its ledger, the place recorded then is returned.
    """
    begun = run.state(first_stage(run))
    if begun is not None and run.ledger == load_ledger(run.root):
        return begun.inputs.settings.get("ledger")
    return None if run.ledger is None else str(run.ledger)


def _ledger_beside(source: PrivateSource) -> Path | None:
    if source.ledger is None:
        return None
    beside = one_ledger(source.ledger.absolute())
    if beside.exists():
        # a ledger out of reach must not lead to a new budget
        require(
            _may_write(beside) and _may_write(beside.parent),
            "a writable ledger of the private data; `ledger` names another",
            path=str(beside),
        )
        return beside
    return beside if beside.parent.is_dir() and _may_write(beside.parent) else None


def _may_write(path: Path) -> bool:
    # the superuser could write a file that is marked read-only, but must not
    return os.access(path, os.W_OK) and bool(
        path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    )


def open_ledger(run: Run, max_teachers_per_unit: int = 1) -> Ledger:
    """Open the run's ledger for units that reach ``max_teachers_per_unit`` teachers.

    It is created if the run has not used it yet.

    Raises:
        ValueError: if the ledger existed and is missing, is a copy of one that is still in its
            place, or is unusable.
    """
    require_ledger(run)
    path = run.ledger_path
    if run.ledger is not None and run.data_config.is_file():
        # once the data have moved away, no new budget may begin in their old place
        require(
            path.parent.is_dir(),
            f"a folder for the ledger, whose place is `ledger:` in {run.data_config}",
            path=str(path),
        )
    return Ledger(path, home=path.resolve(), max_teachers_per_unit=max_teachers_per_unit)


def require_ledger(run: Run) -> None:
    """Raise ``ValueError`` if the ledger that a run began with is missing, and so is its cost."""
    path = run.ledger_path
    if path.exists():
        return
    spent = labels_file(run).exists() or run.state(LABEL) is not None
    first = first_stage(run)
    # a run that began with the ledger of its data does not switch to one of its own
    shared = run.inputs_of(first).settings.get("ledger") is not None
    finished = run.is_finished(first) and load_ledger(run.root) == run.ledger
    expected = (spent or shared) if run.ledger is None else finished
    require(
        not expected,
        f"the ledger of {run.root} where it was; if it was moved, name its place by `ledger:` in"
        f" {run.data_config}",
        missing=str(path),
    )


def ledger_scope(run: Run) -> str:
    """Return which releases the ledger of a run counts, in the words of statements.

    A named ledger counts all releases of the private data only if it lies in their place and no
    other ledger there may count them: runs that did not name it may have used the other one. With
    canaries among the records, the ledger counts the releases of an audit, wherever it lies.
    """
    first = first_stage(run)
    data = run.inputs_of(first).settings.get("data")
    if data is not None and data["class_path"] == _CANARIES:
        return AUDIT
    state = run.state(first)
    beside = None if state is None else state.beside
    return scope_beside(run.ledger, None if beside is None else Path(beside))


def scope_beside(ledger: Path | None, beside: Path | None) -> str:
    """Return the scope of a named ledger, if any, for data with the default ledger ``beside``."""
    if ledger is None:
        return "run"
    data = beside is not None and is_ledger_of(ledger, beside)
    return "private data" if data else "named"
