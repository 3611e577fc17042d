"""The stage `references`: figures to compare a student with. All its outputs are PRIVATE."""

from typing import Any

from pate._closed_form_plan import ClosedFormPlan
from pate._data_file import load_data, public_digest
from pate._files import digest, write_json
from pate._registry import find
from pate._runs import (
    LABEL,
    METRICS,
    REFERENCES,
    STUDENT,
    TEACHERS_FIT,
    Run,
    StageInputs,
    labels_file,
)
from pate._runs.released import require_student
from pate._stages.closed_form import count_corrected, predicted_without_noise
from pate._stages.student_stage import student_of_truth
from pate.data._records import Role
from pate.student import choose_thresholds, evaluate


def make_references(run: Run, plan: Any) -> None:
    """Evaluate a student of the true labels, and the teachers without noise. PRIVATE.

    Neither protects the records: on data that may be looked at, they show the price of privacy.
    The student of the true labels is trained like the private one, on all queried samples. Teachers
    answer by their majority; teachers in closed form by a linear fit to all private records, the
    best that linear answers can be expected to reach. All figures are on the test set.

    Args:
        run: the run, with a trained student.
        plan: how its teachers were trained, a `TeacherPlan` or a `ClosedFormPlan`.

    Raises:
        ValueError: if an earlier stage is not finished.
    """
    for stage in (TEACHERS_FIT, LABEL):
        run.require_finished(stage)
    require_student(run)
    data = load_data(run)
    inputs = {
        "labels": digest(labels_file(run)),
        "student": digest(run.root / STUDENT.config),
        "teachers": digest(run.root / TEACHERS_FIT.state),
        "public": public_digest(data),
        "test": data.fingerprint(Role.TEST),
    }
    if not run.begin(REFERENCES, StageInputs(digests=inputs)):
        return
    folder = run.root / REFERENCES.outputs[0]
    figures, optimize = student_of_truth(run, folder)
    if isinstance(plan, ClosedFormPlan) and plan.start_from is None:
        reference = "linear_fit"
        answers, public = predicted_without_noise(run, data)
    else:
        reference = "teacher_majority"
        started = isinstance(plan, ClosedFormPlan)
        count_votes = count_corrected if started else find("count_votes")
        answers, public = (
            count_votes(run, data, plan, role) / plan.num_teachers
            for role in (Role.TEST, Role.PUBLIC)
        )
    report = {
        "PRIVATE": "computed without privacy; not to be published",
        "optimize": optimize,
        "true_label_student": figures,
        reference: evaluate(
            answers,
            data.records(Role.TEST).labels,
            data.label_names,
            cuts=choose_thresholds(public),
            optimize=optimize,
        ),
    }
    write_json(folder / METRICS, report)
    run.finish(REFERENCES)
