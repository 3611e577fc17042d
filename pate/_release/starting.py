"""The released student that teachers start from, compared with their data and their ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pate._closed_form_plan import FIRST
from pate._data_file import load_data
from pate._files import digest, read_json
from pate._release.public_samples import released_samples
from pate._runs import EXPORTED, MODEL, STUDENT, TEACHERS_FIT, Run, labels_file
from pate._runs.released import ReleasedLabels, require_student
from pate._settings import decode
from pate._validation import Float32Array, FloatArray, expecting, require
from pate.accounting._charges import Charge
from pate.aggregators._base import Aggregator
from pate.data import DataSource, DrawnPublic, Role
from pate.student._carried import ExportedStudent, load_student, student_digests

_FOLDER = STUDENT.outputs[0] / MODEL


def student_run(run: Run, start_from: str) -> Run:
    """Return the run that released the student which the teachers of a run start from.

    Args:
        run: the run of the teachers.
        start_from: `FIRST`, a run's folder, or the folder of a student within its run.
    """
    place = run.root / FIRST if start_from == FIRST else Path(start_from)
    inside = place.match(str(_FOLDER))
    return Run(place.parents[len(_FOLDER.parts) - 1] if inside else place)


def start_digest(run: Run, start_from: str | None) -> dict[str, str]:
    """Return the digest of the student that teachers start from, by name; none without one."""
    if start_from is None:
        return {}
    # without its statement, which is that of all releases by now
    files = sorted((student_run(run, start_from).root / _FOLDER).glob("model.*"))
    return {"student": digest(*files)}


@dataclass(frozen=True, kw_only=True)
class Start:
    """A student that was released from the private records that teachers are about to see.

    Attributes:
        student: the student.
    """

    student: ExportedStudent

    @classmethod
    def of(cls, run: Run, start_from: str, data: DataSource) -> Start:
        """Return the student that the teachers of a run start from.

        Its folder is read as data, not as code. Its weights are those that its run recorded when it
        had learned from labels that bear the seal of that run, and the digest of these labels is in
        the ledger.

        Raises:
            ValueError: in one line, if there is no student, its weights or labels were replaced,
                it has other labels or takes other features than the data, or its release is not in
                the ledger of the run.
        """
        released = student_run(run, start_from)
        require_student(released)
        folder, record = released.root / _FOLDER, released.root / EXPORTED
        # the run's own first release was made by the recipe's own classes
        student = load_student(folder, trust=start_from == FIRST)
        require(
            student.label_names == data.label_names,
            f"a student of the data's labels in {folder}",
            label_names=student.label_names,
        )
        same = record.is_file() and read_json(record.read_text()) == student_digests(folder)
        require(
            same,
            f"the student that `pate student fit` exported to {folder}: run it again, got another",
        )
        shape = tuple(data.load(Role.PUBLIC).features.shape[1:])
        require(
            student.input.shape == shape,
            f"a student of samples of shape {list(shape)} in {folder}",
            shape=list(student.input.shape),
        )
        with expecting(
            f"a student whose release is in {run.ledger_path}, the ledger of these records",
            ValueError,
            got=f"that of {folder}",
        ):
            require(run.ledger_path.is_file(), "a ledger that holds it", ledger=None)
            student.statement.verify(ledger=run.ledger_path, released=labels_file(released))
        return cls(student=student)

    def answers(self, samples: Float32Array) -> FloatArray:
        """Return the probabilities ``[n, C]`` of raw samples ``[n, ...]``."""
        return np.asarray(self.student.predict_proba(samples), dtype=np.float64)


def released_before(run: Run) -> list[Charge]:
    """Return the charges that a run's target covers before its labels, if any.

    They are those of public samples that were drawn, and of a first release of its own.
    """
    settings = run.inputs_of(TEACHERS_FIT).settings
    described = settings.get("data") or {}
    data = load_data(run) if described.get("class_path", "").endswith("DrawnPublic") else None
    charges = (
        [released_samples(run, data, settings["unit"])] if isinstance(data, DrawnPublic) else []
    )
    if settings.get("start_from") != FIRST:
        return charges
    released = ReleasedLabels.load(run.root / FIRST)
    aggregator: Aggregator = decode(Aggregator, released.aggregator)
    return [*charges, (aggregator.events(released.shape), len(released.ids))]
