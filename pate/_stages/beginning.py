"""The beginning of `teachers fit`, the same for trained and closed-form teachers."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pate._closed_form_plan import CLOSED_FORM, ClosedFormPlan, Plan
from pate._data_file import describe_data
from pate._files import digest, make_folder, read_json
from pate._registry import find
from pate._release.ledger_file import ledger_setting, open_ledger
from pate._release.starting import start_digest
from pate._runs import TEACHERS_FIT, Run, StageInputs, ensure_key, other_inputs
from pate._settings import decode_fields, encode_fields
from pate._validation import require
from pate.data import DataSource, Role
from pate.teachers._jobs import CHUNK_SIZE

_ONE_OF_MANY = (
    "Note: the data say whose record each is, but `unit: record` protects one record alone, not"
    " the person; `unit: group` protects all records of a person together."
)


class FitContext(NamedTuple):
    """The folder, key and digest that a stage of teachers works with."""

    folder: Path
    """The folder of the teachers, absolute because workers may start elsewhere."""
    key: bytes
    """The key of the partition."""
    made_from: str
    """A digest of the key, the plan and the data."""


def begin_fit(
    run: Run,
    data: DataSource,
    plan: Plan,
    foreign: Callable[[Path, str], Sequence[str]],
) -> FitContext | None:
    """Begin or continue the stage; return None if it is finished.

    Args:
        run: the run's folder.
        data: the source of the records.
        plan: how teachers are made.
        foreign: returns the names of files in the teachers' folder that were not made from the
            digest given to it.

    Raises:
        ValueError: if it was begun with other settings or records, or its folder holds foreign
            files.
    """
    closed_form = {"fit": CLOSED_FORM} if isinstance(plan, ClosedFormPlan) else {}
    settings = closed_form | encode_fields(plan) | {"data": describe_data(data)}
    if run.overwrite or not run.is_finished(TEACHERS_FIT):
        # a copy of another ledger is refused before the run is begun with it
        open_ledger(run)
    key = ensure_key(run, TEACHERS_FIT)
    digests = training_inputs(data, plan) | {"partition": digest(key)}
    digests |= start_digest(run, getattr(plan, "start_from", None))
    inputs = StageInputs({**settings, "ledger": ledger_setting(run)}, digests)
    made_from = origin_of(inputs)
    folder = run.root.resolve() / TEACHERS_FIT.outputs[0]
    if not run.begin(TEACHERS_FIT, inputs, foreign=foreign(folder, made_from)):
        return None
    make_folder(folder)
    if plan.unit == "record" and data.records(Role.PRIVATE).groups is not None:
        print(_ONE_OF_MANY, file=sys.stderr, flush=True)
    return FitContext(folder, key, made_from)


def origin_of(inputs: StageInputs) -> str:
    """Return the digest that marks teachers made from ``inputs``, whatever their ledger."""
    settings = {name: value for name, value in inputs.settings.items() if name != "ledger"}
    return replace(inputs, settings=settings).digest


def training_inputs(data: DataSource, plan: Plan) -> dict[str, str]:
    """Return hashes of private records, and of public ones if anything is fitted on them."""
    private_alone = data.feature_map is None and not isinstance(plan, ClosedFormPlan)
    roles = (Role.PRIVATE,) if private_alone else (Role.PRIVATE, Role.PUBLIC)
    return {role.value: data.fingerprint(role) for role in roles}


def require_same_data(run: Run, data: DataSource, plan: Plan) -> None:
    """Raise ``ValueError`` unless the data are those that the teachers were made from."""
    now, trained = training_inputs(data, plan), run.inputs_of(TEACHERS_FIT).digests
    changed = other_inputs({name: trained.get(name) for name in now}, now)
    begun = f"the data that `teachers fit` of {run.root} was begun with"
    hint = f" ({run.to_forget})" if run.to_forget else ""
    require(not changed, begun + hint, changed=changed)
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
    return replace(plan, **read_json(path.read_text()))
