"""The stages of teachers: `fit` and `vote` for any plan, and teachers in closed form.

The beginning is the same for trained teachers and those in closed form. The latter stand for a
record, a group or a part of the records. Those that start from a released student correct it by
their own records, and vote. All of it is PRIVATE.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os.path import isfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate._core.accounting.history import PrivacyUnit
from pate._core.files.reading import (
    Json,
    code_version,
    digest,
    load_json,
    map_array,
    read_array,
)
from pate._core.files.writing import atomic_write, make_folder, require_disk
from pate._core.package import find
from pate._core.settings import decode_fields, encode_fields
from pate._core.validation import (
    MOST_VOTERS,
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    StrArray,
    require,
    stage_bar,
)
from pate._labeling.data.pictures import ImageFiles
from pate._labeling.data.records import (
    Features,
    Role,
    as_features,
    assign_teachers,
    known_truth,
    partition_records,
)
from pate._labeling.data.source import DataSource
from pate._labeling.linear import flat
from pate._labeling.release.between_runs import (
    Start,
    ledger_setting,
    open_ledger,
    require_start_for,
    start_digest,
)
from pate._labeling.runs.run import (
    TEACHERS_FIT,
    TEACHERS_VOTE,
    Run,
    StageInputs,
    describe_data,
    ensure_key,
    load_data,
    other_inputs,
    read_key,
)
from pate._labeling.runs.vote_store import VoterStore, VoteStore, fingerprint_of_voters
from pate._labeling.teachers import (
    CHUNK_SIZE,
    CLOSED_FORM,
    ClosedFormPlan,
    Execution,
    Plan,
    assigned_units,
    uses_groups,
)
from pate._labeling.votes.kinds import Ballots, Moments, Votes, Voting, pack_ballots, rows_of
from pate._labeling.votes.voters import Geometry, blocks, with_drawn

_ONE_OF_MANY = (
    "Note: the data say whose record each is, but `unit: record` protects one record alone, not"
    " the person; `unit: group` protects all records of a person together."
)


@contextmanager
def own_threads() -> Iterator[None]:
    """Restore the program's number of torch threads, which stages of networks change."""
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    try:
        yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)


@own_threads()
def fit(
    run: Run,
    data: DataSource,
    plan: Plan,
    execution: Execution | None = None,
    *,
    dry_run: bool = False,
) -> None:
    """Make the teachers of a plan, unless they are finished: nothing private is mapped then.

    Args:
        run: the run's folder.
        data: the source of the records.
        plan: how teachers are made.
        execution: where they are trained. None for this process.
        dry_run: whether to print sizes and memory, and write nothing.

    Raises:
        ValueError: if settings, records or earlier files do not allow it.
    """
    key = read_key(run) if run.is_finished(TEACHERS_FIT) and not dry_run else None
    if key is not None:
        inputs = _fit_inputs(run, data, plan, _fit_settings(data, plan), key)
        if not run.needs(TEACHERS_FIT, inputs) and not run.begin(TEACHERS_FIT, inputs):
            return
    teaching: Teaching
    if isinstance(plan, ClosedFormPlan):
        teaching = (_voters if plan.start_from is None else _corrections_of)(run, data, plan)
    else:
        teaching = find("fit_teachers")(run, data, plan, execution or Execution())
    if dry_run:
        teaching.describe()
    else:
        _teach(run, data, plan, teaching)
    pictures = data.load(Role.PRIVATE).features if dry_run else None
    paths = pictures.paths if isinstance(pictures, ImageFiles) else ()
    if lost := [path for path in paths if not isfile(path)]:
        run.tell_owner(
            f"{len(lost)} pictures are missing, and count as black ones, such as {lost[0]}.",
            keep=False,
        )


