"""The stages of a run as methods of one object: what `pate run` does, from Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pate.accounting.statement import Statement
from pate.aggregators.base import Aggregator
from pate.data.source import DataSource
from pate.data_file import load_data
from pate.release import labels as labelling
from pate.release.label_settings import LabelSettings
from pate.runs import LABEL, METRICS, MODEL, REFERENCES, STUDENT, TEACHERS_FIT, Json, Run
from pate.runs.locks import locked
from pate.runs.released import ReleasedLabels
from pate.stages.opening import open_run
from pate.stages.votes_label import StatedLabels
from pate.teachers.jobs import Execution
from pate.validation import expect

if TYPE_CHECKING:
    from pate.stages.student_steps import StudentPlan
    from pate.student.carried import CarriedStudent
    from pate.teachers.plan import CurveFormat, TeacherPlan


class Pipeline:
    """The stages of one run, from private records to a student.

    Each method is a stage of `pate run` and leaves the same files, so that either goes on with what the other began: a
    stage that is finished is skipped, one that was killed continues where it stopped, and one whose settings changed is
    refused unless it is to be overwritten.

    Args:
        folder: the run's folder, made if it is missing.
        data: the records, which the first stage brings; later ones read in the folder where they are.
        ledger: the ledger of the private data, shared by all runs on them; None for the file beside the data.
        overwrite: whether a stage whose settings changed is done again. Labels are then paid for again.
        max_teachers_per_unit: how many teachers one unit of the data may reach, for which labels are stated.
    """

    def __init__(
        self,
        folder: Path | str,
        data: DataSource | None = None,
        *,
        ledger: Path | str | None = None,
        overwrite: bool = False,
        max_teachers_per_unit: int = 1,
    ) -> None:
        self.folder = Path(folder)
        self.data = data
        self.ledger = None if ledger is None else Path(ledger)
        self.overwrite = overwrite
        self.max_teachers_per_unit = max_teachers_per_unit

    def fit_teachers(
        self,
        plan: TeacherPlan,
        execution: Execution | None = None,
        *,
        share: str | None = None,
        logger: CurveFormat = "csv",
    ) -> None:
        """Train the teachers, each on its own partition of the private data. What they leave is PRIVATE.

        Args:
            plan: how teachers are trained.
            execution: where they are trained, which does not affect them; None for this process.
            share: ``i/n`` or ``rank`` for one of several processes that train the teachers together.
            logger: the format of the loss curves.

        Raises:
            ValueError: in one line, if plan, records or earlier files do not allow it.
        """
        from pate.stages.teachers_fit import fit_teachers

        expect(self.data is not None, "the data of a new run, as in Pipeline(folder, data)", data=None)
        assert self.data is not None
        with self._opened(self.data, shared=share is not None) as run, _own_threads():
            fit_teachers(run, self.data, plan, execution or Execution(), share=share, logger=logger)

    def vote(self, execution: Execution | None = None, *, absent: Sequence[int] | None = None) -> None:
        """Let the teachers vote on every public sample. The votes are PRIVATE.

        Args:
            execution: where they vote; None for this process.
            absent: numbers, from 0, of teachers that take no part; None for those named in an earlier call, if any.

        Raises:
            ValueError: in one line, if there are no teachers, or the data are others.
        """
        from pate.stages.teachers_plan import load_plan
        from pate.stages.teachers_vote import vote_teachers

        with self._opened() as run, _own_threads():
            run.require(TEACHERS_FIT)
            plan = load_plan(run)
            vote_teachers(run, self.data or load_data(run), plan, execution or Execution(), absent=absent)

    def label(
        self,
        aggregator: Aggregator | type[Aggregator] | None = None,
        *,
        delta: float,
        target_epsilon: float | None = None,
        num_queries: int | None = None,
        max_epsilon: float | None = None,
        query_seed: int = 0,
        noise_seed: int | None = None,
        predictions: Path | None = None,
    ) -> StatedLabels:
        """Release labels of public samples through a private mechanism, and state what all releases so far cost.

        The cost is in the ledger before the noise is drawn. The same call again returns the labels that are there.

        Args:
            aggregator: the mechanism; a class alone is given the noise, and where it can the settings, that meet the
                target. None for `pate.aggregators.Rounds`, the default of `pate label`.
            delta: the delta of the statement.
            target_epsilon: what this release may cost at most: its noise is scaled to meet it. None for noise as it is.
            num_queries: number of public samples to label; None for all.
            max_epsilon: the budget of the ledger; the first one given is final.
            query_seed: seed of the public order in which samples are taken.
            noise_seed: a fixed seed of the noise, for tests and teaching: the result is NOT private.
            predictions: an ``.npz`` of a student's predictions, for an aggregator that needs them.

        Raises:
            ValueError: in one line, if anything does not fit; nothing is spent then.
        """
        with self._opened() as run:
            settings = LabelSettings(
                aggregator.blank() if isinstance(aggregator, type) else aggregator,
                delta=delta,
                num_queries=num_queries,
                max_epsilon=max_epsilon,
                query_seed=query_seed,
                noise_seed=noise_seed,
                target_epsilon=target_epsilon,
                predictions=predictions,
                max_teachers_per_unit=self.max_teachers_per_unit,
            )
            labelling.label(run, settings)
            released = ReleasedLabels.load(run)
            parts = {field.name: getattr(released, field.name) for field in fields(ReleasedLabels)}
            return StatedLabels(**parts, statement=Statement.read(run.root / LABEL.outputs[1]))

    def fit_student(self, plan: StudentPlan) -> None:
        """Train a student of the released labels. It is PUBLIC.

        Args:
            plan: how the student is trained.

        Raises:
            ValueError: in one line, if there are no labels, or the student was begun with another plan.
        """
        from pate.stages.student_steps import fit_student

        with self._opened() as run:
            fit_student(run, plan)

    def test_student(self) -> dict[str, Any]:
        """Evaluate the student on the test set.

        Returns:
            The figures of ``student``, and of the constant answers ``released_constant`` and ``all_majority``: each has
            ``accuracy``, ``macro_f1`` and others, and ``per_label`` those of each label.

        Raises:
            ValueError: in one line, if there is no student.
        """
        from pate.stages.student_steps import test_student

        with self._opened() as run:
            return test_student(run)

    def student(self, *, device: str = "cpu") -> CarriedStudent:
        """Return the student, to predict the labels of new samples; it needs neither the run nor its data. PUBLIC.

        Args:
            device: torch's name of where it computes, such as ``cuda``.

        Raises:
            ValueError: in one line, if there is no student, or it could not be carried out of its run.
        """
        from pate.student.carried import load_student

        return load_student(self.folder / STUDENT.outputs[0] / MODEL, device=device, trust=True)

    def references(self) -> dict[str, Any]:
        """Measure, on the test set, what the student is compared with. PRIVATE: for data that may be looked at.

        Returns:
            The figures of ``true_label_student`` and of ``teacher_majority``, computed without privacy.

        Raises:
            ValueError: in one line, if a stage is not finished.
        """
        from pate.stages.references import make_references
        from pate.stages.teachers_plan import load_plan

        with self._opened() as run, _own_threads():
            run.require(TEACHERS_FIT)
            make_references(run, load_plan(run))
            figures: Json = json.loads((run.root / REFERENCES.outputs[0] / METRICS).read_text())
            return figures

    @contextmanager
    def _opened(self, data: DataSource | None = None, *, shared: bool = False) -> Iterator[Run]:
        with locked(self.folder, shared=shared):
            yield open_run(self.folder, data, ledger=self.ledger, overwrite=self.overwrite)


@contextmanager
def _own_threads() -> Iterator[None]:
    """Leave torch's number of threads as a program has it, which stages set for themselves."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
