"""The files of a trained student in its run, the same for networks and linear students."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy.special import expit

from pate._data_file import public_digest
from pate._files import Json, digest, write_arrays, write_json
from pate._runs import EXPORTED, LABEL, METRICS, MODEL, STUDENT, Run, StageInputs, labels_file
from pate._validation import BoolArray, Float32Array, FloatArray, StrArray, require
from pate.data import DataSource, Role
from pate.data._checks import known_truth
from pate.student._carried import student_digests
from pate.student._carry import Trained, Weights, export_student
from pate.student._decisions import Metric
from pate.student._metrics import evaluate_constant
from pate.student._targets import Labels


def student_folder(run: Run) -> Path:
    """Return the folder of a run's student."""
    return run.root / STUDENT.outputs[0]


def student_inputs(run: Run, settings: Json, source: DataSource) -> StageInputs:
    """Return the inputs of the student's stage: its settings, labels and public records."""
    digests = {"labels": digest(labels_file(run)), "public": public_digest(source)}
    return StageInputs(settings, digests)


@contextmanager
def kept_until_trained(run: Run, inputs: StageInputs) -> Iterator[None]:
    """Keep a copy of a finished student that is overwritten, and restore it if the new one fails.

    If the process is killed, the copy stays, and the same command continues with the new student.
    """
    backup = run.private / "student_before"
    places = (STUDENT.outputs[0], STUDENT.config, STUDENT.state)
    if (
        not backup.exists()
        and run.is_finished(STUDENT)
        and not run.missing_outputs(STUDENT)
        and run.needs(STUDENT, inputs)
    ):
        draft = backup.with_name(f".{backup.name}")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(run.root / places[0], draft / places[0].name)
        for place in places[1:]:
            shutil.copy(run.root / place, draft)
        draft.rename(backup)
    try:
        yield
    except Exception:
        if backup.exists():
            run.clear(STUDENT)
            for place in places:  # the state last, because it refers to the others
                (backup / place.name).replace(run.root / place)
            shutil.rmtree(backup)
        raise
    shutil.rmtree(backup, ignore_errors=True)


def export_or_say_why_not(
    run: Run,
    learned: Labels,
    trained: Callable[[], Trained],
    source: DataSource,
    weights: Weights,
) -> None:
    """Export the student from its run, or print in one line why it stays. PUBLIC.

    Its digests are recorded in the private folder, for teachers that start from it.

    Args:
        run: the run.
        learned: the labels that the student learned; it is exported only if they were released.
        trained: reads the student.
        source: the records that it learned from.
        weights: encodes the weights as the content of a file.
    """
    folder = student_folder(run) / MODEL
    try:
        require(
            learned == "released",
            "a student of released labels, as others are PRIVATE",
            labels=learned,
        )
        statement, text = (run.root / output for output in LABEL.outputs[1:])
        export_student(folder, trained(), source, statement=statement, text=text, weights=weights)
        write_json(run.root / EXPORTED, student_digests(folder))
    except ValueError as error:
        shutil.rmtree(folder, ignore_errors=True)
        print(
            f"pate student fit: the student stays in its run, there is no {folder}: {error}",
            file=sys.stderr,
        )


def write_figures(
    folder: Path, figures: Json, constants: FloatArray, source: DataSource, *, optimize: Metric
) -> None:
    """Write ``metrics.json``: test figures of a student, and of constant answers.

    Args:
        folder: the folder of the student.
        figures: the figures of the student.
        constants: ``[C]``, the logits of the constant answer that the release supports.
        source: the test records, with their true labels.
        optimize: the figure that decisions serve.
    """
    truth = source.records(Role.TEST).labels
    right, known = known_truth(truth)
    majority = right.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    shares = {"released_constant": expit(constants), "all_majority": majority}
    compared = {
        name: evaluate_constant(share, truth, source.label_names, optimize=optimize)
        for name, share in shares.items()
    }
    write_json(folder / METRICS, {"optimize": optimize, "student": figures} | compared)


def write_predictions(
    folder: Path,
    ids: StrArray,
    probabilities: Float32Array,
    labels: BoolArray,
    label_names: tuple[str, ...],
) -> None:
    """Write ``predictions.npz``: answers ``[N, C]`` to the samples with ``ids`` ``[N]``."""
    write_arrays(
        folder / "predictions.npz",
        ids=ids,
        probabilities=probabilities,
        labels=labels.astype(np.uint8),
        label_names=np.array(label_names),
    )
