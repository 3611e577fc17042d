"""The plan of a run's teachers, as its first stage wrote it down."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pate._closed_form_plan import CLOSED_FORM, ClosedFormPlan
from pate._json import read_json
from pate._runs import TEACHERS_FIT, Run
from pate._settings import decode_fields

if TYPE_CHECKING:
    from pate.teachers._plan import TeacherPlan


def load_plan(run: Run) -> TeacherPlan | ClosedFormPlan:
    """Return the plan with which the teachers of a run were trained; they are finished.

    Raises ``ValueError`` if a class that it names cannot be imported.
    """
    # read from the state, because the file for readers may have been edited
    settings = run.begun(TEACHERS_FIT).settings
    if settings.get("fit") == CLOSED_FORM:
        return decode_fields(ClosedFormPlan, settings)
    from pate.teachers._plan import TeacherPlan
    from pate.teachers._saved import CHUNK_SIZE

    plan = decode_fields(TeacherPlan, settings)
    path = run.root / TEACHERS_FIT.outputs[0] / CHUNK_SIZE
    if not path.is_file():
        run.require(TEACHERS_FIT)
    chosen = read_json(path.read_text())
    return replace(plan, **chosen)
