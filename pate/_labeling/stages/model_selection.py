"""The choice of a student by the teachers of a run, on their own private records."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from pate._core.accounting.ledger import read_ledger
from pate._core.accounting.privacy_unit import PrivacyUnit
from pate._core.accounting.statement import Statement
from pate._core.release.histogram import Histogram
from pate._core.release.top_k import TopKSettings, release_top_k
from pate._core.validation import BoolArray, UInt8Array, require, require_distinct
from pate._labeling.data.records import Role, assign_teachers, known_truth
from pate._labeling.data.source import DataSource
from pate._labeling.release.between_runs import ledger_scope
from pate._labeling.release.privacy_units import unit_of
from pate._labeling.runs.released import sealing_key
from pate._labeling.runs.run import TEACHERS_FIT, TEACHERS_VOTE, Run, load_data
from pate._labeling.stages.teachers import load_plan, require_same_data
from pate._labeling.student.carried import ExportedStudent, load_student
from pate._labeling.teachers import assigned_units

Figure = Literal["accuracy", "micro_f1"]
"""A teacher's figure for comparing students: the share of right labels, or micro-F1."""

_BOUND = (
    "a teacher of the run, which holds the records of its own partition, counts once for each"
    " student that answers these records best"
)


@dataclass(frozen=True)
class Candidates:
    """Candidate students, and a histogram: for how many teachers is each of them the best?

    One teacher moves each count by at most 1, all in one direction if it joins or leaves. So the
    relations have the same meaning as for votes: under ``ADD_REMOVE_TEACHER`` one teacher joins or
    leaves, under ``REPLACE_RECORD`` one record is added, removed or altered, so that one teacher
    may count for other students. A student answers the records of each teacher separately, so that
    no digit of an answer depends on the records of others.

    Args:
        run: the run; its key assigns records to teachers. PRIVATE.
        folders: folders of students, as `pate student fit` leaves them in ``public/student/model``.
        figure: a teacher's figure for comparing students.
        trust: whether networks and feature maps of other packages are imported and called.

    Raises:
        ValueError: if the teachers of the run are not finished, its data have changed, or students
            have other labels.
    """

    run: Run
    folders: tuple[Path, ...]
    figure: Figure = "accuracy"
    trust: bool = False

    def __post_init__(self) -> None:
        require(len(self.folders) > 1, "at least two students", students=len(self.folders))
        require_distinct("students", [str(folder) for folder in self.folders])
        require(
            self.figure in get_args(Figure),
            f"a figure in {', '.join(get_args(Figure))}",
            by=self.figure,
        )
        self.run.require_finished(TEACHERS_FIT)
        for folder, student in zip(self.folders, self._students, strict=True):
            require(
                student.label_names == self._data.label_names,
                "students of the run's labels",
                student=str(folder),
            )

    @property
    def public(self) -> bool:
        """True: students were released, or never saw private records."""
        return True

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return self.run.root

    @property
    def ledger_path(self) -> Path:
        """The ledger of the run."""
        return self.run.ledger_path

    @property
    def privacy_unit(self) -> PrivacyUnit:
        """The unit and the teachers of the run."""
        return unit_of(self.run)

    def counted_by(self, ledger: Path) -> str:
        """Say which releases the ledger of the run counts."""
        return ledger_scope(self.run)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the students."""
        return tuple(
            path for folder in self.folders for path in sorted(folder.iterdir()) if path.is_file()
        )

    def facts(self) -> dict[str, Any]:
        """Return everything that determines the choice but the files of students. PRIVATE."""
        require_same_data(self.run, self._data, load_plan(self.run))
        return {
            "students": [str(folder) for folder in self.folders],
            "figure": self.figure,
            "teachers": self.run.inputs_of(TEACHERS_FIT).digest,
            "absent": self._absent,
        }

    def read(self, generator: np.random.Generator) -> Histogram:
        """Return the number of teachers that each student is best for. Nothing is drawn."""
        return Histogram(
            tuple(str(folder) for folder in self.folders),
            self.ballots().sum(axis=0, dtype=np.int64),
            1.0,
            _BOUND,
        )

    def ballots(self) -> BoolArray:
        """Return ``[T, K]``, the students that each teacher counts for; none without records."""
        plan, key = load_plan(self.run), sealing_key(self.run)
        private = self._data.load(Role.PRIVATE)
        units = assigned_units(private, plan, key)
        number, teachers = plan.num_teachers, np.unique(units, return_inverse=True)[1]
        if number is not None:
            teachers = assign_teachers(map(str, units), num_teachers=number, key=key)
        ballots = np.zeros((number or teachers.max() + 1, len(self.folders)), dtype=np.bool_)
        # by id, so that the order of the source does not matter
        order = np.lexsort((private.ids, teachers))
        present, starts = np.unique(teachers[order], return_index=True)
        for teacher, rows in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            if teacher not in self._absent:
                samples, labels = private.features[rows], private.labels[rows]
                figures = [
                    figure_of(student.predict(samples), labels, self.figure)
                    for student in self._students
                ]
                ballots[teacher] = np.equal(figures, max(figures))
        return ballots

    @cached_property
    def _data(self) -> DataSource:
        return load_data(self.run)

    @cached_property
    def _students(self) -> Sequence[ExportedStudent]:
        return [load_student(folder, trust=self.trust) for folder in self.folders]

    @cached_property
    def _absent(self) -> list[int]:
        return sorted(self.run.inputs_of(TEACHERS_VOTE).settings.get("absent") or [])


def choose_student(
    candidates: Candidates,
    *,
    target_epsilon: float,
    delta: float,
    output: Path,
    noise_seed: int | None = None,
) -> Statement:
    """Release the student with most teachers, with noise, and return the statement.

    The choice is the top 1 of a histogram (`release_top_k`), reserved in the ledger of the run
    before the noise is drawn.

    Args:
        candidates: the students, and the run with the teachers that choose.
        target_epsilon: epsilon of this release at ``delta``, under ``REPLACE_RECORD``, for units
            that reach as many teachers as the ledger says.
        delta: the delta of the statement.
        output: the ``.csv`` or ``.json`` that is written, next to its statement.
        noise_seed: a seed in place of noise, for tests; such a choice is not private.

    Raises:
        ValueError: in one line, as `release_top_k` does. Nothing is spent then.
    """
    settings = TopKSettings(
        k=1,
        target_epsilon=target_epsilon,
        delta=delta,
        neighbors="replace",
        noise_seed=noise_seed,
        # the same as for the labels that students learned from
        max_teachers_per_unit=read_ledger(candidates.ledger_path).max_teachers_per_unit,
    )
    return release_top_k(candidates, settings, output=output, ledger=candidates.ledger_path)


def figure_of(answers: UInt8Array, labels: UInt8Array, figure: Figure) -> float:
    """Return the figure of answers ``[N, C]`` against known labels ``[N, C]``; 1 is best."""
    right, known = known_truth(labels)
    wrong = int(((answers > 0) != right).sum(where=known))
    if figure == "accuracy":
        return 1 - wrong / max(1, int(known.sum()))
    positives = 2 * int(((answers > 0) & right).sum())
    return positives / (positives + wrong) if positives + wrong else 1.0
