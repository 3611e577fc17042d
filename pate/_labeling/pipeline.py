"""The stages of a run as methods of one object: `pate run` from Python, and labels from votes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from pate._core.files.reading import read_json
from pate._core.files.writing import locked
from pate._core.validation import require, require_given
from pate._labeling.data.arrays import DrawnPublic
from pate._labeling.data.records import Unit
from pate._labeling.data.source import DataSource
from pate._labeling.plan import RunPlan, say_hopeless
from pate._labeling.release.between_runs import draw_public_samples, open_run, released_before
from pate._labeling.release.completion import (
    resolve_settings,
    sample_settings,
)
from pate._labeling.release.label_settings import LabelSettings
from pate._labeling.release.labels import StatedLabels, label as release_labels
from pate._labeling.runs.named_votes import NamedVotes
from pate._labeling.runs.run import (
    LABEL,
    METRICS,
    MODEL,
    REFERENCES,
    STUDENT,
    TEACHERS_FIT,
    Run,
    describe_data,
    first_stage,
    load_data,
    read_data,
)
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.stages.rehearsal import rehearse_release
from pate._labeling.stages.student import StudentPlan, fit_student, make_references, test_student
from pate._labeling.stages.teachers import (
    fit,
    forget,
    load_plan,
    own_threads,
    vote,
)
from pate._labeling.stages.votes_import import (
    VotesFrom,
    import_votes,
    open_votes_run,
    require_served,
    votes_from,
)
from pate._labeling.student.carried import ExportedStudent, load_student
from pate._labeling.teachers import CurveFormat, Execution, Plan
from pate._labeling.votes.kinds import NoisyTotal, Voting


class AwaitedTotal(NoisyTotal, Protocol):
    """A sum of silos that may still send their shares."""

    def collect(self) -> None:
        """Wait until all shares are there, before the sum is paid for."""


class Pipeline:
    """The stages of one run, from private records to a student.

    Each method is a stage of `pate run` and writes the same files, so that one can continue the
    work of the other: a finished stage is skipped, an interrupted stage continues, and a stage with
    changed settings is refused unless ``overwrite`` is set.

    >>> from pate.data import Arrays
    >>> from tempfile import TemporaryDirectory
    >>> place = TemporaryDirectory()
    >>> folder = Path(place.name)
    >>> ids = [f"r{i}" for i in range(4)]
    >>> np.savez(folder / "mine.npz", X=np.eye(4), Y=np.eye(4)[:, :2], ids=ids)
    >>> run = Pipeline(folder / "run", Arrays(folder / "mine.npz", public_fraction=0.25))
    >>> run.folder.name, run.data.num_labels
    ('run', 2)
    >>> place.cleanup()

    Args:
        folder: the run's folder, created if it is missing.
        data: the source of the records, for the first stage; later stages read it from the folder.
        ledger: the ledger of the private data, shared by all runs on them. None for the file next
            to the data.
        overwrite: whether a stage with changed settings is done again. New labels cost again.
    """

    def __init__(
        self,
        folder: Path | str,
        data: DataSource | None = None,
        *,
        ledger: Path | str | None = None,
        overwrite: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.data = data
        self.ledger = None if ledger is None else Path(ledger)
        self.overwrite = overwrite

    def rehearse(
        self,
        plan: Plan,
        settings: LabelSettings,
        student: StudentPlan | None = None,
        *,
        votes: Voting | None = None,
    ) -> None:
        """Run all stages on made-up records in a temporary folder, in seconds and at no cost.

        The records are a few public samples with made-up labels. What can fail for reasons that
        public facts know fails here, before teachers are trained and labels are paid for. `label`
        rehearses itself with a linear student; `pate run` rehearses everything.

        Args:
            plan: how teachers are made. Of networks two are trained, for two steps.
            settings: the settings of the labels.
            student: how the student is trained. None for the linear one.
            votes: the form of the teachers' votes, as in `vote`.

        Raises:
            ValueError: in one line, if a stage fails.
        """
        RunPlan(
            root=self.folder,
            data=require_given(self.data, "the data of a run, as in Pipeline(folder, data)"),
            teachers=plan,
            labels=settings,
            student=None if student is None else student.configuration(),
            votes=votes,
            ledger=self.ledger,
            overwrite=self.overwrite,
        ).rehearse()

    def draw_public_samples(self, settings: LabelSettings, *, unit: Unit = "record") -> None:
        """Draw the public samples of a `DrawnPublic`, unless they exist. Their file is PUBLIC.

        Args:
            settings: the settings of the labels. 15% of the squared budget of their target
                epsilon pays for the samples, and `label` then takes the rest.
            unit: the unit that is protected, as in the plan of the teachers.

        Raises:
            ValueError: in one line, if they cannot be drawn or paid for. Nothing is spent then.
        """
        data: Any = self.data
        require(isinstance(data, DrawnPublic), "data whose public samples are drawn")
        with locked(self.folder):
            draw_public_samples(
                open_run(self.folder, data, ledger=self.ledger, overwrite=self.overwrite),
                data,
                sample_settings(settings, unit),
            )

    def fit_teachers(
        self,
        plan: Plan,
        execution: Execution | None = None,
        *,
        logger: CurveFormat = "csv",
        dry_run: bool = False,
    ) -> None:
        """Train the teachers, each on its own partition of the private data.

        Their files are PRIVATE.

        Args:
            plan: how teachers are made, a `TeacherPlan` or a `ClosedFormPlan`.
            execution: where they are trained, without effect on the result. None for this process.
            logger: the format of the loss curves.
            dry_run: whether to print sizes, memory and time, and write nothing.

        Raises:
            ValueError: in one line, if plan, records or earlier files do not allow it.
        """
        data = require_given(self.data, "the data of a new run, as in Pipeline(folder, data)")
        shared = execution is not None and execution.shared
        with nullcontext() if dry_run else locked(self.folder, shared=shared):
            run = open_run(self.folder, data, ledger=self.ledger, overwrite=self.overwrite)
            fit(run, data, plan, execution, logger=logger, dry_run=dry_run)

    def vote(
        self,
        execution: Execution | None = None,
        *,
        votes: Voting | None = None,
        absent: Sequence[int] | None = None,
    ) -> None:
        """Let the teachers vote on every public sample. The votes are PRIVATE.

        Args:
            execution: where they vote. None for this process.
            votes: ``bits``, the decisions of the teachers; ``scores``, their probabilities; or
                ``quantile_bits``, each label for as large a share of the samples as has it among a
                teacher's own records. None for the value of an earlier call, or ``bits``.
            absent: numbers, from 0, of teachers that take no part. None for the list of an earlier
                call, if any.

        Raises:
            ValueError: in one line, if there are no teachers, or the data have changed.
        """
        with self._opened(shared=execution is not None and execution.shared) as run:
            run.require_finished(TEACHERS_FIT)
            vote(run, self.data or load_data(run), execution, voting=votes, absent=absent)

    def forget(self, units: Sequence[str], execution: Execution | None = None) -> bool:
        """Change teachers and votes to those of a run without some private records, bit for bit.

        Released labels stay.

        The data must still hold the records, so that the run can check that all others are the
        same. Remove them from the data afterwards; the run then expects the data without them.

        Args:
            units: ids of records or, where groups are protected, groups with all their records.
            execution: where teachers are trained and vote. None for this process.

        Returns:
            False if the data hold none of the units, and are the data of the teachers.

        Raises:
            ValueError: in one line, if the data hold only some of the units, or are not the data of
                the teachers.
        """
        with self._opened() as run:
            require(
                first_stage(run) is TEACHERS_FIT,
                "a run whose teachers were trained here, which forget",
                imported_votes=str(run.root),
            )
            return forget(run, self.data or load_data(run), units, execution or Execution())

    def label(
        self,
        settings: LabelSettings,
        votes: NamedVotes | Sequence[NamedVotes] | Path | str | None = None,
        *,
        unit: str | None = None,
    ) -> StatedLabels:
        """Release labels of public samples privately, and state the cost of all releases so far.

        The cost is in the ledger before the noise is drawn. Another call returns the same labels.

        Args:
            settings: the queries, the mechanism, delta and the budget.
            votes: imported votes, an object for each silo, or a file or folder of them, in place of
                the votes of the run's teachers. The pipeline's data are then the public and test
                records of a student, if any.
            unit: with imported votes, the word for the protected unit, such as ``patient``, which
                reaches only one teacher. None for the word of the run, or ``record``.

        Raises:
            ValueError: in one line, if anything does not fit. Nothing is spent then.
        """
        return self._released(settings, None if votes is None else votes_from(votes, unit=unit))

    def _released(
        self,
        settings: LabelSettings,
        source: VotesFrom | None = None,
        total: AwaitedTotal | None = None,
    ) -> StatedLabels:
        if source is not None and not self.folder.exists():
            # the lock creates the folder, which a refusal must not leave behind
            require_served(settings, self._votes_run(source), source, self.data)
        with locked(self.folder):
            if source is not None:
                run = self._votes_run(source)
                require_served(settings, run, source, self.data)
                import_votes(run, source, self.data)
            with self._opened() as run:
                store = finished_votes(run)
                manifest = store.manifest()
                complete = resolve_settings(
                    settings,
                    manifest.shape,
                    len(manifest.ids),
                    manifest.kind,
                    before=released_before(run),
                    budgets=manifest.budgets,
                )
                rehearse_release(run, store, complete, self.data)
                if first_stage(run) is TEACHERS_FIT:
                    with suppress(ValueError):  # private records may be gone by now
                        data = self.data or load_data(run)
                        say_hopeless(run, data, load_plan(run), complete)
                if total is not None and (run.overwrite or not run.is_finished(LABEL)):
                    total.collect()  # before it is paid for
                return release_labels(run, store, complete, total)

    def _votes_run(self, votes: VotesFrom) -> Run:
        return open_votes_run(self.folder, votes, ledger=self.ledger, overwrite=self.overwrite)

    def fit_student(self, plan: StudentPlan) -> None:
        """Train a student of the released labels. It is PUBLIC.

        Args:
            plan: how the student is trained.

        Raises:
            ValueError: in one line, if there are no labels, or the student was begun with another
                plan.
        """
        with self._opened() as run:
            fit_student(run, plan.configuration())

    def test_student(self) -> dict[str, Any]:
        """Evaluate the student on the test set.

        Returns:
            The figures of ``student``, and of the constant answers ``released_constant`` and
            ``all_majority``: ``accuracy``, ``macro_f1`` and others, and under ``per_label`` the
            figures of each label.

        Raises:
            ValueError: in one line, if there is no student.
        """
        with self._opened() as run:
            return test_student(run)

    def student(self, *, device: str = "cpu") -> ExportedStudent:
        """Return the student, which predicts new samples without the run and its data. PUBLIC.

        Args:
            device: torch's name of the device, such as ``cuda``.

        Raises:
            ValueError: in one line, if there is no student, or it could not be exported.
        """
        return load_student(self.folder / STUDENT.outputs[0] / MODEL, device=device, trust=True)

    def references(self) -> dict[str, Any]:
        """Measure the references that the student is compared with, on the test set.

        PRIVATE: for data that may be looked at.

        Returns:
            The figures of ``true_label_student``, and of ``teacher_majority`` or, of teachers in
            closed form, ``linear_fit``, computed without privacy.

        Raises:
            ValueError: in one line, if a stage is not finished.
        """
        with self._opened() as run, own_threads():
            require(
                first_stage(run) is TEACHERS_FIT,
                "a run whose teachers were trained here, which references measure",
                imported_votes=str(run.root),
            )
            run.require_finished(TEACHERS_FIT)
            make_references(run, load_plan(run))
            return read_json((run.root / REFERENCES.outputs[0] / METRICS).read_text())

    @contextmanager
    def _opened(self, *, shared: bool = False) -> Iterator[Run]:
        with locked(self.folder, shared=shared):
            run = open_run(self.folder, overwrite=self.overwrite)
            recorded = run.inputs_of(first_stage(run)).settings.get("data")
            if self.data is not None and recorded is not None:
                # read once, if it is the source of the run
                same = describe_data(self.data) == recorded
                run = replace(run, data=self.data if same else None)
            yield run


def label(
    votes: NamedVotes | Sequence[NamedVotes] | Path | str,
    settings: LabelSettings,
    *,
    run: Path | str,
    data: Path | str | None = None,
    unit: str | None = None,
    ledger: Path | str | None = None,
    overwrite: bool = False,
) -> StatedLabels:
    """Label public samples privately from votes, and state the cost of all releases so far.

    The cost is in the ledger before the noise is drawn. Another call returns the same labels. Other
    settings are refused unless ``overwrite`` is set; new labels are then released, and cost again.

    Args:
        votes: the votes, an object for each silo, or a file or folder of them as for `pate label
            --votes`.
        settings: the queries, the mechanism, delta and the budget.
        run: the folder of the run, created if it is missing.
        data: a ``data.yaml`` with public and test records, which `pate student` needs. None for the
            one of the run.
        unit: the word for the protected unit, such as ``patient``, which reaches only one teacher.
            None for the word of the run, or ``record``.
        ledger: the ledger of the private data behind the votes. None for the file next to the
            votes; with votes from memory the run then has its own, which counts only this run.
        overwrite: whether a run that was begun with other votes or settings is done again.

    Returns:
        the labels with the statement of their cost.

    Raises:
        ValueError: in one line, if anything does not fit. Nothing is spent then.
    """
    return Pipeline(
        run, None if data is None else read_data(Path(data)), ledger=ledger, overwrite=overwrite
    ).label(settings, votes, unit=unit)
