"""Both stages of teachers in closed form, each of a record, a group or a part.

Those that start from a released student correct it by their own records, and vote.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pate._closed_form_plan import ClosedFormPlan
from pate._files import atomic_write, code_version, digest, require_disk
from pate._linear import fit_linear, flat
from pate._progress import stage_bar
from pate._release.starting import Start
from pate._runs import TEACHERS_FIT, TEACHERS_VOTE, Run, StageInputs
from pate._stages.beginning import begin_fit, require_same_data
from pate._validation import (
    MOST_VOTERS,
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    StrArray,
    require,
)
from pate._votes import Voting, pack_ballots, rows_of
from pate._votes.geometry import Geometry
from pate._votes.store import VoterStore, VoteStore, fingerprint_of_voters, load_voters
from pate._votes.voters import GroupVoters, RecordVoters
from pate.data import UNKNOWN, DataSource, Features, Role
from pate.data._checks import known_truth
from pate.data._partition import assign_teachers, partition_records
from pate.data._records import as_features


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
        return fit_corrections(run, data, plan, dry_run=dry_run)
    private = data.records(Role.PRIVATE)
    # their number is private
    require(
        len(private) <= MOST_VOTERS, f"at most {MOST_VOTERS} private records, whose sums are exact"
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
        budgets=data.budgets,
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


_CHUNK = 100  # teachers whose votes lie in one file


def fit_corrections(
    run: Run, data: DataSource, plan: ClosedFormPlan, *, dry_run: bool = False
) -> None:
    """Let each teacher correct the student that it starts from, by its own records.

    A correction is a ridge solution. Its targets are the differences of the teacher's known labels
    from the student's answers. The penalty is public: the mean square of a public sample, by which
    one record moves the answer to itself half of the way to its labels. A teacher without records
    leaves the student as it is.

    Args:
        run: the run's folder.
        data: the source of the records.
        plan: the number of teachers, and the student that they start from.
        dry_run: whether to print what will be written, and write nothing.

    Raises:
        ValueError: if settings, records, the student or earlier files do not allow it.
    """
    assert plan.start_from is not None
    require(
        plan.num_teachers is not None,
        "`num_teachers` with start_from, which `pate run` finds for a target",
        num_teachers=None,
    )
    private, public = data.records(Role.PRIVATE), _with_constant(data, Role.PUBLIC)
    data.require_distinct()
    units = private.units(plan.unit)
    shape = (plan.nominal, public.shape[1], data.num_labels)
    size = 4 * int(np.prod(shape))
    if dry_run:
        print(f"PRIVATE: corrections of {plan.nominal} teachers, {size / 1e9:.2g} GB.")
        return
    start = Start.of(run, plan.start_from, data)
    beginning = begin_fit(run, data, plan, _trained)
    if beginning is None:
        return
    files = [beginning.folder / name for name in ("start.npy", "corrections.npy")]
    require_disk(size, beginning.folder, "teachers")
    with atomic_write(files[0]) as file:
        np.save(file, start.answers(data.load(Role.PUBLIC).features[np.arange(len(public))]))
    penalty = float((public.astype(np.float64) ** 2).sum(axis=1).mean())
    partition = partition_records(private.ids, units, num_teachers=plan.nominal, key=beginning.key)
    raw, feature_map = data.load(Role.PRIVATE), data.feature_map
    raw_rows = rows_of(private.ids, raw.ids)
    with (
        atomic_write(files[1]) as file,
        stage_bar(len(partition), "teachers", unit="teacher") as bar,
    ):
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )
        for rows in partition:
            samples = raw.features[raw_rows[rows]]
            if feature_map is not None and feature_map.by_rows:  # which need not be read again
                seen = feature_map.transform(as_features(samples))[:]
            else:
                seen = private.features[rows]
            right, known = known_truth(private.labels[rows])
            residuals = right - start.answers(samples)
            file.write(correction(flat(seen), residuals, known, penalty).astype("<f4").tobytes())
            bar.update()
    run.finish(TEACHERS_FIT, {path: digest(path) for path in files}, ledger_beside=data.ledger_path)


def vote_corrections(run: Run, data: DataSource, plan: ClosedFormPlan) -> None:
    """Let each teacher vote on every public sample.

    It gives a label where the student's answer and its correction exceed one half together.

    Raises:
        ValueError: if teachers, records or earlier votes are not those of this run.
    """
    run.require_finished(TEACHERS_FIT)
    require_same_data(run, data, plan)
    folder = run.root.resolve() / TEACHERS_FIT.outputs[0]
    made_by = {
        "teachers": digest(folder / "start.npy", folder / "corrections.npy"),
        "data": data.fingerprint(Role.PUBLIC),
    }
    made_from = digest(json.dumps(made_by, sort_keys=True))
    store = VoteStore(run.root.resolve() / TEACHERS_VOTE.outputs[0])
    foreign = [name for name, origin in store.provenance().items() if origin != made_from]
    if not run.begin(TEACHERS_VOTE, StageInputs(digests=made_by), foreign=foreign):
        return
    store.folder.mkdir(parents=True, exist_ok=True)
    samples, answers = _with_constant(data, Role.PUBLIC), np.load(folder / "start.npy")
    corrections = _corrections(folder)
    chunks = [
        range(first, min(first + _CHUNK, plan.nominal)) for first in range(0, plan.nominal, _CHUNK)
    ]
    with stage_bar(len(chunks), "votes", unit="chunk") as bar:
        for teachers in chunks:
            if not store.has_chunk(teachers):
                ballots = [_ballot(samples, answers, corrections[teacher]) for teacher in teachers]
                store.save_chunk(teachers, pack_ballots(np.array(ballots)), made_from=made_from)
            bar.update()
    files = store.write_manifest(
        ids=data.records(Role.PUBLIC).ids.tolist(),
        label_names=data.label_names,
        num_teachers=plan.nominal,
        made_by=made_by | {"code": code_version()},
    )
    run.finish(TEACHERS_VOTE, files)


def count_corrected(run: Run, data: DataSource, plan: ClosedFormPlan, role: Role) -> IntArray:
    """Return the vote counts ``[N, C]`` of the teachers on the records of a role. PRIVATE."""
    assert plan.start_from is not None
    samples = _with_constant(data, role)
    start = Start.of(run, plan.start_from, data)
    answers = start.answers(data.load(role).features[np.arange(len(samples))])
    counts: IntArray = np.zeros(answers.shape, dtype=np.int64)
    for correction in _corrections(run.root / TEACHERS_FIT.outputs[0]):
        counts += _ballot(samples, answers, correction)
    return counts


def correction(
    features: FloatArray, residuals: FloatArray, known: BoolArray, penalty: float
) -> FloatArray:
    """Return a teacher's correction ``[F + 1, C]``, the ridge solution on its own records.

    The intercept comes last. Each label is solved on the records that know it; without any its
    correction is 0. Nothing here fails for any finite records: eigenvalues are at least the
    penalty.
    """
    samples = np.column_stack((features, np.ones(len(features))))
    solution = np.zeros((samples.shape[1], known.shape[1]))
    if len(samples):
        patterns, pattern_of = np.unique(known, axis=1, return_inverse=True)
        for pattern, rows in enumerate(patterns.T):
            labels = pattern_of == pattern
            solution[:, labels] = _ridge(samples[rows], residuals[rows][:, labels], penalty)
    return solution


def _ridge(samples: FloatArray, residuals: FloatArray, penalty: float) -> FloatArray:
    if len(samples) > samples.shape[1]:
        return _solved(samples.T @ samples, samples.T @ residuals, penalty)
    return samples.T @ _solved(samples @ samples.T, residuals, penalty)


def _solved(products: FloatArray, targets: FloatArray, penalty: float) -> FloatArray:
    values, vectors = np.linalg.eigh(products)
    inverse = 1 / (np.maximum(values, 0) + penalty)
    return np.asarray(vectors @ (inverse[:, None] * (vectors.T @ targets)))


def _ballot(samples: Float32Array, answers: FloatArray, correction: Float32Array) -> BoolArray:
    """Return a teacher's vote ``[N, C]``; no digit of its product depends on other teachers."""
    return np.asarray(answers + samples @ correction > 0.5)


def _with_constant(data: DataSource, role: Role) -> Float32Array:
    """Return the features of a role, flattened, with a constant behind them: ``[N, F + 1]``."""
    features = data.records(role).features
    rows = flat(features[np.arange(features.shape[0])]).astype(np.float32)
    return np.column_stack((rows, np.ones(len(rows), dtype=np.float32)))


def _corrections(folder: Path) -> Float32Array:
    return np.load(folder / "corrections.npy", mmap_mode="r")
