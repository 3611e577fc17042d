"""Both stages of teachers in closed form, each of a record, a group or a part.

All their outputs are PRIVATE.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pate._closed_form_plan import ClosedFormPlan
from pate._files import code_version
from pate._linear import fit_linear, flat
from pate._runs import TEACHERS_FIT, TEACHERS_VOTE, Run, StageInputs
from pate._stages.beginning import begin_fit, require_same_data
from pate._validation import MOST_VOTERS, FloatArray, IntArray, StrArray, require
from pate._votes import Voting
from pate._votes.geometry import Geometry
from pate._votes.store import VoteStore
from pate._votes.voter_store import VoterStore, fingerprint_of_voters, load_voters
from pate._votes.voters import GroupVoters, RecordVoters
from pate.data import UNKNOWN, DataSource, Features, Role
from pate.data._partition import assign_teachers


def fit_closed_form(
    run: Run, data: DataSource, plan: ClosedFormPlan, *, dry_run: bool = False
) -> None:
    """Write down private records as coordinates along the public directions, with their labels.

    Args:
        run: the run's folder.
        data: the source of the records.
        plan: how records are assigned to teachers.
        dry_run: whether to print the size of the files, and write nothing.

    Raises:
        ValueError: if settings, records or earlier files do not allow it.
    """
    if plan.start_from is not None:
        from pate._stages.corrections import fit_corrections

        return fit_corrections(run, data, plan, dry_run=dry_run)
    private = data.records(Role.PRIVATE)
    if len(private) > MOST_VOTERS:  # the number of records is private
        raise ValueError(
            f"Expected at most {MOST_VOTERS} private records, whose sums are exact, got more"
        )
    data.require_distinct()
    units = private.units(plan.unit)
    public = _all_of(data.records(Role.PUBLIC).features)
    feature_map = data.feature_map
    geometry = Geometry.of(public, () if feature_map is None else feature_map.widths)
    if dry_run:
        size = len(private) * (4 * geometry.num_directions + data.num_labels)
        directions = f"{geometry.num_directions} directions, {size / 1e9:.2g} GB"
        print(f"PRIVATE: {len(private)} records along {directions}.")
        return
    beginning = begin_fit(run, data, plan, _trained)
    if beginning is None:
        return
    groups: StrArray | IntArray | None = units if plan.unit == "group" else None
    if plan.num_teachers is not None:
        names = (str(unit) for unit in units)
        groups = assign_teachers(names, num_teachers=plan.num_teachers, key=beginning.key)
    store = VoterStore(beginning.folder)
    files = store.save(private, geometry, groups, unknown_labels=data.unknown_labels)
    run.finish(TEACHERS_FIT, files, ledger_beside=data.ledger_path)


def _trained(folder: Path, _: str) -> list[str]:
    """Return the names of files of trained teachers in ``folder``."""
    return sorted(path.name for path in folder.glob("teachers_*"))


def seal_closed_form(
    run: Run,
    data: DataSource,
    plan: ClosedFormPlan,
    *,
    votes: Voting | None = None,
    absent: Sequence[int] | None = None,
) -> None:
    """Write the manifest of votes that are moments; `pate label` computes the votes themselves.

    Args:
        run: the run's folder.
        data: the source of the samples.
        plan: how records are assigned to teachers.
        votes: None; ballots are moments.
        absent: None; absent teachers are records left out of the data.

    Raises:
        ValueError: if teachers, records or an earlier manifest belong to another run.
    """
    require(
        votes is None,
        "no `votes` of teachers in closed form, whose ballots follow from how they were made",
        votes=votes,
    )
    require(
        not absent,
        "no absent teachers in closed form: leave their records out of the data",
        absent=absent,
    )
    if plan.start_from is not None:
        from pate._stages.corrections import vote_corrections

        return vote_corrections(run, data, plan)
    made_by = {"teachers": fingerprint_of_voters(run), "data": data.fingerprint(Role.PUBLIC)}
    require_same_data(run, data, plan)
    store = VoteStore(run.root.resolve() / TEACHERS_VOTE.outputs[0])
    if not run.begin(TEACHERS_VOTE, StageInputs(digests=made_by), foreign=[*store.provenance()]):
        return
    files = store.write_manifest(
        num_teachers=plan.nominal,
        label_names=data.label_names,
        made_by=made_by | {"code": code_version()},
        ids=data.records(Role.PUBLIC).ids.tolist(),
        ballots="moments",
    )
    run.finish(TEACHERS_VOTE, files)


def predicted_without_noise(run: Run, data: DataSource) -> tuple[FloatArray, FloatArray]:
    """Return answers ``[N, C]`` to test and public records, of a linear fit to private records.

    PRIVATE.
    """
    voters = load_voters(run)
    assert isinstance(voters, RecordVoters | GroupVoters)
    features = voters.geometry.unit * voters.coordinates
    known = voters.labels != UNKNOWN
    fit = fit_linear(features, np.where(known, voters.labels, 0), known)
    test, public = (
        fit.predict(voters.geometry.linear(_all_of(data.records(role).features)))
        for role in (Role.TEST, Role.PUBLIC)
    )
    return test, public


def _all_of(features: Features) -> FloatArray:
    """Return features as ``[N, F]`` float64."""
    return flat(features[np.arange(features.shape[0])])
