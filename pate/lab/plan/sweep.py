"""The number of teachers, planned by simulated ensembles that follow from public facts of a task.

First one teacher, a ridge regression in closed form that is fitted to a learning curve. Then the
votes of many, and private records as voters. Then a sweep over numbers of teachers, with a student
of the simulated votes at each target epsilon, and its choice.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.optimize import least_squares
from scipy.special import betaincinv, expit, logit, ndtr, ndtri

from pate._core.progress import stage_bar
from pate._core.release.transaction import require_promise
from pate._core.validation import (
    BoolArray,
    FloatArray,
    require,
    require_count,
    require_given,
    require_in_open_unit_interval,
)
from pate._labeling.aggregators.base import Aggregator, features_of
from pate._labeling.aggregators.clipped_votes import ClippedVotes, Rounds
from pate._labeling.aggregators.score_votes import ScoreVotes
from pate._labeling.linear import student_of
from pate._labeling.votes.kinds import Ballots, Votes, VoteShape
from pate._labeling.votes.voters import Geometry, GroupVoters, RecordVoters
from pate.lab.plan.engine import Terms
from pate.lab.plan.frontier import score_student
from pate.lab.plan.sources import Task, normal_quadrature

_FEWEST_RECORDS = 5  # of one teacher
_SMALLEST, _LARGEST = 50, 12_800  # numbers of teachers that are tried


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """The facts of a task that are public before anything private is touched.

    Args:
        num_records: number of private records, a public figure.
        num_labels: number of labels.
        num_public: number of public samples that can be queried.
        label_density: the share of records that have a label: one share for each label, or one
            number, around which labels spread as in usual data sets (a beta distribution with
            parameters that add up to 2).
        num_features: number of features that a teacher and the student learn from, such as the
            outputs of a frozen network.
        unit: the protected unit, ``record`` or ``group``; a group's records go to one teacher.
        records_per_group: average number of records of a group. 1 with the unit ``record``.
        curve: accuracy of one teacher by its number of training records, from public data, from the
            literature or guessed. Never take it from the private records: the plan would be as
            private as they are. None for a linear model of labels of medium difficulty.

    Raises:
        ValueError: on facts out of range, or if the numbers of shares and labels differ.
    """

    num_records: int
    num_labels: int
    num_public: int
    label_density: float | list[float] = 0.2
    num_features: int = 100
    unit: Literal["record", "group"] = "record"
    records_per_group: float = 1.0
    curve: dict[int, float] | None = None

    def __post_init__(self) -> None:
        require_count(
            1,
            num_labels=self.num_labels,
            num_features=self.num_features,
            num_public=self.num_public,
        )
        require_count(2 * _FEWEST_RECORDS, num_records=self.num_records)
        if isinstance(self.label_density, Sequence):
            require(
                len(self.label_density) == self.num_labels,
                f"{self.num_labels} shares, one for each label",
                label_density=len(self.label_density),
            )
            require_in_open_unit_interval(
                **{f"label_density[{i}]": share for i, share in enumerate(self.label_density)}
            )
        else:
            require_in_open_unit_interval(label_density=self.label_density)
        require(self.unit in ("record", "group"), "unit in record, group", unit=self.unit)
        require(
            self.records_per_group >= 1,
            "records_per_group >= 1",
            records_per_group=self.records_per_group,
        )
        require(
            self.unit == "group" or self.records_per_group == 1,
            "`unit` group with records_per_group above 1",
            records_per_group=self.records_per_group,
        )
        if self.curve is None:
            return
        require(self.curve, "a curve with at least one point (records: accuracy)", curve=self.curve)
        for records, accuracy in self.curve.items():
            require_count(1, **{"curve: records": records})
            require(
                0.5 < accuracy < 1,
                f"an accuracy between 0.5 and 1 at {records} records",
                accuracy=accuracy,
            )

    @property
    def densities(self) -> FloatArray:
        """The share of records that have each label, ``[C]``, ascending unless given one by one."""
        if isinstance(self.label_density, Sequence):
            return np.asarray(self.label_density, dtype=np.float64)
        middles = (np.arange(self.num_labels) + 0.5) / self.num_labels
        quantiles = betaincinv(2 * self.label_density, 2 * (1 - self.label_density), middles)
        return np.asarray(quantiles.clip(1e-4, 1 - 1e-4), dtype=np.float64)

    @property
    def spectrum(self) -> FloatArray:
        """The share ``[F]`` of the features' variance along each direction: ``1, 1/2, 1/3 ...``."""
        shares = 1 / np.arange(1, self.num_features + 1, dtype=np.float64)
        return np.asarray(shares / shares.sum())

    @property
    def num_units(self) -> int:
        """The number of records, or of groups."""
        return int(self.num_records / self.records_per_group)

    @property
    def num_voters(self) -> tuple[int, ...]:
        """Numbers of closed-form teachers: one per group, or per five records and per record."""
        return (
            (self.num_units,)
            if self.unit == "group"
            else (self.num_units // _FEWEST_RECORDS, self.num_units)
        )

    @property
    def most_teachers(self) -> int:
        """The most teachers such that each has a group, and five records, on average."""
        return int(self.num_records / max(self.records_per_group, _FEWEST_RECORDS))

    def grid(self) -> tuple[int, ...]:
        """Return numbers of teachers that double from 50 to 12,800, or as far as the records allow.

        Raises:
            ValueError: if there are not enough records for 50 teachers.
        """
        most = self.most_teachers
        require(
            most >= _SMALLEST, f"records for {_SMALLEST} teachers (or `num_teachers`)", at_most=most
        )
        doublings = range(int(np.log2(min(most, _LARGEST) / _SMALLEST) + 1e-9) + 1)
        return tuple(_SMALLEST * 2**i for i in doublings)


_TYPICAL = (0.8, 1.5, 1.0)  # signal, noise and ridge without a curve
_FIRM = (0.1, 0.3, 0.1)  # the weights that pull logarithms (log-odds of the signal) to these
_POINT = 0.002  # the error of a point of a curve
_WORST = 0.02  # the largest error of a learner that explains a curve


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """A teacher as a ridge regression on its own records.

    A sample has a label if ``signal`` times its extent along the label's direction, plus
    independent noise that completes the variance to 1, exceeds a threshold. Along a direction with
    the share ``l`` of the variance of the features, a teacher of ``n`` records finds the true
    weight with noise of variance ``noise / n``, and shrinks it to ``l / (l + ridge / n)`` of its
    size. So teachers of few records make individual errors, which average out, and all understate
    the same weights, which does not.

    Args:
        signal: correlation of a label's extent with the features, 0 to 1.
        noise: variance of a weight learned from one record; 1.57 for a probit regression of a
            balanced label.
        ridge: the strength of the shrinkage, in records.
    """

    signal: float
    noise: float
    ridge: float

    def shrinkage(self, spectrum: FloatArray, records: float) -> FloatArray:
        """Return teachers' factors ``[F]`` for shrinking the weight of each direction."""
        return np.asarray(spectrum / (spectrum + self.ridge / records))

    def accuracy(self, facts: TaskFacts, records: float) -> float:
        """Return the share of labels that a teacher of ``records`` records gets right."""
        spectrum, thresholds = facts.spectrum, ndtri(1 - facts.densities)[:, None]
        shrinkage = self.shrinkage(spectrum, records)
        variance = self.signal**2 * float(shrinkage**2 @ spectrum)
        shared = self.signal**2 * float(shrinkage @ spectrum)
        nodes, weights = normal_quadrature()
        mean = math.sqrt(variance) * nodes
        unexplained = math.sqrt(max(1 - shared**2 / variance, 1e-12))
        true = ndtr((shared / variance * mean - thresholds) / unexplained)
        blur = math.sqrt(self.noise / records * (1 + float(shrinkage @ shrinkage)))
        given_label = ndtr((mean - thresholds) / blur)
        correct = true * given_label + (1 - true) * (1 - given_label)
        return float((correct @ weights).mean())


def fit_learner(facts: TaskFacts) -> LearningCurve:
    """Return the learner that fits the curve of ``facts``, or a typical one without a curve.

    Each point has an error of 0.002. Parameters that few points leave undetermined stay near those
    of the typical learner.

    Raises:
        ValueError: if no learner comes within 0.02 of each point.
    """
    start = np.array([logit(_TYPICAL[0]), math.log(_TYPICAL[1]), math.log(_TYPICAL[2])])
    if facts.curve is None:
        return _learner(start)
    curve = facts.curve

    def misses(place: FloatArray) -> FloatArray:
        learner = _learner(place)
        errors = [
            (learner.accuracy(facts, records) - aim) / _POINT for records, aim in curve.items()
        ]
        return np.array([*errors, *((place - start) * _FIRM)])

    fits = [
        least_squares(misses, start + np.array(shift), max_nfev=60)
        for shift in ((0, 0, 0), (-1, 0, -2), (2, 0, 1))
    ]
    learner = _learner(min(fits, key=lambda fit: float(fit.cost)).x)
    for records, aim in curve.items():
        reached = learner.accuracy(facts, records)
        require(
            abs(reached - aim) <= _WORST,
            f"a learning curve that a linear teacher can follow (curve: {records} records)",
            accuracy=aim,
            nearest=round(reached, 4),
        )
    return learner


def _learner(place: FloatArray) -> LearningCurve:
    signal, noise, ridge = place
    return LearningCurve(signal=float(expit(signal)), noise=math.exp(noise), ridge=math.exp(ridge))


Known = TypeVar("Known", bound=Votes)

_FEATURES = 1 << 23  # of the records of simulated voters, at most
_ENTRIES = 1 << 23  # ballot entries of a simulated ensemble, at most
_NUM_TEST = 4000


class World:
    """A task drawn at random that agrees with the facts, the same for all ensembles of a seed.

    Args:
        facts: the facts.
        learner: the model of a teacher, whose signal labels have.
        num_queries: the number of public samples.
        seed: the seed.

    Attributes:
        public: ``[Q, F]``, features of public samples, of variance 1 along each direction.
        test: ``[M, F]``, features of the test samples.
        test_labels: ``[M, C]`` in {False, True}.
        directions: ``[F, C]``, true weights of unit length.
        thresholds: ``[C]``, which a label's direction must exceed.
        spectrum: ``[F]``, the share of the variance along each direction.
    """

    def __init__(
        self, facts: TaskFacts, learner: LearningCurve, *, num_queries: int, seed: int
    ) -> None:
        generator, size = np.random.default_rng(seed), (facts.num_features, facts.num_labels)
        self.spectrum, self.thresholds = facts.spectrum, np.asarray(ndtri(1 - facts.densities))
        directions = generator.standard_normal(size) * np.sqrt(self.spectrum)[:, None]
        self.directions = directions / np.linalg.norm(directions, axis=0)
        self.public = generator.standard_normal((num_queries, facts.num_features))
        self.test = generator.standard_normal((_NUM_TEST, facts.num_features))
        self.test_labels = self.labels_of(self.test, learner, generator)

    def labels_of(
        self, features: FloatArray, learner: LearningCurve, generator: np.random.Generator
    ) -> BoolArray:
        """Draw true labels ``[N, C]`` for features ``[N, F]`` of unit variance along directions."""
        size = len(features), len(self.thresholds)
        unexplained = math.sqrt(1 - learner.signal**2) * generator.standard_normal(size)
        extents = learner.signal * (features @ self.directions) + unexplained
        return np.asarray(extents > self.thresholds)

    def task(self, votes: Known) -> Task[Known]:
        """Return the task of votes on the public samples."""
        return Task(
            votes=votes,
            test_features=self.test * self.scale,
            test_labels=self.test_labels.astype(np.uint8),
            private=False,
        )

    @property
    def scale(self) -> FloatArray:
        """``[F]``, the standard deviations of the features that teachers and the student see."""
        return np.sqrt(self.spectrum * len(self.spectrum))


def ensemble_votes(
    world: World, learner: LearningCurve, *, num_teachers: int, records: float, seed: int
) -> Task[Ballots]:
    """Return a task with the votes of a simulated ensemble.

    A large ensemble is simulated by fewer teachers, each in place of ``num_teachers / simulated``.
    Their mean is as close to the truth as the mean of all teachers would be.

    Args:
        world: the task.
        learner: the model of a teacher.
        num_teachers: number of teachers.
        records: number of records of each.
        seed: seed of the teachers.
    """
    (num_queries, num_features), num_labels = world.public.shape, len(world.thresholds)
    simulated = max(2, min(num_teachers, _ENTRIES // (num_queries * num_labels)))
    width = math.sqrt(learner.noise / records)
    # the threshold is learned like a weight, but is not shrunk
    errors = np.random.default_rng(seed).standard_normal(
        (num_features + 1, simulated, num_labels), dtype=np.float32
    )
    errors -= (1 - math.sqrt(simulated / num_teachers)) * errors.mean(axis=1, keepdims=True)
    shrinkage = learner.shrinkage(world.spectrum, records)
    truth = learner.signal * world.directions[:, None]
    weights = (shrinkage[:, None, None] * (truth + width * errors[:-1])).astype(np.float32)
    needed = (world.thresholds + width * errors[-1]).astype(np.float32)
    extents = (world.public.astype(np.float32) @ weights.reshape(num_features, -1)).reshape(
        -1, simulated, num_labels
    )
    ballots = (extents > needed).view(np.uint8)
    return world.task(Ballots(ballots=ballots, features=world.public * world.scale))


def voters_task(
    world: World, learner: LearningCurve, *, num_teachers: int, records: float, seed: int
) -> Task[Votes]:
    """Return a task with fewer voters in closed form than planned, of one record or a few each."""
    generator, records_each = np.random.default_rng(seed), max(1, round(records))
    simulated = max(2, min(num_teachers, _FEATURES // len(world.spectrum) // records_each))
    features = generator.standard_normal((simulated * records_each, len(world.spectrum)))
    labels = world.labels_of(features, learner, generator)
    public = world.public * world.scale
    geometry = Geometry.of(public)
    voters: dict[str, Any] = {
        "geometry": geometry,
        "num_voters": simulated,
        "num_labels": labels.shape[1],
        "coordinates": geometry.coordinates(features * world.scale),
        "labels": labels.astype(np.uint8),
    }
    ensemble = (
        RecordVoters(**voters)
        if records_each == 1
        else GroupVoters(groups=np.repeat(np.arange(simulated), records_each), **voters)
    )
    return world.task(Votes.from_voters(ensemble, public))


_CANDIDATES: tuple[type[Aggregator], ...] = (Rounds, ClippedVotes)  # for networks
_VOTERS: type[Aggregator] = ScoreVotes  # for teachers in closed form
_MOST_QUERIES = 3000


@dataclass(frozen=True, kw_only=True)
class Sweep(Terms):
    """The settings of a sweep.

    Args:
        epsilons: the targets. Each has a choice of its own.
        delta: their delta.
        num_teachers: numbers of teachers to try. None for 50, 100, 200 ... up to 12,800, as long as
            each teacher has five records and a group.
        num_queries: number of public samples to label. None for all, at most 3,000.
        neighboring_relation: the relation that the targets hold for.
        by: the figure of the student that decides the number of teachers, ``accuracy`` or
            ``macro_f1``.
        seeds: number of simulated tasks; results are means over them.

    Raises:
        ValueError: on parameters out of range.
    """

    epsilons: tuple[float, ...] = (1.0, 4.0)
    seeds: int = 3
    num_teachers: tuple[int, ...] | None = None
    num_queries: int | None = None
    by: Literal["accuracy", "macro_f1"] = "accuracy"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_promise(self.delta)
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
        students: the figures of the student on each simulated task.
    """

    num_teachers: int
    records: float
    teacher_accuracy: float
    epsilon: float
    aggregator: str
    students: tuple[Mapping[str, float], ...]

    @property
    def in_closed_form(self) -> bool:
        """Whether the teachers are voters that take no training."""
        return self.aggregator == _VOTERS.__name__

    def figures(self, by: str) -> FloatArray:
        """Return ``accuracy`` or ``macro_f1`` of the student on each simulated task."""
        return np.array([student[f"student_{by}"] for student in self.students])

    def spread(self, by: str) -> tuple[float, float]:
        """Return the mean of a figure over the tasks, and its standard error (NaN for one)."""
        figures, number = self.figures(by), len(self.students)
        error = figures.std(ddof=1) / math.sqrt(number) if number > 1 else math.nan
        return float(figures.mean()), float(error)


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The results of a sweep.

    Attributes:
        facts: the facts of the task.
        sweep: the settings.
        learner: the model of one teacher.
        trials: by epsilon, number of teachers and aggregator.
        constant: ``accuracy`` and ``macro_f1`` of the best constant answer.
    """

    facts: TaskFacts
    sweep: Sweep
    learner: LearningCurve
    trials: tuple[Trial, ...]
    constant: Mapping[str, float]

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
    best = max(trials, key=lambda trial: trial.spread(by)[0])

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
    smaller than planned (see `ensemble_votes`). Its noise is scaled down with it, so that shares
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
    students: dict[tuple[float, int, str], list[Mapping[str, float]]] = defaultdict(list)
    constants: list[Mapping[str, float]] = []
    with stage_bar(sweep.seeds * len(ensembles), "plan", unit="ensemble") as bar:
        for seed in range(sweep.seeds):
            world = World(facts, learner, num_queries=num_queries, seed=seed)
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
                    students[epsilon, size, cls.__name__].append(figures)
                bar.update()
    trials = tuple(
        Trial(
            num_teachers=size,
            records=facts.num_records / size,
            teacher_accuracy=learner.accuracy(facts, facts.num_records / size),
            epsilon=epsilon,
            aggregator=name,
            students=tuple(found),
        )
        for (epsilon, size, name), found in sorted(students.items(), key=lambda item: item[0][:2])
    )
    constant = {by: float(np.mean([each[by] for each in constants])) for by in constants[0]}
    return SweepResult(facts=facts, sweep=sweep, learner=learner, trials=trials, constant=constant)


def _calibrated(
    cls: type[Aggregator], epsilon: float, facts: TaskFacts, sweep: Sweep
) -> Aggregator:
    """Return an aggregator at a target. Its noise does not depend on the number of teachers."""
    target = sweep.target(epsilon, sweep.queries(facts))
    calibrated = cls.for_target(target, VoteShape(max(sweep.teachers(facts)), facts.num_labels))
    return require_given(calibrated, f"a target that {cls.__name__} can meet", epsilon=epsilon)


def _constant(world: World) -> dict[str, float]:
    """Return accuracy and macro-F1 on the test samples of the best constant answers."""
    density = world.test_labels.mean(axis=0)
    always = world.thresholds < 0
    f1 = np.where(always, 2 * density / (1 + density), 0.0)
    right = np.where(always, density, 1 - density)
    return {"accuracy": float(right.mean()), "macro_f1": float(f1.mean())}