@own_threads()
def vote(
    run: Run,
    source: DataSource | None = None,
    execution: Execution | None = None,
    *,
    voting: Voting | None = None,
    absent: Sequence[int] | None = None,
) -> None:
    """Let the teachers of a run vote on every public sample.

    Args:
        run: the run's folder.
        source: the source of the samples. None for the one of the run.
        execution: where they vote. None for this process.
        voting: the form of the votes of networks. None for the one of an earlier call, or ``bits``.
        absent: numbers, from 0, of networks that take no part. None for the list of an earlier
            call, if any.

    Raises:
        ValueError: if teachers, records or earlier votes belong to another run.
    """
    if not run.is_finished(TEACHERS_FIT):  # whose contents are compared later
        run.require_finished(TEACHERS_FIT)
    data, plan, chosen = source or load_data(run), load_plan(run), execution or Execution()
    poll: Poll
    if isinstance(plan, ClosedFormPlan):
        require(
            chosen == Execution(),
            "no workers for teachers in closed form, who cast no votes",
            execution=chosen,
        )
        require(
            voting is None,
            "no `votes` of teachers in closed form, whose ballots follow from how they were made",
            votes=voting,
        )
        require(
            not absent,
            "no absent teachers in closed form: leave their records out of the data",
            absent=absent,
        )
        poll = (_moments if plan.start_from is None else _corrected)(run, data, plan)
    else:
        poll = find("vote_teachers")(run, data, plan, chosen, voting=voting, absent=absent)
    made_by = {"teachers": poll.teachers, "data": data.fingerprint(Role.PUBLIC)}
    inputs = StageInputs(poll.settings, made_by)
    if poll.kind is not Moments or run.needs(TEACHERS_VOTE, inputs):
        require_same_data(run, data, plan)
    # workers may start in another folder
    store = VoteStore(run.root.resolve() / TEACHERS_VOTE.outputs[0])
    made_from = digest(json.dumps([made_by, poll.settings], sort_keys=True))
    foreign = [name for name, origin in store.provenance().items() if origin != made_from]
    if not run.begin(TEACHERS_VOTE, inputs, foreign=foreign):
        return
    poll.cast(store, made_from)
    run.finish(
        TEACHERS_VOTE,
        store.write_manifest(
            ids=data.records(Role.PUBLIC).ids.tolist(),
            label_names=data.label_names,
            num_teachers=poll.num_teachers,
            # votes remain valid when only the code around them changes
            made_by=made_by | {"code": code_version()},
            ballots=poll.kind.form,
        ),
    )


class Teaching(NamedTuple):
    """The making of teachers of one kind, once all that can be refused was refused.

    Attributes:
        describe: prints the resources that it takes, in a dry run.
        train: makes the teachers in their folder, from the key of the partition, a digest of all
            inputs, and the student that they start from, if any. It returns a digest of each file.
        foreign: returns the names of files in the folder that were not made from a digest.
    """

    describe: Callable[[], None]
    train: Callable[[Path, bytes, str, Any], Mapping[Path, str]]
    foreign: Callable[[Path, str], Sequence[str]]


class Poll(NamedTuple):
    """The votes of teachers of one kind.

    Attributes:
        kind: the kind of the votes.
        num_teachers: the nominal number of teachers.
        settings: the settings of the stage.
        teachers: a digest of all that determines the teachers.
        cast: stores the votes, with a digest of their inputs.
    """

    kind: type[Votes]
    num_teachers: int
    settings: Json
    teachers: str
    cast: Callable[[VoteStore, str], None]


def _teach(run: Run, data: DataSource, plan: Plan, teaching: Teaching) -> None:
    """Begin or continue the stage, unless it is finished.

    Raises ``ValueError`` if it was begun with other settings or records, or its folder holds
    foreign files.
    """
    start = None if plan.start_from is None else Start.of(run, encode_fields(plan), data)
    settings = _fit_settings(data, plan)
    if run.overwrite or not run.is_finished(TEACHERS_FIT):
        # a copy of another ledger is refused before the run is begun with it
        open_ledger(run)
    key = ensure_key(run, TEACHERS_FIT)
    inputs = _fit_inputs(run, data, plan, settings, key)
    made_from = replace(inputs, settings=settings).digest  # whatever their ledger
    # absolute because workers may start elsewhere
    folder, grouping = run.root.resolve() / TEACHERS_FIT.outputs[0], None
    if run.needs(TEACHERS_FIT, inputs):
        if uses_groups(plan):
            data.records(Role.PRIVATE).units("group")
            grouping = data.grouping
        if plan.start_from is not None:
            require_start_for(run, plan.start_from, PrivacyUnit(unit=plan.unit, grouping=grouping))
    if not run.begin(TEACHERS_FIT, inputs, foreign=teaching.foreign(folder, made_from)):
        return
    make_folder(folder)
    if grouping is not None:
        run.record(TEACHERS_FIT, replace(run.begun(TEACHERS_FIT), grouping=grouping))
    elif data.load(Role.PRIVATE).groups is not None:
        print(_ONE_OF_MANY, file=sys.stderr, flush=True)
    files = teaching.train(folder, key, made_from, start)
    run.finish(TEACHERS_FIT, files, ledger_beside=data.ledger_path)


def _fit_settings(data: DataSource, plan: Plan) -> Json:
    """Return the settings of the stage. Raises ``ValueError`` if a file cannot hold them."""
    kind = {"fit": CLOSED_FORM} if isinstance(plan, ClosedFormPlan) else {}
    return {**kind, **encode_fields(plan), "data": describe_data(data)}


