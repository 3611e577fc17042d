"""Forgetting: teachers and votes change as if some private records had never been there.

PRIVATE.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pate._closed_form_plan import ClosedFormPlan
from pate._registry import find
from pate._runs import KEY_FILE, LABEL, REFERENCES, STUDENT, TEACHERS_FIT, TEACHERS_VOTE, Run
from pate._stages.beginning import load_plan, origin_of, training_inputs
from pate._stages.closed_form import fit_closed_form, seal_closed_form
from pate._validation import require
from pate.data import DataSource, Role
from pate.teachers._jobs import Execution


def forget(run: Run, data: DataSource, units: Sequence[str], execution: Execution) -> bool:
    """Change teachers and votes to those of a run without some units, bit for bit.

    A unit is the id of a record or, if groups are protected, a group with all its records. The data
    must still hold the units, so that the run can check that all other records are those of its
    teachers. The run then expects the data without the units. Chunks of teachers that saw a unit
    are deleted first and trained again; the others stay, because a teacher is a function of its own
    records only. All teachers vote again. Private results of their votes are deleted: references,
    and the private report.

    After an interruption, the same call continues.

    Args:
        run: the run's folder.
        data: the source of the records, with the units or, after a completed call, without.
        units: ids of records, or groups.
        execution: where teachers are trained and vote.

    Returns:
        Whether there was anything to forget; False if the data hold none of the units and are the
        data of the teachers.

    Raises:
        ValueError: if the data hold only some of the units, or are not the data of the teachers;
            nothing is changed then.
    """
    require(not execution.shared, "one process that forgets, with its workers")
    plan, state = load_plan(run), run.state(TEACHERS_FIT)
    assert state is not None, "what has a plan was begun"
    begun = state.inputs
    private = data.load(Role.PRIVATE)
    named = np.isin(private.units(plan.unit), list(units))
    missing = sorted(set(units) - set(private.units(plan.unit)[named].tolist()))
    require(
        not missing or not named.any(),
        f"{plan.unit}s of the private data, which are to be there until they are forgotten",
        missing=missing,
    )
    rest = data.without(private.ids[named].tolist())
    before, after = training_inputs(data, plan), training_inputs(rest, plan)
    digests = {name: begun.digests[name] for name in before}
    require(
        digests in (before, after),
        f"the data that `teachers fit` of {run.root} was begun with",
    )
    if missing:
        run.require_finished(TEACHERS_FIT)
        if not state.again:
            run.record(TEACHERS_FIT, replace(state, forgotten=0))
            return False
    require(not named.all(), "private records that are left")
    if digests == before and not missing:
        run.require_finished(TEACHERS_FIT)
        voted = run.state(TEACHERS_VOTE)
        again = {} if voted is None else {TEACHERS_VOTE.name: dict(voted.inputs.settings)}
        forgotten = replace(begun, digests={**begun.digests, **after})
        # from here on the run belongs to the data without the units; some of its teachers and all
        # of its votes are missing
        changed = replace(state, inputs=forgotten, finished=False, files={}, again=again)
        run.record(TEACHERS_FIT, replace(changed, forgotten=state.forgotten + len(set(units))))
    if isinstance(plan, ClosedFormPlan):
        fit_closed_form(run, rest, plan)
    else:
        if not missing:
            old = origin_of(replace(begun, digests={**begun.digests, **before}))
            find("drop_chunks")(run, plan, units, old=old)
        find("fit_teachers")(run, rest, plan, execution)
    run.clear(REFERENCES)
    (run.private / "report.html").unlink(missing_ok=True)
    state = run.state(TEACHERS_FIT)
    assert state is not None
    if TEACHERS_VOTE.name in state.again:
        overwriting, settings = replace(run, overwrite=True), state.again[TEACHERS_VOTE.name]
        if isinstance(plan, ClosedFormPlan):
            seal_closed_form(overwriting, rest, plan)
        else:
            voting, absent = settings["votes"], settings["absent"]
            vote = find("vote_teachers")
            vote(overwriting, rest, plan, execution, voting=voting, absent=absent)
        run.record(TEACHERS_FIT, replace(state, again={}))
    return True


def residual_files(run: Run, data: DataSource) -> list[Path]:
    """Return files and caches that may still hold forgotten records; only their owner can tell."""
    stages = (TEACHERS_FIT, TEACHERS_VOTE, LABEL, STUDENT, REFERENCES)
    accounted_for = {
        KEY_FILE,
        *(path for stage in stages for path in (stage.state, stage.config, *stage.outputs)),
    }
    residual = [
        path
        for path in sorted(run.private.iterdir())
        if path.relative_to(run.root) not in accounted_for
    ]
    residual = [path for path in residual if path.is_file() or any(path.iterdir())]
    used = [
        *getattr(data.feature_map, "maps", [data.feature_map]),
        getattr(data, "sentences", None),
    ]
    caches = [getattr(part, "cache", None) for part in used]
    return [*residual, *(Path(cache) for cache in caches if cache is not None)]
