"""A sweep over numbers of teachers: students of simulated votes at each target epsilon."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from pate._linear import student_of
from pate._planning.ensemble import (
    LearningCurve,
    TaskFacts,
    World,
    ensemble_votes,
    fit_learner,
    voters_task,
)
from pate._planning.evaluation import Task, score_student
from pate._progress import stage_bar
from pate._release.transaction import require_promise
from pate._validation import FloatArray, require, require_count, require_given, require_positive
from pate._votes import Votes, VoteShape
from pate.accounting import NeighboringRelation, Target
from pate.aggregators import Aggregator, ClippedVotes, Rounds, ScoreVotes
from pate.aggregators._base import features_of

_CANDIDATES: tuple[type[Aggregator], ...] = (Rounds, ClippedVotes)  # for networks
_VOTERS: type[Aggregator] = ScoreVotes  # for teachers in closed form
_MOST_QUERIES = 3000


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The settings of a sweep.

    Args:
        epsilons: the targets; each has a choice of its own.
        delta: the delta at which they hold.
        num_teachers: numbers of teachers to try. None for 50, 100, 200 ... up to 12,800, as long as
            each teacher has five records and a group.
        num_queries: number of public samples to label. None for all, at most 3,000.
        neighboring_relation: the relation under which the targets hold.
        by: the figure of the student that decides the number of teachers, ``accuracy`` or
            ``macro_f1``.
        seeds: number of simulated tasks; results are means over them.

    Raises:
        ValueError: on parameters out of range.
    """

    epsilons: tuple[float, ...] = (1.0, 4.0)
    delta: float = 1e-6
    num_teachers: tuple[int, ...] | None = None
    num_queries: int | None = None
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD
    by: Literal["accuracy", "macro_f1"] = "accuracy"
    seeds: int = 3

    def __post_init__(self) -> None:
        require_count(1, seeds=self.seeds)
        require_promise(self.delta)
        require(self.epsilons, "at least one epsilon", epsilons=self.epsilons)
        require_positive(**{f"epsilons[{i}]": epsilon for i, epsilon in enumerate(self.epsilons)})
        require(self.by in ("accuracy", "macro_f1"), "by in accuracy, macro_f1", by=self.by)
        if self.num_teachers is not None:
            require(
                self.num_teachers, "at least one number of teachers", num_teachers=self.num_teachers
            )
            require_count(
                2, **{f"num_teachers[{i}]": size for i, size in enumerate(self.num_teachers)}
            )
        if self.num_queries is not None:
            require_count(2, num_queries=self.num_queries)
        object.__setattr__(self, "epsilons", tuple(sorted(self.epsilons)))

    def queries(self, facts: TaskFacts) -> int:
        """Return the number of queries.

        Raises ``ValueError`` if there are not as many public samples.
        """
        num_queries = (
            min(facts.num_public, _MOST_QUERIES) if self.num_queries is None else self.num_queries
        )
        require(
            num_queries <= facts.num_public,
            f"num_queries <= num_public = {facts.num_public}",
            num_queries=num_queries,
        )
        return num_queries

    def teachers(self, facts: TaskFacts) -> tuple[int, ...]:
        """Return the numbers of teachers, ascending.

        Raises ``ValueError`` if the records do not suffice.
        """
        if self.num_teachers is None:
            return facts.grid()
        most = facts.num_units
        require(
            max(self.num_teachers) <= most,
            f"at most {most} teachers, a {facts.unit} each",
            got=self.num_teachers,
        )
        return tuple(sorted(set(self.num_teachers)))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of one aggregator with one number of teachers at one epsilon.

    Attributes:
        num_teachers: number of teachers.
        records: records of each, on average.
        teacher_accuracy: share of labels that one teacher gets right.
        epsilon: the target.
        aggregator: name of the class.
        accuracies: accuracy of the student on each simulated task.
        macro_f1s: macro-F1 of the student on each task.
    """

    num_teachers: int
    records: float
    teacher_accuracy: float
    epsilon: float
    aggregator: str
    accuracies: tuple[float, ...]
    macro_f1s: tuple[float, ...]

    @property
    def in_closed_form(self) -> bool:
        """Whether the teachers are voters that take no training."""
        return self.aggregator == _VOTERS.__name__

    @property
    def accuracy(self) -> float:
        """The mean accuracy of the student."""
        return float(np.mean(self.accuracies))

    @property
    def macro_f1(self) -> float:
        """The mean macro-F1 of the student."""
        return float(np.mean(self.macro_f1s))

    def figures(self, by: str) -> FloatArray:
        """Return ``accuracy`` or ``macro_f1`` of the student on each simulated task."""
        return np.array(self.accuracies if by == "accuracy" else self.macro_f1s)


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The results of a sweep.

    Attributes:
        facts: the facts of the task.
        sweep: the settings.
        learner: the model of one teacher.
        trials: by epsilon, number of teachers and aggregator.
        constant: accuracy and macro-F1 of the best constant answer.
    """

    facts: TaskFacts
    sweep: Sweep
    learner: LearningCurve
    trials: tuple[Trial, ...]
    constant: tuple[float, float]

    def choice(self, epsilon: float) -> Trial:
        """Return the best trial at an epsilon (see `fewest_as_good`)."""
        return fewest_as_good(
            [trial for trial in self.trials if trial.epsilon == epsilon], self.sweep.by
        )


