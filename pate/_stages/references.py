"""The stage `references`: figures to compare a student with. All its outputs are PRIVATE."""

from __future__ import annotations

from pate._closed_form_plan import ClosedFormPlan
from pate._data_file import load_data, public_digest
from pate._files.hashing import digest
from pate._files.writing import write_json
from pate._runs import LABEL, METRICS, REFERENCES, STUDENT, TEACHERS_FIT, Inputs, Run, labels_file
from pate._runs.released import require_student
from pate._stages.closed_form import predicted_without_noise
from pate._stages.student import student_of_truth
from pate._stages.teachers_vote import count_votes
from pate.data._records import Role
from pate.student._decisions import cuts_of
from pate.student._metrics import evaluate
from pate.teachers._plan import TeacherPlan


def make_references(run: Run, plan: TeacherPlan | ClosedFormPlan) -> None:
    """Evaluate, on the test set, a student of the true labels and what the teachers say without noise. PRIVATE.

    Neither is private: on data that may be looked at, they show the price of privacy. The student
        of the true labels is
    trained like the private one, on all samples that were queried. Teachers say what their majority
    does; those in closed form what follows from the sums of their moments, neither clipped nor
    noisy.

    Args:
        run: the run, whose student is trained.
        plan: how its teachers were trained.

    Raises:
        ValueError: if a stage before this one is not finished.
    """
    for stage in (TEACHERS_FIT, LABEL):
        run.require(stage)
    require_student(run)
    data = load_data(run)
    inputs = {"labels": digest(labels_file(run)), "student": digest(run.root / STUDENT.config)}
    inputs |= {"teachers": digest(run.root / TEACHERS_FIT.state)}
    inputs |= {"public": public_digest(data), "test": data.fingerprint(Role.TEST)}
    if not run.begin(REFERENCES, Inputs(digests=inputs)):
        return
    folder = run.root / REFERENCES.outputs[0]
    parts = student_of_truth(run, folder)
    parts.trainer.fit(parts.model, datamodule=parts.datamodule)
    parts.trainer.test(
        parts.model, datamodule=parts.datamodule, ckpt_path=parts.trained(), verbose=False
    )
    if isinstance(plan, ClosedFormPlan):
        reference = "noiseless_sums"
        answers, public = predicted_without_noise(run, data)
    else:
        reference = "teacher_majority"
        answers, public = (
            count_votes(run, data, plan, role) / plan.num_teachers
            for role in (Role.TEST, Role.PUBLIC)
        )
    report = {
        "PRIVATE": "computed without privacy; not to be published",
        "optimize": parts.model.optimize,
        "true_label_student": parts.model.test_report,
        reference: evaluate(
            answers,
            data.records(Role.TEST).labels,
            data.label_names,
            cuts=cuts_of(public),
            optimize=parts.model.optimize,
        ),
    }
    write_json(folder / METRICS, report)
    run.finish(REFERENCES)
