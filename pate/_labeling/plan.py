"""A run as one plan: its source, teachers or votes from elsewhere, releases in order, a student.

A `RunPlan` is checked, rehearsed, described and executed. All commands, the estimator, audits and
silos make one of their settings. It owns the source of the records, so that a table is parsed and
a public map fitted once for all stages, and lists all releases with their prices before the first
is paid for. At the end `label`, which needs votes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from pate._core.accounting.charges import Charge, account, for_group_size
from pate._core.accounting.cost import explain_epsilon, format_epsilon, format_exact
from pate._core.accounting.history import LedgerSnapshot, PrivacyUnit
from pate._core.accounting.ledger import read_ledger
from pate._core.files.reading import Json
from pate._core.files.writing import locked, require_place
from pate._core.settings import encode_fields
from pate._core.validation import MOST_VOTERS, require, require_given
from pate._labeling.data.records import ArrayFeatures, Role
from pate._labeling.data.source import DataSource
from pate._labeling.release.between_runs import (
    Start,
    open_run,
    planned_unit,
    released_before,
    unit_of,
)
from pate._labeling.release.forecast import (
    LEAST,
    Forecast,
    describe_absent,
    describe_few,
    describe_hopeless,
    describe_unlike,
    effective_columns,
    may_abstain,
    refuse_hopeless,
    some_of,
    some_rows,
)
from pate._labeling.release.label_settings import (
    LabelSettings,
    first_settings,
    is_paid,
    require_possible,
    resolve_settings,
    teachers_for,
)
from pate._labeling.release.labels import StatedLabels, label as release_labels
from pate._labeling.runs.run import (
    LABEL,
    STUDENT,
    TEACHERS_FIT,
    TEACHERS_VOTE,
    VOTES_IMPORT,
    Run,
    describe_data,
    first_stage,
    load_data,
    read_data,
)
from pate._labeling.runs.vote_store import VoteFacts, finished_votes
from pate._labeling.stages.rehearsal import kind_of_votes, rehearse
from pate._labeling.stages.student import StudentPlan, fit_student, test_student
from pate._labeling.stages.teachers import fit, load_plan, vote
from pate._labeling.stages.votes_import import (
    NamedVotes,
    VotesFrom,
    import_votes,
    open_votes_run,
    require_served,
    votes_from,
)
from pate._labeling.teachers import FIRST, ClosedFormPlan, Execution, Plan
from pate._labeling.votes.kinds import Moments, Voting

_UNTESTED = (
    "Without test records (test_fraction of the data takes a share of the public ones), no figure"
    " of the student is measured."
)


@dataclass(frozen=True, kw_only=True)
class PlannedRelease:
    """A release of a plan, with its price.

    Attributes:
        run: the run that makes it.
        settings: its settings, complete.
        charge: the amount that the ledger reserves for it.
        is_paid: whether the ledger holds the amount, or may hold it.
        votes: the public facts about the votes.
    """

    run: Run
    settings: LabelSettings
    charge: Charge
    is_paid: bool
    votes: VoteFacts

    @classmethod
    def of(cls, run: Run, settings: LabelSettings, votes: VoteFacts) -> PlannedRelease:
        """Return the release of labels by complete settings."""
        charge, paid = settings.charge(votes.shape), is_paid(run, settings)
        return cls(run=run, settings=settings, charge=charge, is_paid=paid, votes=votes)

    def describe(self) -> str:
        """Return the release in words, with its epsilon."""
        settings, (_, count) = self.settings, self.charge
        of_unit = for_group_size([self.charge], settings.max_teachers_per_unit)
        epsilon = account(of_unit, settings.relation).get_epsilon(delta=settings.delta)
        mechanism = settings.mechanism
        noise = ", ".join(
            f"{name} = {getattr(mechanism, name):.6g}" for name in mechanism.noise_parameters
        )
        head = f"Labels of {count} public samples by {type(mechanism).__name__}"
        head += f" with {noise}:" if noise else ":"
        lines = (head, _price(epsilon, settings), explain_epsilon(epsilon))
        return "\n".join(line for line in lines if line is not None)


def _price(epsilon: float, settings: LabelSettings) -> str:
    return (
        f"    epsilon = {format_epsilon(epsilon)} at delta = {format_exact(settings.delta)},"
        f" {settings.relation.name}"
    )


@dataclass(frozen=True)
class RunPlan:
    """A run from private records, or from votes, to a student.

    `execute` does all stages that the plan names, and a method for each stage does that one. They
    read from the run whatever the plan leaves out, and write the same files as the commands, so
    that one can continue the work of the other: a finished stage is skipped, an interrupted stage
    continues, and a stage with changed settings is refused unless ``overwrite`` is set.

    >>> from pate.data import Arrays
    >>> from tempfile import TemporaryDirectory
    >>> place = TemporaryDirectory()
    >>> folder = Path(place.name)
    >>> ids = [f"r{i}" for i in range(4)]
    >>> np.savez(folder / "mine.npz", X=np.eye(4), Y=np.eye(4)[:, :2], ids=ids)
    >>> data = Arrays(folder / "mine.npz", public_fraction=0.25)
    >>> plan = RunPlan(folder / "run", data, teachers=ClosedFormPlan())
    >>> plan.run.root.name, plan.is_tested
    ('run', False)
    >>> place.cleanup()

    Args:
        root: the run's folder, created if it is missing.
        data: the source of the records, for all stages. None for the one of the run.
        teachers: how teachers are made, a `TeacherPlan` or a `ClosedFormPlan`. None for the votes
            that the run has.
        imported: votes that were cast elsewhere, in place of teachers.
        labels: the queries, the mechanism, delta and the budget.
        student: how the student is trained, or the content of ``student.yaml``. None for a run that
            ends with the labels.
        votes: the form of the teachers' votes: ``bits``, their decisions; ``scores``, their
            probabilities; or ``quantile_bits``, each label for as large a share of the samples as
            has it among a teacher's own records. None for the one of an earlier call, or ``bits``.
        absent: numbers, from 0, of teachers that take no part. None for the list of an earlier
            call, if any.
        execution: where teachers are trained and vote, without effect on the result. None for this
            process.
        ledger: the ledger of the private data, shared by all runs on them. None for the file next
            to the data.
        overwrite: whether a stage with changed settings is done again. New labels cost again.

    Raises:
        ValueError: if settings of several stages contradict each other.
    """

    root: Path
    data: DataSource | None = None
    _: KW_ONLY
    teachers: Plan | None = None
    imported: VotesFrom | None = None
    labels: LabelSettings | None = None
    student: StudentPlan | Json | None = None
    votes: Voting | None = None
    absent: Sequence[int] | None = None
    execution: Execution | None = None
    ledger: Path | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        require(
            self.votes is None or not isinstance(self.teachers, ClosedFormPlan),
            "no `votes` of teachers in closed form, whose ballots follow from how they were made",
            votes=self.votes,
        )
        object.__setattr__(self, "root", Path(self.root))
        object.__setattr__(self, "ledger", None if self.ledger is None else Path(self.ledger))

    @cached_property
    def run(self) -> Run:
        """The run, with its ledger and the source of its records."""
        asked: dict[str, Any] = {"ledger": self.ledger, "overwrite": self.overwrite}
        if self.imported is not None:
            return replace(open_votes_run(self.root, self.imported, **asked), data=self.data)
        if self.teachers is not None:
            return open_run(self.root, self._data, **asked)
        run = open_run(self.root, overwrite=self.overwrite)
        recorded = run.inputs_of(first_stage(run)).settings.get("data")
        if self.data is not None and recorded is not None:
            # read once, if it is the source of the run
            run = replace(run, data=self.data if describe_data(self.data) == recorded else None)
        return run

    @cached_property
    def _student(self) -> Json | None:
        """The content of ``student.yaml``."""
        plan = self.student
        return plan.configuration() if isinstance(plan, StudentPlan) else plan

    @property
    def _data(self) -> DataSource:
        return require_given(self.data, "the data of a new run, as in RunPlan(folder, data)")

    @property
    def _records(self) -> DataSource | None:
        """The source of the run's records. None for votes without records."""
        described = self.run.inputs_of(first_stage(self.run)).settings.get("data")
        return load_data(self.run) if self.run.data or described else None

    @cached_property
    def voting(self) -> Voting | None:
        """The form of the teachers' votes. None for the default."""
        if self.votes is None and not isinstance(self.teachers, ClosedFormPlan):
            return self.run.inputs_of(TEACHERS_VOTE).settings.get("votes")
        return self.votes

    @cached_property
    def is_tested(self) -> bool:
        """Whether there are test records."""
        return self._records is not None and len(self._records.load(Role.TEST)) > 0

    @cached_property
    def _earlier(self) -> tuple[PlannedRelease, ...]:
        """The releases before the labels, which the target of the labels covers."""
        if self.teachers is None or self.labels is None or self.teachers.start_from != FIRST:
            return ()
        votes = self._votes_of(MOST_VOTERS, Moments)
        settings = resolve_settings(
            first_settings(self.labels), votes.shape, len(votes.ids), Moments
        )
        run = replace(self.run, root=self.root / FIRST, ledger=self.run.ledger_path)
        return (PlannedRelease.of(run, settings, votes),)

    @cached_property
    def sized_teachers(self) -> Plan | None:
        """The plan of the teachers, with their number where it follows from the target."""
        teachers, labels = self.teachers, self.labels
        if (
            teachers is None
            or labels is None
            or teachers.start_from is None
            or teachers.num_teachers is not None
        ):
            return teachers
        before = [each.charge for each in self._earlier]
        size = len(self._data.load(Role.PUBLIC).ids)
        number = teachers_for(labels, self._data.num_labels, size, before)
        return replace(teachers, num_teachers=number)

    def _votes_of(self, num_teachers: int, kind: type[Any]) -> VoteFacts:
        """Return the public facts about votes that teachers of the data will cast."""
        return VoteFacts(
            ids=self._data.load(Role.PUBLIC).ids,
            label_names=self._data.label_names,
            num_teachers=num_teachers,
            kind=kind,
        )

    @cached_property
    def facts(self) -> VoteFacts:
        """The public facts about the votes: imported, of the planned teachers, or of the run."""
        if self.imported is not None:
            return self.imported.silos.facts
        plan = self.sized_teachers
        if plan is None:
            return finished_votes(self.run).facts()
        return self._votes_of(plan.num_teachers or MOST_VOTERS, kind_of_votes(plan, self.voting))

    @cached_property
    def complete_labels(self) -> LabelSettings:
        """The settings of the labels, complete."""
        labels = require_given(self.labels, "labels, the queries and the mechanism of a release")
        before = (
            released_before(self.run)
            if self.teachers is None
            else [each.charge for each in self._earlier]
        )
        votes = self.facts
        return resolve_settings(labels, votes.shape, len(votes.ids), votes.kind, before=before)

    @cached_property
    def releases(self) -> tuple[PlannedRelease, ...]:
        """All releases in order: a first release, if there is one, and the labels.

        Raises ``ValueError`` if the numbers of samples, teachers and labels do not allow them.
        """
        return (*self._earlier, PlannedRelease.of(self.run, self.complete_labels, self.facts))

    @cached_property
    def forecast(self) -> Forecast | None:
        """The forecast of answers to counts of votes. None for any other release.

        Only public samples are read, and the student that teachers start from, if it is released.
        """
        imported = self.imported or (not self.teachers and first_stage(self.run) is VOTES_IMPORT)
        data = None if imported else self._records
        if data is None or not may_abstain(self.complete_labels.mechanism):
            return None
        some = some_of(data.records(Role.PUBLIC).features)
        if self.facts.kind is Moments or len(some) < LEAST:
            return None
        start, answers = self._plan.start_from, None
        if start not in (None, FIRST):
            raw, student = data.load(Role.PUBLIC).features, encode_fields(self._plan)
            answers = Start.of(self.run, student, data).answers(raw[some_rows(raw)])
        return Forecast(
            features=some,
            num_labels=data.num_labels,
            starts=start is not None,
            networks=start is not None and not isinstance(self._plan, ClosedFormPlan),
            answers=answers,
        )

    def check(self) -> None:
        """Raise ``ValueError`` if any stage would refuse its settings. Writes nothing.

        All releases must be possible, and the ledger able to pay for all, so that none is refused
        after another was paid for. None may be hopeless.
        """
        releases, records = self.releases, self.complete_labels.nominal_records
        for folder in (self.root, self.run.ledger_path.parent):
            require_place(folder)
        require(
            self.facts.kind is Moments or self._records is None or not self._records.shifted,
            "teachers with `fit: closed_form` and without start_from, for data that are shifted",
            votes=self.facts.kind.__name__,
        )
        unit, unpaid = self._unit(), list[Charge]()
        for each in releases:
            require_possible(each.run, each.settings, each.votes, unit=unit, unpaid=unpaid)
            if each.is_paid:
                continue
            unpaid.append(each.charge)
            refuse_hopeless(
                each.settings,
                each.votes,
                is_taught=self._records is not None,
                records=records,
                columns=0.0 if records is None else self._columns,
            )
        if self.teachers is not None and (self.overwrite or not self.run.is_finished(TEACHERS_FIT)):
            self._data.require_distinct()

    def _unit(self) -> PrivacyUnit:
        """Return for whom all releases are priced, as far as it is known."""
        if self.imported is not None:
            return require_served(self.run, self.imported, self.data, self.complete_labels)
        if self.teachers is not None:
            return planned_unit(self.run, self.sized_teachers, self._data)
        return unit_of(self.run)

    def rehearse(self) -> None:
        """Run all stages on made-up records in a temporary folder, in seconds and at no cost.

        The records are a few public samples with made-up labels. What can fail for reasons that
        public facts know fails here, before teachers are trained and labels are paid for.

        Raises:
            ValueError: in one line, if a stage fails.
        """
        run, votes, plan = self.run, self.facts, self.sized_teachers
        if is_paid(run, self.complete_labels):
            return
        if plan is None and votes.kind is Moments:
            plan = load_plan(run)
        rehearse(
            run,
            votes,
            self.complete_labels,
            data=self._records,
            teachers=plan,
            voting=self.voting,
            student=self._student,
        )

    def describe(self) -> None:
        """Print the resources of teachers, which are PRIVATE, and all releases with their prices.

        Writes nothing. Raises ``ValueError`` at the end if not one answer is forecast.
        """
        self._tell_hopeless(keep=False)
        self._say_untested(print)
        if self.teachers is not None:
            print(f"[1/{len(self._stages())}] {TEACHERS_FIT.name}", flush=True)
            self._fit(dry_run=True)
        for each in self.releases:
            print(each.describe())
        self._say_total()
        self._say_forecast(print, around=True)

    def _say_total(self) -> None:
        """Print the epsilon of all releases of the data, with those that the ledger holds."""
        path, settings = self.run.ledger_path, self.complete_labels
        book = read_ledger(path) if path.exists() else LedgerSnapshot()
        unpaid = [each.charge for each in self.releases if not each.is_paid]
        priced = book.for_unit(self._unit(), settings.relation)
        if unpaid and priced is not None and len(unpaid) + len(book.entries) > 1:
            most = max(book.max_teachers_per_unit, settings.max_teachers_per_unit)
            charges = [*priced.charges(most), *for_group_size(unpaid, most)]
            epsilon = account(charges, settings.relation).get_epsilon(delta=settings.delta)
            print(
                f"All releases of these data, with {len(book.entries)} of the ledger:",
                _price(epsilon, settings),
                sep="\n",
            )

    def execute(self, say: Callable[[str], object] = lambda line: None) -> StatedLabels:
        """Check and rehearse the plan, do all its stages that are not finished, and return labels.

        The cost is in the ledger before the noise is drawn. Another call returns the same labels.

        Args:
            say: is told the stages as they begin.

        Returns:
            the labels with their statement.

        Raises:
            ValueError: in one line, if anything does not fit, and nothing is spent then; or if no
                query was answered, with what is spent.
        """
        self.check()
        self.rehearse()
        self._say_forecast(say)
        self._tell_hopeless()
        self._say_untested(say)
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
                    require(
                        self.student is None or labels.answered.any(),
                        f"an answer for the student to learn from. {labels.unanswered}",
                    )
        return labels

    def fit_teachers(self, *, dry_run: bool = False) -> None:
        """Train the teachers, each on its own partition of the private data.

        Their files are PRIVATE.

        Args:
            dry_run: whether to print sizes and memory, and write nothing.

        Raises:
            ValueError: in one line, if plan, records or earlier files do not allow it.
        """
        with suppress(ValueError):  # the stage itself refuses such records
            for line in describe_few(self._plan, self._num_units):
                self.run.tell_owner(line, keep=not dry_run)
        with nullcontext() if dry_run else locked(self.root):
            self._fit(dry_run=dry_run)

    def vote(self) -> None:
        """Let the teachers vote on every public sample. The votes are PRIVATE.

        Raises:
            ValueError: in one line, if there are no teachers, or the data have changed.
        """
        with locked(self.root):
            vote(self.run, self.data, self.execution, voting=self.voting, absent=self.absent)

    def label(self) -> StatedLabels:
        """Release the labels of a run that has its votes, or imports them, as `execute` does."""
        return replace(self, teachers=None, student=None).execute()

    def fit_student(self) -> None:
        """Train a student of the released labels. It is PUBLIC.

        Raises:
            ValueError: in one line, if there are no labels, or the student was begun with another
                plan.
        """
        content = require_given(self._student, "student, a plan of its training")
        with locked(self.root):
            fit_student(self.run, content)

    def test_student(self) -> dict[str, Any]:
        """Evaluate the student on the test set, by the settings of the plan or else of the run.

        Returns:
            The figures of ``student``, and of the constant answers ``released_constant`` and
            ``all_majority``: ``accuracy``, ``macro_f1`` and others, and under ``per_label`` the
            figures of each label.

        Raises:
            ValueError: in one line, if there is no student, or one of another kind of network.
        """
        with locked(self.root):
            return test_student(self.run, self._student)

    def _stages(self) -> dict[str, Callable[[], object]]:
        """Return the stages in order, by name."""
        stages: dict[str, Callable[[], object]] = {}
        if self.imported is not None:
            stages[VOTES_IMPORT.name] = partial(import_votes, self.run, self.imported, self.data)
        elif self.teachers is not None:
            stages |= {TEACHERS_FIT.name: self._fit, TEACHERS_VOTE.name: self.vote}
        stages[LABEL.name] = self._label
        if self.student is not None:
            stages[STUDENT.name] = self.fit_student
            if self.is_tested:
                stages["student test"] = self.test_student
        return stages

    def _fit(self, *, dry_run: bool = False) -> None:
        plan = require_given(self.sized_teachers, "teachers, a plan of theirs")
        fit(self.run, self._data, plan, self.execution, dry_run=dry_run)

    def _label(self) -> StatedLabels:
        run, total = self.run, None if self.imported is None else self.imported.total
        if total is not None and (run.overwrite or not run.is_finished(LABEL)):
            total.collect()  # before it is paid for
        return release_labels(run, finished_votes(run), self.complete_labels, total)

    def _release_first(self, release: PlannedRelease) -> None:
        """Release the labels that teachers start from, and train their student."""
        teachers = require_given(self.teachers, "teachers that start from a release")
        with locked(release.run.root):
            run = open_run(
                release.run.root, self._data, ledger=release.run.ledger, overwrite=self.overwrite
            )
            most = teachers.max_teachers_per_group
            fit(run, self._data, ClosedFormPlan(unit=teachers.unit, max_teachers_per_group=most))
            vote(run, self._data)
            release_labels(run, finished_votes(run), release.settings)
            fit_student(run, self._student or StudentPlan().configuration())

    def _say_untested(self, say: Callable[[str], object]) -> None:
        if self.student is not None and not self.is_tested:
            say(_UNTESTED)

    def _say_forecast(self, say: Callable[[str], object], *, around: bool = False) -> None:
        settings, number = self.complete_labels, self.facts.num_teachers
        if is_paid(self.run, settings) or self.forecast is None:
            return
        line = self.forecast.describe(settings, number)
        if around and line:
            say("\n".join(self.forecast.table([*self._around(settings)], number)))
        self.forecast.refuse_few(settings, number)
        if line:
            say(line)

    def _around(self, settings: LabelSettings) -> Iterator[LabelSettings]:
        """Yield complete settings of labels, with fewer queries, and with more epsilon."""
        yield settings
        if (asked := settings.target_epsilon) is None or self.labels is None:
            return
        half = replace(self.labels, num_queries=max(1, (settings.num_queries or 0) // 2))
        for labels in (half, replace(self.labels, target_epsilon=2 * asked)):
            with suppress(ValueError):  # no such release is possible
                yield replace(self, teachers=self.sized_teachers, labels=labels).complete_labels

    def _tell_hopeless(self, *, keep: bool = True) -> None:
        """Tell the owner why labels that are yet to be paid for promise or show next to nothing."""
        settings = self.complete_labels
        if is_paid(self.run, settings) or self.imported or first_stage(self.run) is VOTES_IMPORT:
            return
        try:
            data, plan = require_given(self._records, "records"), self._plan
            lines = [
                *describe_hopeless(
                    plan,
                    settings,
                    self._num_units,
                    num_labels=data.num_labels,
                    columns=self._columns,
                )
            ]
            features = [data.load(role).features for role in (Role.PRIVATE, Role.PUBLIC)]
            if not data.shifted and all(isinstance(each, ArrayFeatures) for each in features):
                lines += describe_unlike(*map(some_of, features))
            lines += describe_absent(data.load(Role.PRIVATE).labels, data.label_names)
            if (forecast := self.forecast) is not None:
                size = self._num_units / self.facts.num_teachers
                lines += [forecast.describe(settings, self.facts.num_teachers, [size])]
        except ValueError as error:  # private records may be gone by now
            lines = [f"nothing is told of the private records: {error}"]
        for line in filter(None, lines):
            self.run.tell_owner(line, keep=keep)

    @property
    def _plan(self) -> Plan:
        """The plan of the teachers, or of those that the run has."""
        return load_plan(self.run) if self.sized_teachers is None else self.sized_teachers

    @cached_property
    def _columns(self) -> float:
        """The columns of public samples, as teachers see them, that do not follow from others."""
        if (data := self._records) is None:
            return 0.0
        return effective_columns(some_of(data.records(Role.PUBLIC).features))

    @property
    def _num_units(self) -> int:
        """The number of private units, which is PRIVATE."""
        records = require_given(self._records, "private records").load(Role.PRIVATE)
        return len(np.unique(records.units(self._plan.unit)))


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
    return RunPlan(
        Path(run),
        None if data is None else read_data(Path(data)),
        imported=votes_from(votes, unit=unit),
        labels=settings,
        ledger=None if ledger is None else Path(ledger),
        overwrite=overwrite,
    ).execute()