def _fit_inputs(run: Run, data: DataSource, plan: Plan, settings: Json, key: bytes) -> StageInputs:
    digests = training_inputs(data, plan) | {"partition": digest(key)}
    digests |= start_digest(run, plan.start_from)
    return StageInputs({**settings, "ledger": ledger_setting(run)}, digests)


def training_inputs(data: DataSource, plan: Plan) -> dict[str, str]:
    """Return hashes of private records, and of public ones if anything is fitted on them."""
    fitted = data.feature_map is not None or isinstance(plan, ClosedFormPlan)
    roles = (Role.PRIVATE, *([Role.PUBLIC] if fitted else []))
    return {role.value: data.fingerprint(role) for role in roles}


def require_same_data(run: Run, data: DataSource, plan: Plan) -> None:
    """Raise ``ValueError`` unless the data are those that the teachers were made from."""
    now, trained = training_inputs(data, plan), run.inputs_of(TEACHERS_FIT).digests
    changed = other_inputs({name: trained.get(name) for name in now}, now)
    require(
        not changed,
        f"the data that `teachers fit` of {run.root} was begun with",
        changed=changed,
    )
    data.require_distinct()


def load_plan(run: Run) -> Any:
    """Return the `TeacherPlan` or `ClosedFormPlan` of a run with finished teachers.

    Raises ``ValueError`` if a class in its settings cannot be imported.
    """
    # read from the state, because the file for readers may have been edited
    settings = run.inputs_of(TEACHERS_FIT).settings
    if settings.get("fit") == CLOSED_FORM:
        return decode_fields(ClosedFormPlan, settings)
    plan = decode_fields(find("TeacherPlan"), settings)
    path = run.root / TEACHERS_FIT.outputs[0] / CHUNK_SIZE
    if not path.is_file():
        run.require_finished(TEACHERS_FIT)
    return replace(plan, **load_json(path))


def _trained(folder: Path, _: str) -> list[str]:
    """Return the names of files of trained teachers in ``folder``."""
    return sorted(path.name for path in folder.glob("teachers_*"))


def _voters(run: Run, data: DataSource, plan: ClosedFormPlan) -> Teaching:
    """Write down private records as coordinates along the public directions, with their labels."""
    private = data.records(Role.PRIVATE)
    # their number is private
    require(
        len(private) <= MOST_VOTERS, f"at most {MOST_VOTERS} private records, whose sums are exact"
    )
    data.require_distinct()
    _ = assigned_units(private, plan, bytes(16))  # refused here
    public, feature_map = _all_of(data.records(Role.PUBLIC).features), data.feature_map
    widths = () if feature_map is None else feature_map.widths
    geometry = Geometry.of(with_drawn(public, widths), widths)

    def describe() -> None:
        num = geometry.num_directions
        size = len(private) * (4 * num + data.num_labels) / 1e9
        run.tell_owner(f"{len(private)} records along {num} directions, {size:.2g} GB.", keep=False)

    def train(folder: Path, key: bytes, *_: Any) -> Mapping[Path, str]:
        units = assigned_units(private, plan, key)
        groups: StrArray | IntArray | None = units
        if plan.num_teachers is not None:
            groups = assign_teachers(map(str, units), num_teachers=plan.num_teachers, key=key)
        elif plan.unit == "record" and plan.max_teachers_per_group is None:
            groups = None
        store = VoterStore(folder)
        # a run that does not declare it keeps its files
        facts = {"unknown_labels": data.unknown_labels} | (
            {"shifted": True} if data.shifted else {}
        )
        return store.save(private, geometry, groups, **facts)

    return Teaching(describe, train, _trained)


def _moments(run: Run, _: DataSource, plan: ClosedFormPlan) -> Poll:
    """Return votes that are moments, which `pate label` computes: nothing is cast."""
    return Poll(Moments, plan.nominal, {}, fingerprint_of_voters(run), lambda *_: None)


def _all_of(features: Features) -> FloatArray:
    """Return features as ``[N, F]`` float64."""
    return flat(features[np.arange(features.shape[0])])


_CHUNK = 100  # teachers whose votes lie in one file
_FILES = ("start.npy", "corrections.npy")


