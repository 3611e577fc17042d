"""The run that a stage works on, with the ledger that counts its releases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pate._data_file import expect_described, load_ledger
from pate._release.ledger_file import choose_ledger, expect_ledger
from pate._runs import VOTES_IMPORT, Run, first_stage
from pate._validation import expect
from pate.data._source import DataSource


def open_run(root: Path, data: DataSource | None = None, *, ledger: Path | None = None, overwrite: bool = False) -> Run:
    """Return the run at ``root`` with its ledger, which is chosen by the stage that brings ``data``. Writes nothing.

    Args:
        root: the run's folder.
        data: the source of the records, for the stage that brings them; None for any other.
        ledger: the ledger that is asked for by the stage that brings data; None for that of the run or of the data.
        overwrite: whether a stage whose settings changed is done again.

    Raises:
        ValueError: if the ledger is missing or not that with which the run was begun, or the run has imported votes in
            place of teachers.
    """
    run = Run(root, overwrite=overwrite, ledger=load_ledger(root))
    if data is None:
        if run.state(first_stage(run)) is not None:
            # which ledger counts is said there
            expect_described(run)
    else:
        of_votes = first_stage(run) is VOTES_IMPORT
        expect(not of_votes, "a run folder of their own for teachers, without imported votes", run=str(run.root))
        run = replace(run, ledger=choose_ledger(run.root, ledger, data, overwrite=run.overwrite))
    expect_ledger(run)
    return run
