"""A run from private records to a student as one plan: checked, described, rehearsed, executed.

The command `pate run`, `Pipeline` and the estimator make a plan of their settings. It owns the
source of the records, so that a table is parsed and a public map fitted once for all stages. It
lists all releases with their prices before the first is paid for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from pate._core.accounting.accountant import epsilon_of
from pate._core.accounting.charges import Charge
from pate._core.accounting.cost import explain_epsilon, format_epsilon, format_exact
from pate._core.files.reading import Json
from pate._core.files.writing import locked, require_place
from pate._core.validation import MOST_VOTERS, require
from pate._labeling.data.arrays import DrawnPublic
from pate._labeling.data.records import Role
from pate._labeling.data.source import DataSource
from pate._labeling.release.between_runs import (
    SampleSettings,
    draw_public_samples,
    open_run,
    released_samples,
)
from pate._labeling.release.completion import (
    describe_absent,
    describe_few,
    describe_gap,
    describe_hopeless,
    describe_unanswered,
    first_settings,
    resolve_settings,
    sample_settings,
    teachers_for,
)
from pate._labeling.release.label_settings import LabelSettings, is_paid, require_possible
from pate._labeling.release.labels import StatedLabels, label, require_student_for
from pate._labeling.release.privacy_units import planned_unit
from pate._labeling.runs.run import LABEL, REFERENCES, STUDENT, TEACHERS_FIT, TEACHERS_VOTE, Run
from pate._labeling.runs.vote_store import finished_votes
from pate._labeling.stages.rehearsal import kind_of_votes, rehearse_run
from pate._labeling.stages.student import (
    StudentPlan,
    fit_student,
    make_references,
    test_student,
)
from pate._labeling.stages.teachers import fit, load_plan, vote
from pate._labeling.teachers import (
    FIRST,
    ClosedFormPlan,
    CurveFormat,
    Execution,
    Plan,
    require_by_record,
)
from pate._labeling.votes.kinds import Moments, VoteShape, Voting

TESTS = "test records (test_fraction of the data takes a share of the public ones)"


@dataclass(frozen=True, kw_only=True)
class PlannedRelease:
    """A release of a plan, with its price.

    Attributes:
        run: the run that makes it.
        settings: its settings, complete: of public samples or of labels.
        charge: the amount that the ledger reserves for it.
        is_paid: whether the ledger holds the amount, or may hold it.
        shape: the numbers of teachers and labels. None for public samples.
    """

    run: Run
    settings: LabelSettings | SampleSettings
    charge: Charge
    is_paid: bool
    shape: VoteShape | None = None

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
        if isinstance(settings, SampleSettings):
            multiplier = f"{settings.noise_multiplier:.6g}"
            return f"Public samples with noise multiplier {multiplier}:\n{price}"
        mechanism, shape = settings.mechanism, self.shape
        assert shape is not None, "labels have votes"
        noise = ", ".join(
            f"{name} = {getattr(mechanism, name):.6g}" for name in mechanism.noise_parameters
        )
        head = f"Labels of {count} public samples by {type(mechanism).__name__}"
        head += f" with {noise}:" if noise else ":"
        lines = (head, price, explain_epsilon(epsilon), describe_gap(mechanism, shape))
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
        references: whether references are measured, too. PRIVATE.

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
    references: bool = False

    def __post_init__(self) -> None:
        require_student_for(self.labels.query_choice, self.teachers.start_from)
        require_by_record(self.teachers, self.data.budgets)
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
    def known(self) -> DataSource:
        """The source; as long as its public samples are not drawn, one of the same public facts."""
        data = self.data
        undrawn = isinstance(data, DrawnPublic) and not data.samples.is_file()
        return data.rehearsal() if isinstance(data, DrawnPublic) and undrawn else data

    @cached_property
    def voting(self) -> Voting | None:
        """The form of the teachers' votes. None for the default."""
        if self.votes is None and not isinstance(self.teachers, ClosedFormPlan):
            return self.run.inputs_of(TEACHERS_VOTE).settings.get("votes")
        return self.votes

    @cached_property
    def is_tested(self) -> bool:
        """Whether there are test records."""
        return len(self.known.load(Role.TEST)) > 0

    @cached_property
    def _size(self) -> int:
        return len(self.known.load(Role.PUBLIC).ids)

    @cached_property
    def _earlier(self) -> tuple[PlannedRelease, ...]:
        """The releases before the labels, which the target of the labels covers."""
        releases: list[PlannedRelease] = []
        if isinstance(self.data, DrawnPublic):
            unit, drawn = self.teachers.unit, self.known is self.data
            samples = sample_settings(self.labels, unit)
            charge = released_samples(self.run, self.data, unit) if drawn else samples.charge
            releases.append(
                PlannedRelease(run=self.run, settings=samples, charge=charge, is_paid=drawn)
            )
        if self.teachers.start_from == FIRST:
            shape = VoteShape(MOST_VOTERS, self.known.num_labels)
            settings = resolve_settings(first_settings(self.labels), shape, self._size, Moments)
            run = replace(self.run, root=self.root / FIRST, ledger=self.run.ledger_path)
            releases.append(PlannedRelease.of_labels(run, settings, shape))
        return tuple(releases)

    @cached_property
    def sized_teachers(self) -> Plan:
        """The plan of the teachers, with their number where it follows from the target."""
        teachers = self.teachers
        if teachers.start_from is None or teachers.num_teachers is not None:
            return teachers
        before = [each.charge for each in self._earlier]
        number = teachers_for(self.labels, self.known.num_labels, self._size, before)
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
            budgets=self.data.budgets,
        )

    @property
    def _shape(self) -> VoteShape:
        return VoteShape(self.sized_teachers.num_teachers or MOST_VOTERS, self.known.num_labels)

    @cached_property
    def releases(self) -> tuple[PlannedRelease, ...]:
        """All releases in order: public samples, if they are drawn, a first release, the labels.

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
        require(
            self.is_tested or not self.references, f"{TESTS}, by which `references` are measured"
        )
        releases, public = self.releases, self.known.load(Role.PUBLIC)
        for folder in (self.root, self.run.ledger_path.parent):
            require_place(folder)
        unit, unpaid = planned_unit(self.run, self.sized_teachers), list[Charge]()
        for each in releases:
            if isinstance(each.settings, LabelSettings) and each.shape is not None:
                facts = each.shape, public.ids, self.known.label_names
                require_possible(each.run, each.settings, *facts, unit=unit, unpaid=unpaid)
            if not each.is_paid:
                unpaid.append(each.charge)
        if self.overwrite or not self.run.is_finished(TEACHERS_FIT):
            self.known.require_distinct()

    def rehearse(self) -> None:
        """Run all stages on made-up records, to an exported student that predicts, at no cost.

        Raises ``ValueError`` in one line, if a stage fails.
        """
        rehearse_run(
            self.run,
            self.known,
            self.sized_teachers,
            self.complete_labels,
            self.student,
            voting=self.voting,
        )

    def describe(self) -> None:
        """Print the resources of teachers, which are PRIVATE, and all releases with their prices.

        Writes nothing.
        """
        if self.known is self.data:
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
                if isinstance(each.settings, SampleSettings):
                    say(f"[0/{len(stages)}] public samples")
                    assert isinstance(self.data, DrawnPublic)
                    draw_public_samples(each.run, self.data, each.settings)
                else:
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
            LABEL.name: lambda: label(run, finished_votes(run), self.complete_labels),
        }
        if self.student is not None:
            stages[STUDENT.name] = partial(fit_student, run, self.student)
            if self.is_tested:
                stages["student test"] = lambda: test_student(run)
                if self.references:
                    stages[REFERENCES.name] = lambda: make_references(run, load_plan(run))
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
            label(run, finished_votes(run), settings)
            fit_student(run, self.student or StudentPlan().configuration())


def advice_on(labels: StatedLabels) -> Iterator[str]:
    """Yield lines on labels that few queries have, and on samples unlike the private records."""
    yield from filter(None, (describe_unanswered(labels), labels.unlike))


def say_hopeless(run: Run, data: DataSource, plan: Plan, settings: LabelSettings) -> None:
    """Print why a release that is yet to be paid for promises or shows next to nothing. PRIVATE."""
    if not is_paid(run, settings):
        lines = [*describe_hopeless(plan, settings, _num_units(data, plan))]
        lines += describe_absent(data.load(Role.PRIVATE).labels, data.label_names)
        for line in lines:
            print(line, file=sys.stderr)


def say_few(data: DataSource, plan: Plan) -> None:
    """Print that there are too few private records for networks, if so. PRIVATE."""
    with suppress(ValueError):  # the stage itself refuses such records
        for line in describe_few(plan, _num_units(data, plan)):
            print(line, file=sys.stderr)


def _num_units(data: DataSource, plan: Plan) -> int:
    return len(np.unique(data.load(Role.PRIVATE).units(plan.unit)))