def fewest_as_good(trials: Sequence[Trial], by: str) -> Trial:
    """Return the trial with the fewest teachers that is as good as the best.

    Ties go to the first aggregator. Voters in closed form, which need no training, come before
    teachers, with the largest number first. A trial is as good as the best if it is worse by at
    most a standard error of the mean difference over the simulated tasks, which are the same for
    all trials.
    """
    best = max(trials, key=lambda trial: trial.figures(by).mean())

    def as_good(trial: Trial) -> bool:
        lost = best.figures(by) - trial.figures(by)
        error = float(lost.std(ddof=1)) / math.sqrt(len(lost)) if len(lost) > 1 else 0.0
        return bool(lost.mean() <= error)

    def cost(trial: Trial) -> tuple[bool, int]:
        return (False, -trial.num_teachers) if trial.in_closed_form else (True, trial.num_teachers)

    return next(trial for trial in sorted(trials, key=cost) if as_good(trial))


def run_sweep(facts: TaskFacts, sweep: Sweep) -> SweepResult:
    """Simulate ensembles of each size, release their votes at each epsilon, and score students.

    Votes are simulated, but released by the code of `pate label`. A simulated ensemble may be
    smaller than planned (see `ensemble_votes`); its noise is scaled down with it, so that shares
    are as noisy as planned.

    Raises:
        ValueError: on facts or settings that do not fit, or a target that no noise meets.
    """
    require_promise(sweep.delta, num_units=facts.num_units)
    learner, num_queries = fit_learner(facts), sweep.queries(facts)
    ensembles: list[tuple[int, Callable[..., Task[Votes]], tuple[type[Aggregator], ...]]]
    ensembles = [(size, ensemble_votes, _CANDIDATES) for size in sweep.teachers(facts)]
    ensembles += [(size, voters_task, (_VOTERS,)) for size in facts.num_voters]
    aggregators: dict[tuple[float, type[Aggregator]], Aggregator] = {
        (epsilon, cls): _calibrated(cls, epsilon, facts, sweep)
        for epsilon, cls in product(sweep.epsilons, (*_CANDIDATES, _VOTERS))
    }
    figures_by_trial: dict[tuple[float, int, str], list[tuple[float, float]]] = {}
    constants: list[tuple[float, float]] = []
    with stage_bar(sweep.seeds * len(ensembles), "plan", unit="ensemble") as bar:
        for seed in range(sweep.seeds):
            world = World.of(facts, learner, num_queries=num_queries, seed=seed)
            constants.append(_constant(world))
            for size, simulate, classes in ensembles:
                task = simulate(
                    world, learner, num_teachers=size, records=facts.num_records / size, seed=seed
                )
                for epsilon, cls in product(sweep.epsilons, classes):
                    quieter = aggregators[epsilon, cls].scaled(task.votes.num_teachers / size)
                    release = quieter.aggregate(task.votes, generator=np.random.default_rng(seed))
                    student = student_of(release, features_of(task.votes), task.votes.num_teachers)
                    figures = score_student(student, task, cutoff=0.5)
                    reached = (figures["student_accuracy"], figures["student_macro_f1"])
                    figures_by_trial.setdefault((epsilon, size, cls.__name__), []).append(reached)
                bar.update()
    trials = tuple(
        Trial(
            num_teachers=size,
            records=facts.num_records / size,
            teacher_accuracy=learner.accuracy(facts, facts.num_records / size),
            epsilon=epsilon,
            aggregator=name,
            accuracies=tuple(accuracy for accuracy, _ in reached),
            macro_f1s=tuple(f1 for _, f1 in reached),
        )
        for (epsilon, size, name), reached in sorted(
            figures_by_trial.items(), key=lambda item: item[0][:2]
        )
    )
    accuracy, f1 = np.mean(constants, axis=0).tolist()
    return SweepResult(
        facts=facts, sweep=sweep, learner=learner, trials=trials, constant=(accuracy, f1)
    )


def _calibrated(
    cls: type[Aggregator], epsilon: float, facts: TaskFacts, sweep: Sweep
) -> Aggregator:
    """Return an aggregator at a target; its noise does not depend on the number of teachers."""
    target = Target(
        epsilon=epsilon,
        delta=sweep.delta,
        num_queries=sweep.queries(facts),
        neighboring_relation=sweep.neighboring_relation,
    )
    calibrated = cls.for_target(target, VoteShape(max(sweep.teachers(facts)), facts.num_labels))
    return require_given(calibrated, f"a target that {cls.__name__} can meet", epsilon=epsilon)


def _constant(world: World) -> tuple[float, float]:
    """Return accuracy and macro-F1 on the test samples of the best constant answers."""
    density = world.test_labels.mean(axis=0)
    always = world.thresholds < 0
    f1 = np.where(always, 2 * density / (1 + density), 0.0)
    return float(np.where(always, density, 1 - density).mean()), float(f1.mean())
