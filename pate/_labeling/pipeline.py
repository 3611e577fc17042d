"""A run from private records to a student: as one plan, or stage by stage.

The command `pate run` and the estimator make a `RunPlan` of their settings. It is checked,
described, rehearsed and executed. It owns the source of the records, so that a table is parsed and
a public map fitted once for all stages, and lists all releases with their prices before the first
is paid for. `Pipeline` has a method for each stage. At the end `label`, which needs votes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pate._core.accounting.accountant import epsilon_of
from pate._core.accounting.charges import Charge
from pate._core.accounting.cost import explain_epsilon, format_epsilon, format_exact
from pate._core.files.reading import Json
from pate._core.files.writing import locked, require_place
from pate._core.validation import MOST_VOTERS, require, require_given
from pate._labeling.data.records import Role
from pate._labeling.data.source import DataSource
from pate._labeling.release.between_runs import (
    open_run,
    released_before,
)
from pate._labeling.release.completion import (
    describe_absent,
    describe_few,
    describe_gap,
    describe_hopeless,
    describe_unanswered,
    first_settings,
    resolve_settings,
    teachers_for,
)
from pate._labeling.release.label_settings import LabelSettings, is_paid, require_possible
from pate._labeling.release.labels import StatedLabels, label as release_labels
from pate._labeling.release.privacy_units import planned_unit
from pate._labeling.runs.named_votes import NamedVotes
from pate._labeling.runs.run import (
    LABEL,
    MODEL,
    STUDENT,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    Run,
    describe_data,
    first_stage,
    load_data,
    read_data,
)
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.stages.rehearsal import kind_of_votes, rehearse_release, rehearse_run
from pate._labeling.stages.student import StudentPlan, fit_student, test_student
from pate._labeling.stages.teachers import fit, load_plan, vote
from pate._labeling.stages.votes_import import (
    VotesFrom,
    import_votes,
    open_votes_run,
    require_served,
    votes_from,
)
from pate._labeling.student.carried import ExportedStudent, load_student
from pate._labeling.teachers import (
    FIRST,
    ClosedFormPlan,
    CurveFormat,
    Execution,
    Plan,
)
from pate._labeling.votes.kinds import Moments, NoisyTotal, VoteShape, Voting

TESTS = "test records (test_fraction of the data takes a share of the public ones)"


@dataclass(frozen=True, kw_only=True)
class PlannedRelease:
    """A release of a plan, with its price.

    Attributes:
        run: the run that makes it.
        settings: its settings, complete.
        charge: the amount that the ledger reserves for it.
        is_paid: whether the ledger holds the amount, or may hold it.
        shape: the numbers of teachers and labels.
    """

    run: Run
    settings: LabelSettings
    charge: Charge
    is_paid: bool
    shape: VoteShape

    @classmethod
    def of_labels(cls, run: Run, settings: LabelSettings, shape: VoteShape) -> PlannedRelease:
        """Return the release of labels by complete settings."""
        return cls(
            run=run,
            settings=settings,
            charge=settings.charge(shape),
            is_paid=is_paid(run, settings),
            shape=shape,
        )

    def describe(self) -> str:
        """Return the release in words, with its epsilon."""
        settings, (events, count) = self.settings, self.charge
        epsilon = epsilon_of(
            events[settings.relation].for_group_size(settings.max_teachers_per_unit),
            count=count,
            delta=settings.delta,
        )
        price = (
            f"    epsilon = {format_epsilon(epsilon)} at delta = {format_exact(settings.delta)},"
            f" {settings.relation.name}"
        )
        mechanism = settings.mechanism
        noise = ", ".join(
            f"{name} = {getattr(mechanism, name):.6g}" for name in mechanism.noise_parameters
        )
        head = f"Labels of {count} public samples by {type(mechanism).__name__}"
        head += f" with {noise}:" if noise else ":"
        lines = (head, price, explain_epsilon(epsilon), describe_gap(mechanism, self.shape))
        return "\n".join(line for line in lines if line is not None)


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run from private records to a student.

    Args:
        root: the run's folder.
        data: the source of the records, for all stages.
        teachers: how teachers are made.
        labels: the queries, the mechanism, delta and the budget.
        student: the content of ``student.yaml``. None for a run that ends with the labels.
        votes: the form of the teachers' votes. None for the one of an earlier call, if any.
        execution: where teachers are trained. None for this process.
        logger: the format of their loss curves.
        ledger: the ledger of the private data. None for the file next to the data.
        overwrite: whether a stage with changed settings is done again. New labels cost again.

    Raises:
        ValueError: if settings of several stages contradict each other.
    """

    root: Path
    data: DataSource
    teachers: Plan
    labels: LabelSettings
    student: Json | None = None
    votes: Voting | None = None
    execution: Execution | None = None
    logger: CurveFormat = "csv"
    ledger: Path | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        require(
            self.votes is None or not isinstance(self.teachers, ClosedFormPlan),
            "no `votes` of teachers in closed form, whose ballots follow from how they were made",
            votes=self.votes,
        )

    @cached_property
    def run(self) -> Run:
        """The run, with its ledger and the source of its records."""
        return open_run(self.root, self.data, ledger=self.ledger, overwrite=self.overwrite)

    @cached_property
    def voting(self) -> Voting | None:
        """The form of the teachers' votes. None for the default."""
        if self.votes is None and not isinstance(self.teachers, ClosedFormPlan):
            return self.run.inputs_of(TEACHERS_VOTE).settings.get("votes")
        return self.votes

    @cached_property
    def is_tested(self) -> bool:
        """Whether there are test records."""
        return len(self.data.load(Role.TEST)) > 0

    @cached_property
    def _size(self) -> int:
        return len(self.data.load(Role.PUBLIC).ids)

    @cached_property
    def _earlier(self) -> tuple[PlannedRelease, ...]:
        """The releases before the labels, which the target of the labels covers."""
        if self.teachers.start_from != FIRST:
            return ()
        shape = VoteShape(MOST_VOTERS, self.data.num_labels)
        settings = resolve_settings(first_settings(self.labels), shape, self._size, Moments)
        run = replace(self.run, root=self.root / FIRST, ledger=self.run.ledger_path)
        return (PlannedRelease.of_labels(run, settings, shape),)

    @cached_property
    def sized_teachers(self) -> Plan:
        """The plan of the teachers, with their number where it follows from the target."""
        teachers = self.teachers
        if teachers.start_from is None or teachers.num_teachers is not None:
            return teachers
        before = [each.charge for each in self._earlier]
        number = teachers_for(self.labels, self.data.num_labels, self._size, before)
        return replace(teachers, num_teachers=number)

    @cached_property
    def complete_labels(self) -> LabelSettings:
        """The settings of the labels, complete."""
        return resolve_settings(
            self.labels,
            self._shape,
            self._size,
            kind_of_votes(self.sized_teachers, self.voting),
            before=[each.charge for each in self._earlier],
        )

    @property
    def _shape(self) -> VoteShape:
        return VoteShape(self.sized_teachers.num_teachers or MOST_VOTERS, self.data.num_labels)

    @cached_property
    def releases(self) -> tuple[PlannedRelease, ...]:
        """All releases in order: a first release, if there is one, and the labels.

        Raises ``ValueError`` if the numbers of samples, teachers and labels do not allow them.
        """
        return (
            *self._earlier,
            PlannedRelease.of_labels(self.run, self.complete_labels, self._shape),
        )

    def check(self) -> None:
        """Raise ``ValueError`` if any stage would refuse its settings. Writes nothing.

        All releases must be possible, and the ledger able to pay for all, so that none is refused
        after another was paid for.
        """
        releases, public = self.releases, self.data.load(Role.PUBLIC)
        for folder in (self.root, self.run.ledger_path.parent):
            require_place(folder)
        unit, unpaid = planned_unit(self.run, self.sized_teachers, self.data), list[Charge]()
        for each in releases:
            facts = each.shape, public.ids, self.data.label_names
            require_possible(each.run, each.settings, *facts, unit=unit, unpaid=unpaid)
            if not each.is_paid:
                unpaid.append(each.charge)
        if self.overwrite or not self.run.is_finished(TEACHERS_FIT):
            self.data.require_distinct()

    def rehearse(self) -> None:
        """Run all stages on made-up records, to an exported student that predicts, at no cost.

        Raises ``ValueError`` in one line, if a stage fails.
        """
        rehearse_run(
            self.run,
            self.data,
            self.sized_teachers,
            self.complete_labels,
            self.student,
            voting=self.voting,
        )

    def describe(self) -> None:
        """Print the resources of teachers, which are PRIVATE, and all releases with their prices.

        Writes nothing.
        """
        print(f"[1/{len(self._stages())}] {TEACHERS_FIT.name}", flush=True)
        fit(self.run, self.data, self.sized_teachers, self.execution, dry_run=True)
        for each in self.releases:
            print(each.describe())

    def execute(self, say: Callable[[str], object] = lambda line: None) -> StatedLabels:
        """Do all stages that are not finished, and return the labels with their statement.

        Args:
            say: is told the stages as they begin, and advice on labels.

        Raises:
            ValueError: in one line, if a stage fails. `check` and `rehearse` come before.
        """
        stages = self._stages()
        with locked(self.root):
            for each in self._earlier:
                say(f"[0/{len(stages)}] first release")
                self._release_first(each)
            for number, (name, stage) in enumerate(stages.items(), 1):
                say(f"[{number}/{len(stages)}] {name}")
                done = stage()
                if isinstance(done, StatedLabels):
                    labels = done
                    for line in advice_on(labels):
                        say(line)
        return labels

    def _stages(self) -> dict[str, Callable[[], object]]:
        """Return the stages in order, by name."""
        run, data = self.run, self.data
        stages: dict[str, Callable[[], object]] = {
            TEACHERS_FIT.name: lambda: fit(
                run, data, self.sized_teachers, self.execution, logger=self.logger
            ),
            TEACHERS_VOTE.name: lambda: vote(run, data, voting=self.voting),
            LABEL.name: lambda: release_labels(run, finished_votes(run), self.complete_labels),
        }
        if self.student is not None:
            stages[STUDENT.name] = partial(fit_student, run, self.student)
            if self.is_tested:
                stages["student test"] = lambda: test_student(run)
        return stages

    def _release_first(self, release: PlannedRelease) -> None:
        """Release the labels that teachers start from, and train their student."""
        teachers, settings = self.teachers, release.settings
        assert isinstance(settings, LabelSettings)
        with locked(release.run.root):
            run = open_run(
                release.run.root, self.data, ledger=release.run.ledger, overwrite=self.overwrite
            )
            most = teachers.max_teachers_per_group
            fit(run, self.data, ClosedFormPlan(unit=teachers.unit, max_teachers_per_group=most))
            vote(run, self.data)
            release_labels(run, finished_votes(run), settings)
            fit_student(run, self.student or StudentPlan().configuration())


def advice_on(labels: StatedLabels) -> Iterator[str]:
    """Yield lines on labels that few queries have, and on samples unlike the private records."""
    yield from filter(None, (describe_unanswered(labels), labels.unlike))


def say_hopeless(
    run: Run, data: DataSource, plan: Plan, settings: LabelSettings, *, keep: bool = True
) -> None:
    """Tell the owner why a release that is yet to be paid for promises or shows next to nothing."""
    if not is_paid(run, settings):
        lines = [*describe_hopeless(plan, settings, _num_units(data, plan))]
        lines += describe_absent(data.load(Role.PRIVATE).labels, data.label_names)
        for line in lines:
            run.tell_owner(line, keep=keep)


def say_few(run: Run, data: DataSource, plan: Plan, *, keep: bool = True) -> None:
    """Tell the owner that there are too few private records for networks, if so."""
    with suppress(ValueError):  # the stage itself refuses such records
        for line in describe_few(plan, _num_units(data, plan)):
            run.tell_owner(line, keep=keep)


def _num_units(data: DataSource, plan: Plan) -> int:
    return len(np.unique(data.load(Role.PRIVATE).units(plan.unit)))


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
