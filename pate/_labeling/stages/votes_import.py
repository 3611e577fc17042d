"""The import of votes into a run, in the form that `pate teachers vote` writes.

Votes in memory or in files, a file for each silo, are checked against each other and against the
public records before any is written. All of it is PRIVATE.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from pate._core.accounting.history import PrivacyUnit
from pate._core.accounting.ledger import ledger_beside, ledger_in
from pate._core.files.reading import Json, digest
from pate._core.progress import step_bar
from pate._core.validation import require
from pate._labeling.data.records import Role
from pate._labeling.data.source import DataSource, expand_path
from pate._labeling.release.between_runs import (
    choose_ledger,
    ledger_setting,
    open_ledger,
    require_ledger,
    unit_by,
)
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.runs.named_votes import NamedVotes, Silos
from pate._labeling.runs.run import (
    LABEL,
    TEACHERS_FIT,
    VOTES_IMPORT,
    Run,
    StageInputs,
    describe_data,
    ensure_key,
    load_ledger,
    read_key,
)
from pate._labeling.runs.vote_store import VoteStore, require_features
from pate._labeling.votes.kinds import NoisyTotal, Votes


class AwaitedTotal(NoisyTotal, Protocol):
    """A sum of silos that may still send their shares."""

    def collect(self) -> None:
        """Wait until all shares are there, before the sum is paid for."""


@dataclass(frozen=True, kw_only=True)
class VotesFrom:
    """The origin of imported votes, and the unit that the statement protects.

    Attributes:
        silos: the votes of each silo.
        unit: the word for the protected unit, such as ``patient``, which reaches only one teacher.
            None for the word of the run, or ``record``.
        path: the file or folder of the votes. Their ledger is next to the file or in the folder.
            None for votes from memory.
        total: the sum over silos that mask their votes. None for other votes.

    Raises:
        ValueError: if the unit is not one word.
    """

    silos: Silos
    unit: str | None = None
    path: Path | None = None
    total: AwaitedTotal | None = None

    def __post_init__(self) -> None:
        require(
            self.unit is None or re.fullmatch(r"\w+", self.unit),
            "unit as one word, such as record or patient",
            unit=self.unit,
        )

    @property
    def ledger_path(self) -> Path | None:
        """The default ledger: next to a file of votes, or in a folder of silos."""
        if self.path is None:
            return None
        # a link to the same votes leads to the same ledger
        place = self.path.resolve()
        return ledger_in(place) if place.is_dir() else ledger_beside(place)

    def fingerprint(self, key: bytes) -> str:
        """Return a hash of all votes, which confirms no guess without the ``key`` of the run."""
        return digest(key, *self.silos.fingerprints)


def votes_from(
    votes: NamedVotes | Sequence[NamedVotes] | Path | str, *, unit: str | None = None
) -> VotesFrom:
    """Return the origin of votes in memory, one object for each silo, or in a file or folder.

    Raises ``ValueError`` if a file is missing or damaged, or silos disagree.
    """
    if isinstance(votes, str | Path):
        path = expand_path(votes)
        return VotesFrom(silos=Silos.read(path), unit=unit, path=path)
    return VotesFrom(
        silos=Silos.of((votes,) if isinstance(votes, NamedVotes) else tuple(votes)), unit=unit
    )


def open_votes_run(
    root: Path, votes: VotesFrom, *, ledger: Path | None = None, overwrite: bool = False
) -> Run:
    """Return the run at ``root`` with the ledger of its votes. Writes nothing.

    Args:
        root: the run's folder.
        votes: the votes.
        ledger: the requested ledger. None for the ledger of the run or of the votes.
        overwrite: whether other votes may replace the votes of the run.

    Raises:
        ValueError: if the run has teachers, or its ledger is missing or not the one that it began
            with.
    """
    run = Run(root, overwrite=overwrite, ledger=load_ledger(root))
    require(
        run.state(TEACHERS_FIT) is None,
        "a run folder of their own for votes, without teachers",
        run=str(root),
    )

    key = read_key(run)
    chosen = choose_ledger(
        root,
        ledger,
        votes.ledger_path,
        what="votes",
        began_with=lambda begun: key is not None and begun.get("votes") == votes.fingerprint(key),
        overwrite=overwrite,
    )
    run = replace(run, ledger=chosen)
    require_ledger(run)
    return run


def require_served(
    run: Run, votes: VotesFrom, data: DataSource | None, settings: LabelSettings
) -> PrivacyUnit:
    """Return for whom labels of votes that are about to be imported will be priced.

    Raises:
        ValueError: if neither votes nor data have the features that the mechanism needs, or more
            silos are copies of each other than a unit may reach teachers.
    """
    silos, imported = votes.silos, _import_settings(run, votes, data)
    _require_no_copies(silos, settings.max_teachers_per_unit)
    if "features" in settings.mechanism.needs and silos.features is None:
        name = type(settings.mechanism).__name__
        require_features(imported["data"], name, silos.kind, len(silos.ids))
    state, key = run.state(VOTES_IMPORT), read_key(run)
    return unit_by(state, key) if state and key else PrivacyUnit(unit=str(imported["unit"]))


def _require_no_copies(silos: Silos, max_teachers_per_unit: int) -> None:
    """Raise ``ValueError`` if more silos are copies of each other than a unit may reach teachers.

    Through a copied silo each of its records reaches several teachers, also if the copy has its
    ballots in another order or holds their counts; scores are compared by their sums. Silos that
    answer all samples alike, such as silos that stay away, are not copies.
    """
    alike = Counter(
        (silo.num_teachers, silo.vote_sum_digest)
        for silo in silos.members
        if silo.vote_sum_digest is not None
    )
    copies = max(alike.values(), default=1)
    require(
        copies <= max_teachers_per_unit,
        f"silos that are no copies of each other, or max_teachers_per_unit >= {copies}",
        max_teachers_per_unit=max_teachers_per_unit,
    )


def import_votes(run: Run, votes: VotesFrom, data: DataSource | None = None) -> None:
    """Import votes into the run's private folder, in the form that `pate label` reads.

    Importing the same votes again changes nothing, except that records for a student may be added.

    Args:
        run: the run from `open_votes_run`.
        votes: the votes.
        data: the source of the public and test records for a student, if there is one.

    Raises:
        ValueError: if the run was begun with other votes and is not overwritten, if samples or
            labels of the votes are not in the public records, or if the ledger cannot be used.
    """
    if data is not None:
        require_of_data(votes.silos, data)
    if run.overwrite or not run.is_finished(VOTES_IMPORT):
        # a copy of another ledger is refused before the run is begun with it
        open_ledger(run)
    key = ensure_key(run, VOTES_IMPORT)
    inputs = StageInputs(
        _import_settings(run, votes, data),
        {"votes": votes.fingerprint(key), "partition": digest(key)},
    )
    _add_data(run, inputs)
    _forget_unit(run, inputs)
    if not run.begin(VOTES_IMPORT, inputs):
        return
    store, silos = VoteStore(run.root.resolve() / VOTES_IMPORT.outputs[0]), votes.silos
    teachers = range(0)
    with step_bar(len(silos.members), "import of votes", unit="silo") as bar:
        for silo in silos.members:
            teachers = range(teachers.stop, teachers.stop + silo.num_teachers)
            _import_silo(store, teachers, silo.votes(), silos.kind)
            bar.update()
    files = {} if silos.features is None else store.save_features(silos.features)
    files |= store.write_manifest(
        ids=silos.ids.tolist(),
        label_names=silos.label_names,
        num_teachers=silos.num_teachers,
        made_by={"votes": inputs.digests["votes"]},
        ballots=silos.kind.form,
    )
    run.finish(VOTES_IMPORT, files, ledger_beside=votes.ledger_path)


def _import_silo(store: VoteStore, teachers: range, votes: NamedVotes, kind: type[Votes]) -> None:
    """Write the votes of one silo, and free their memory before the next silo is read."""
    if (ballots := votes.to_store(kind)) is not None:
        store.save_chunk(teachers, ballots)
    else:
        assert votes.counts is not None
        store.save_counts(teachers, votes.counts)


def require_of_data(votes: Silos, data: DataSource) -> None:
    """Raise ``ValueError`` unless the votes are on public records and labels of ``data``."""
    names = data.label_names
    require(
        votes.label_names == names,
        f"votes on the labels of the data, {', '.join(names)}",
        label_names=votes.label_names,
    )
    unknown = np.setdiff1d(votes.ids, data.load(Role.PUBLIC).ids)
    require(unknown.size == 0, "votes on ids of the public records", unknown=unknown[:3].tolist())


def _import_settings(run: Run, votes: VotesFrom, data: DataSource | None) -> Json:
    """Return the settings of an import; settings that are not named stay as they were."""
    recorded = {"unit": "record", "data": None} | dict(run.inputs_of(VOTES_IMPORT).settings)
    return {
        "unit": recorded["unit"] if votes.unit is None else votes.unit,
        "data": recorded["data"] if data is None else describe_data(data),
        "ledger": ledger_setting(run),
    }


def _add_data(run: Run, inputs: StageInputs) -> None:
    """Record the data of a run that had none; votes and releases do not depend on them."""
    state, data = run.state(VOTES_IMPORT), inputs.settings["data"]
    if state is not None and state.inputs.settings.get("data") is None and data is not None:
        without = replace(inputs, settings={**inputs.settings, "data": None})
        run.needs(VOTES_IMPORT, without)  # raises on any other change
        begun = replace(state.inputs, settings={**state.inputs.settings, "data": data})
        run.record(VOTES_IMPORT, replace(state, inputs=begun))


def _forget_unit(run: Run, inputs: StageInputs) -> None:
    """Remove statements for another unit; `label` writes them again at no cost."""
    unit = inputs.settings["unit"]
    if run.overwrite and run.inputs_of(VOTES_IMPORT).settings.get("unit", unit) != unit:
        for statement in LABEL.outputs[1:]:
            (run.root / statement).unlink(missing_ok=True)