def _corrections_of(run: Run, data: DataSource, plan: ClosedFormPlan) -> Teaching:
    """Let each teacher correct the student that it starts from, by its own records.

    A correction is a ridge solution. Its targets are the differences of the teacher's known labels
    from the student's answers. The penalty is public: the mean square of a public sample, by which
    one record moves the answer to itself half of the way to its labels. A teacher without records
    leaves the student as it is.
    """
    require(
        plan.num_teachers is not None,
        "`num_teachers` with start_from, which `pate run` finds for a target",
        num_teachers=None,
    )
    private, public = data.records(Role.PRIVATE), _with_constant(data, Role.PUBLIC)
    data.require_distinct()
    _ = assigned_units(private, plan, bytes(16))  # refused here
    shape = (plan.nominal, public.shape[1], data.num_labels)
    size = 4 * int(np.prod(shape))

    def train(folder: Path, key: bytes, _: str, start: Start) -> Mapping[Path, str]:
        files = [folder / name for name in _FILES]
        require_disk(size, folder, "teachers")
        of_mapped = start.mapped_answers(data)
        shown = (data.load if of_mapped is None else data.records)(Role.PUBLIC).features
        with atomic_write(files[0]) as file:
            np.save(file, (of_mapped or start.answers)(shown[np.arange(len(public))]))
        penalty = float((public.astype(np.float64) ** 2).sum(axis=1).mean())
        units = assigned_units(private, plan, key)
        partition = partition_records(private.ids, units, num_teachers=plan.nominal, key=key)
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
                right, known = known_truth(private.labels[rows])
                # for a record of extreme numbers a map or a student may have no finite ones
                with np.errstate(all="ignore"):
                    if of_mapped is not None:
                        seen = private.features[rows]
                        answers = of_mapped(seen)
                    else:
                        samples = raw.features[raw_rows[rows]]
                        seen = (
                            feature_map.transform(as_features(samples))[:]
                            if feature_map is not None and feature_map.by_rows  # read already
                            else private.features[rows]
                        )
                        answers = start.answers(samples)
                    residuals: FloatArray = right - np.nan_to_num(answers)
                    solution = correction(flat(np.nan_to_num(seen)), residuals, known, penalty)
                    file.write(np.nan_to_num(solution.astype("<f4")).tobytes())
                bar.update()
        return {path: digest(path) for path in files}

    return Teaching(
        lambda: print(f"Corrections of {plan.nominal} teachers, {size / 1e9:.2g} GB."),
        train,
        _trained,
    )


def _corrected(run: Run, data: DataSource, plan: ClosedFormPlan) -> Poll:
    """Let each teacher vote on every public sample.

    It gives a label where the student's answer and its correction exceed one half together.
    """
    run.require_finished(TEACHERS_FIT)
    start, corrections = (run.root.resolve() / TEACHERS_FIT.outputs[0] / name for name in _FILES)

    def cast(store: VoteStore, made_from: str) -> None:
        store.folder.mkdir(parents=True, exist_ok=True)
        samples, answers = _with_constant(data, Role.PUBLIC), read_array(start)
        moved, numbers = map_array(corrections), range(plan.nominal)
        chunks = [numbers[first : first + _CHUNK] for first in numbers[::_CHUNK]]
        with stage_bar(len(chunks), "votes", unit="chunk") as bar:
            for teachers in chunks:
                if not store.has_chunk(teachers):
                    some = moved[teachers.start : teachers.stop]
                    packed = [*map(pack_ballots, ballots_of(samples, answers, some))]
                    store.save_chunk(teachers, np.concatenate(packed), made_from=made_from)
                bar.update()

    return Poll(Ballots, plan.nominal, {}, digest(start, corrections), cast)


def correction(
    features: FloatArray, residuals: FloatArray, known: BoolArray, penalty: float
) -> FloatArray:
    """Return a teacher's correction ``[F + 1, C]``, the ridge solution on its own records.

    The intercept comes last. Each label is solved on the records that know it. Without any its
    correction is 0. Nothing here fails for any finite records: eigenvalues are at least the
    penalty.
    """
    samples = np.column_stack((features, np.ones(len(features))))
    solution = np.zeros((samples.shape[1], known.shape[1]))
    for rows in np.unique(known, axis=1).T if len(samples) else ():
        labels = (known == rows[:, None]).all(axis=0)
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


def ballots_of(
    samples: Float32Array, answers: FloatArray, corrections: Float32Array
) -> Iterator[BoolArray]:
    """Yield votes ``[t, N, C]`` of teachers with ``corrections`` ``[T, F + 1, C]``, in order.

    No digit of a product depends on the corrections of other teachers: how it is rounded follows
    from its place and from the shape of a block, which are public.
    """
    for some in blocks(len(corrections), answers.size):
        columns = corrections[some].swapaxes(0, 1).reshape(samples.shape[1], -1)
        products = (samples @ columns).reshape(len(samples), -1, answers.shape[1])
        yield (answers[:, None] + products > 0.5).swapaxes(0, 1)


def _with_constant(data: DataSource, role: Role) -> Float32Array:
    """Return the features of a role, flattened, with a constant behind them: ``[N, F + 1]``."""
    rows = _all_of(data.records(role).features).astype(np.float32)
    return np.column_stack((rows, np.ones(len(rows), dtype=np.float32)))
