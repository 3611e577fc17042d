"""Labels from votes that a program holds: the private step in one call, as `pate label --votes` takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from pate.accounting.statement import Statement
from pate.data_file import read_data
from pate.release import labels as stage
from pate.release.label_settings import LabelSettings
from pate.runs import LABEL
from pate.runs.locks import lock_run, release_locks
from pate.runs.released import ReleasedLabels
from pate.stages.votes_import import VotesFrom, expect_served, import_votes, open_votes_run
from pate.votes_file import NamedVotes, read_silos


@dataclass(frozen=True, kw_only=True, eq=False)
class StatedLabels(ReleasedLabels):
    """Released labels with the statement of what they and all earlier releases cost. PUBLIC.

    Attributes:
        statement: the content of ``privacy.json``; its `verify` makes it again.
    """

    statement: Statement

    def describe(self) -> str:
        """Return the statement as text, the content of ``privacy.txt``."""
        return self.statement.text


def label(
    votes: NamedVotes | Sequence[NamedVotes] | Path | str,
    settings: LabelSettings,
    *,
    run: Path | str,
    data: Path | str | None = None,
    unit: str | None = None,
    ledger: Path | str | None = None,
    overwrite: bool = False,
) -> StatedLabels:
    """Label public samples from votes through a private mechanism, and state what all releases so far cost.

    The cost is in the ledger before the noise is drawn. The same call again returns the labels that are there. Other
    settings are refused unless ``overwrite``; labels are then released anew and paid for again.

    Args:
        votes: the votes, those of each silo, or a file or folder of them as for `pate label --votes`.
        settings: the queries, the mechanism, delta and the budget.
        run: the folder of the run, made if it is missing.
        data: a ``data.yaml`` that names public and test records, which `pate student` needs; None for that of the run.
        unit: the word for what reaches one teacher alone, such as ``patient``; None for that of the run, or ``record``.
        ledger: the ledger of the private data behind the votes. None for the file beside the votes; for votes from
            memory the run then has its own, which counts this run alone.
        overwrite: whether a run that was begun with other votes or settings is done again.

    Raises:
        ValueError: in one line, if anything does not fit; nothing is spent then.
    """
    place = None if ledger is None else Path(ledger)
    if isinstance(votes, str | Path):
        source = VotesFrom(silos=read_silos(Path(votes)), unit=unit, path=Path(votes), ledger=place)
    else:
        silos = (votes,) if isinstance(votes, NamedVotes) else tuple(votes)
        source = VotesFrom(silos=silos, unit=unit, ledger=place)
    records = None if data is None else read_data(Path(data))
    root = Path(run)
    lock_run(root)
    try:
        opened = open_votes_run(root, source, overwrite=overwrite)
        expect_served(settings, opened, source, records)
        import_votes(opened, source, records)
        stage.label(opened, settings)
        released = ReleasedLabels.load(opened)
        statement = Statement.read(root / LABEL.outputs[1])
    finally:
        release_locks()
    found = {field.name: getattr(released, field.name) for field in fields(ReleasedLabels)}
    return StatedLabels(**found, statement=statement)
