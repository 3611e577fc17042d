"""The stage `teachers vote`: the vote of each teacher on each public sample.

All its outputs are PRIVATE.
"""

import json
from collections.abc import Sequence

import numpy as np

from pate._files import FINISH, code_version, digest, lease
from pate._progress import stage_bar
from pate._runs import TEACHERS_FIT, TEACHERS_VOTE, Run, StageInputs
from pate._stages.beginning import require_same_data
from pate._validation import IntArray, require
from pate._votes import Voting, unpack_ballots
from pate._votes.store import VoteStore
from pate.data import DataSource, Role
from pate.teachers import Execution, TeacherPlan, VoteJob, cast_votes, load_chunk, run_jobs
from pate.teachers._devices import root_device
from pate.teachers._training import chunk_file


def vote_teachers(
    run: Run,
    data: DataSource,
    plan: TeacherPlan,
    execution: Execution,
    *,
    voting: Voting | None = None,
    absent: Sequence[int] | None = None,
) -> None:
    """Let the teachers vote on every public sample; each teacher's votes are kept.

    Args:
        run: the run's folder.
        data: the source of the samples.
        plan: how the teachers were trained.
        execution: where the teachers vote.
        voting: how they vote; None for the way of an earlier call, or ``bits``.
        absent: numbers, from 0, of the teachers that take no part. Their ballots are rows of zeros,
            and they still count, because the number of teachers is a public constant. Like the
            votes, this list is PRIVATE. None for the list of an earlier call, if any.

    Raises:
        ValueError: if teachers, records or earlier votes belong to another run.
    """
    before = run.inputs_of(TEACHERS_VOTE).settings
    voting = before.get("votes", "bits") if voting is None else voting
    if absent is None:
        absent = before.get("absent")
    absent_teachers = sorted(map(int, absent or []))
    in_range = len(set(absent_teachers)) == len(absent_teachers) and all(
        0 <= teacher < plan.num_teachers for teacher in absent_teachers
    )
    require(in_range, f"absent teachers in 0..{plan.num_teachers - 1}, each once", absent=absent)
    run.require_finished(TEACHERS_FIT)
    require_same_data(run, data, plan)
    # workers may start in another folder
    folder = run.root.resolve() / TEACHERS_FIT.outputs[0]
    chunks = plan.chunks()
    files = [chunk_file(folder, teachers) for teachers in chunks]
    made_by = {
        "teachers": digest(*files),
        "data": data.fingerprint(Role.PUBLIC),
        "code": code_version(),
    }
    store = VoteStore(run.root.resolve() / TEACHERS_VOTE.outputs[0])
    # votes remain valid when only the code around them changes
    inputs = {name: made_by[name] for name in ("teachers", "data")}
    made_from = digest(json.dumps([inputs, absent_teachers, voting], sort_keys=True))
    foreign = [name for name, origin in store.provenance().items() if origin != made_from]
    if not run.begin(
        TEACHERS_VOTE,
        StageInputs({"votes": voting, "absent": absent_teachers}, inputs),
        foreign=foreign,
    ):
        return
    public = data.records(Role.PUBLIC)
    job = VoteJob(
        plan=plan,
        teachers_folder=folder,
        samples=public.features,
        num_labels=data.num_labels,
        store=store,
        voting=voting,
        absent=tuple(absent_teachers),
        made_from=made_from,
    )
    with stage_bar(len(chunks), "votes", unit="chunk") as bar:
        run_jobs(job, chunks, execution, bar.update)
    with lease(store.folder / FINISH, wait=True):
        if run.is_finished(TEACHERS_VOTE):  # by another process
            return
        for left in store.folder.glob("*.lease"):  # by processes that were killed
            left.unlink(missing_ok=True)
        vote_files = store.write_manifest(
            ids=public.ids.tolist(),
            label_names=data.label_names,
            num_teachers=plan.num_teachers,
            made_by=made_by,
            ballots="scores" if voting == "scores" else "bits",
        )
        run.finish(TEACHERS_VOTE, vote_files)


def count_votes(run: Run, data: DataSource, plan: TeacherPlan, role: Role) -> IntArray:
    """Return the vote counts ``[N, C]`` of the teachers that took part, on the records of a role.

    PRIVATE.

    Of teachers that voted by scores their decisions are counted.
    """
    records, settings = data.records(role), run.inputs_of(TEACHERS_VOTE).settings
    absent, voting = settings.get("absent") or [], settings.get("votes", "bits")
    folder, device = run.root / TEACHERS_FIT.outputs[0], root_device(plan.accelerator)
    counts: IntArray = np.zeros(records.labels.shape, dtype=np.int64)
    chunks = plan.chunks()
    with stage_bar(len(chunks), f"votes on {role.value}", unit="chunk") as bar:
        for teachers in chunks:
            chunk = load_chunk(plan, teachers, data.input_shape, data.num_labels, folder).to(device)
            packed = cast_votes(chunk, records.features, "bits" if voting == "scores" else voting)
            packed[np.isin(teachers, absent)] = 0
            counts += unpack_ballots(packed, data.num_labels).sum(axis=0, dtype=np.int64)
            bar.update()
    return counts
