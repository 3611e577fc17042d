"""The frontier: what each aggregator makes of the same votes at the same epsilon, and so which one to choose."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from tqdm import tqdm

from pate.accounting.calibration import Target, calibrate_scale
from pate.accounting.events import ComposedEvent, Event
from pate.accounting.ledger import account
from pate.accounting.relation import NeighboringRelation
from pate.accounting.search import smallest_where
from pate.aggregators import Aggregator, NoisyVotes, Outlook, Release, propose
from pate.data.module import Role
from pate.data.source import load_data
from pate.runs import TEACHERS_VOTE, Run, replacing, write_text
from pate.stages.command import call
from pate.student.linear import LinearStudent, fit_released
from pate.validation import expect, expect_count, expect_open_unit, expect_positive
from pate.vote_store import VoteStore
from pate.votes import Votes

FloatArray = NDArray[np.float64]

_PRIVATE = "PRIVATE: computed from private votes without accounting for it; not to be published"
_FREE = "from simulated votes alone: nothing private was touched"
_LABELS = ("answered", "label_accuracy", "label_macro_f1")
_STUDENT = ("student_accuracy", "student_macro_f1", "student_mAP")
_TITLES = {
    "answered": "share of labels released",
    "label_accuracy": "released labels that are the majority's",
    "label_macro_f1": "macro-F1 of released labels against the majority",
    "student_accuracy": "accuracy of the student",
    "student_macro_f1": "macro-F1 of the student",
    "student_mAP": "mAP of the student",
}


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Teachers to plan with, before there are any.

    A sample's features are Gaussian, and a label is given where a random direction of them lies far enough out. A
    teacher sees that distance with noise of its own, so that teachers err where a sample is hard.

    Args:
        num_labels: how many labels there are.
        num_teachers: how many teachers vote.
        label_density: the share of samples that have a label.
        teacher_accuracy: the share of labels that one teacher gets right, above one half.
        num_features: how many features a sample has.
        num_public: how many public samples there are to ask about.
        seed: seed of the samples and the votes.
    """

    num_labels: int
    num_teachers: int
    label_density: float = 0.2
    teacher_accuracy: float = 0.8
    num_features: int = 20
    num_public: int = 5000
    seed: int = 0

    def __post_init__(self) -> None:
        expect_count(1, num_labels=self.num_labels, num_features=self.num_features, num_public=self.num_public)
        expect_count(2, num_teachers=self.num_teachers)
        expect_open_unit(label_density=self.label_density)
        blind = max(self.label_density, 1 - self.label_density)
        right = 0.5 < self.teacher_accuracy < 1
        expect(right, "0.5 < teacher_accuracy < 1", teacher_accuracy=self.teacher_accuracy, always_no=blind)


@dataclass(frozen=True, kw_only=True)
class Task:
    """Votes on public samples, and what a student is trained and judged on.

    Attributes:
        votes: on ``N`` public samples, with ballots.
        features: of the public samples, ``[N, ...]``.
        test_features: ``[M, ...]``.
        test_labels: ``[M, C]`` in {0, 1}.
        label_names: names of the labels.
        private: whether the votes are.
    """

    votes: Votes
    features: FloatArray
    test_features: FloatArray
    test_labels: NDArray[np.uint8]
    label_names: tuple[str, ...]
    private: bool


@dataclass(frozen=True, kw_only=True)
class Point:
    """An aggregator at one epsilon, the median over seeds of the noise. Figures of the student are NaN without one."""

    aggregator: str
    target_epsilon: float
    epsilon: float
    realised_epsilon: float
    parameters: str
    answered: float
    label_accuracy: float
    label_macro_f1: float
    student_accuracy: float = math.nan
    student_macro_f1: float = math.nan
    student_mAP: float = math.nan  # noqa: N815


def frontier(
    run: Path | None = None,
    simulate: Simulation | None = None,
    aggregators: list[Aggregator] | None = None,
    epsilons: list[float] | None = None,
    delta: float = 1e-6,
    num_queries: int = 600,
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD,
    student: bool = False,
    cutoff: float = 0.5,
    seeds: int = 3,
    query_seed: int = 0,
    output: Path | None = None,
) -> list[Point]:
    """Draw the quality of labels, and of a student, against epsilon for a list of aggregators on the same votes.

    A planning tool. On the votes of a run what it shows is PRIVATE, and so is a choice that is made by it; simulated
    votes are free.

    Args:
        run: the run whose teachers have voted.
        simulate: teachers to simulate in place of a run.
        aggregators: what is compared, with noise in any proportion: all of it is scaled by one factor to meet each
            target. None for all that the package has.
        epsilons: the targets. None for 0.5, 1, 2, 4 and 8.
        delta: the delta at which they hold.
        num_queries: how many public samples are labelled, each aggregator the same.
        neighboring_relation: the relation under which the targets hold, and for which the aggregators of the package
            are made.
        student: whether a linear student is trained on what is released and judged on the test set.
        cutoff: the probability from which on the student gives a label.
        seeds: how many times the noise is drawn; medians are shown.
        query_seed: seed of the public order in which samples are taken, as of ``pate label``.
        output: folder of ``frontier.csv``, ``frontier.png`` and ``frontier.txt``. None for ``private/frontier`` in the
            run, or ``frontier`` for simulated votes.

    Returns:
        A point for each aggregator and epsilon that it can meet.

    Raises:
        ValueError: unless there is a run or a simulation, and on parameters out of range.
    """
    expect((run is None) != (simulate is None), "either a run or a simulation", run=run, simulate=simulate)
    expect_count(1, num_queries=num_queries, seeds=seeds)
    expect_open_unit(delta=delta, cutoff=cutoff)
    targets = [0.5, 1.0, 2.0, 4.0, 8.0] if epsilons is None else list(epsilons)
    expect(targets, "at least one epsilon", epsilons=targets)
    expect_positive(**{f"epsilons[{i}]": target for i, target in enumerate(targets)})
    task = _load(Path(run), student) if run is not None else simulated(simulate)  # type: ignore[arg-type]
    expect(num_queries <= task.votes.num_queries, f"num_queries <= {task.votes.num_queries}", num_queries=num_queries)
    chosen = np.random.default_rng(query_seed).permutation(task.votes.num_queries)[:num_queries]
    asked = replace(task, votes=task.votes[chosen], features=np.asarray(task.features[chosen], dtype=np.float64))
    relation = NeighboringRelation(neighboring_relation)
    listed = propose(Outlook.of(asked.votes, delta=delta, relation=relation)) if aggregators is None else aggregators
    points: list[Point] = []
    with tqdm(total=len(listed) * len(targets), desc="frontier", unit="point") as progress:
        for aggregator in listed:
            for target in targets:
                found = measure(
                    asked,
                    aggregator,
                    target,
                    delta=delta,
                    relation=relation,
                    student=student,
                    cutoff=cutoff,
                    seeds=seeds,
                )
                points += [] if found is None else [found]
                progress.update()
    reference = noiseless(asked, cutoff=cutoff) if student else {}
    default = Path("frontier") if run is None else Run(Path(run)).private / "frontier"
    folder = default if output is None else Path(output)
    notice = _PRIVATE if task.private else _FREE
    title = f"{num_queries} queries, delta {delta:g}, {relation.value.upper()}"
    text = table(points, reference, student=student, title=title, notice=notice)
    write_csv(folder / "frontier.csv", points, notice)
    write_text(folder / "frontier.txt", text)
    draw(folder / "frontier.png", points, reference, student=student, title=title, notice=notice)
    print(text, end="")
    print(f"\n{folder / 'frontier.csv'}, {folder / 'frontier.png'}, {folder / 'frontier.txt'}")
    return points


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An aggregator whose noise meets a target, with what trains the student that it asks, if it asks one.

    Attributes:
        aggregator: it.
        first: soft noisy votes on the same queries, whose student the aggregator is told of; None without.
        epsilon: what all queries may cost.
    """

    aggregator: Aggregator
    first: NoisyVotes | None
    epsilon: float

    def event(self, votes: Votes) -> Event:
        """Describe the most that one query may cost."""
        event = self.aggregator.event(votes.panel)
        if self.first is None:
            return event
        return ComposedEvent(events=(self.first.event(votes.panel), event))


def calibrated(
    aggregator: Aggregator, votes: Votes, target: float, *, delta: float, relation: NeighboringRelation
) -> Plan | None:
    """Scale the noise of an aggregator so that all queries cost ``target`` at most; None where no noise does.

    One that asks a student gets soft noisy votes first, at a quarter of what they alone would take.
    """
    panel = votes.panel
    limit = Target(epsilon=target, delta=delta, num_queries=votes.num_queries, neighboring_relation=relation)
    first: NoisyVotes | None = None
    before: tuple[Event, ...] = ()
    if aggregator.needs_predictions:
        one = NoisyVotes(sigma_votes=1.0, neighboring_relation=aggregator.neighboring_relation)
        first = one.scaled(2 * calibrate_scale(lambda scale: one.scaled(scale).event(panel, relation), limit))
        before = (first.event(panel, relation),)

    def event(scale: float) -> Event:
        return ComposedEvent(events=(*before, aggregator.scaled(scale).event(panel, relation)))

    try:
        factor = calibrate_scale(event, limit, tolerance=1e-4)
    except ValueError:
        return None
    charge = ({relation: event(factor)}, votes.num_queries)
    return Plan(
        aggregator=aggregator.scaled(factor),
        first=first,
        epsilon=account([charge], relation).get_epsilon(delta=delta),
    )


def measure(
    task: Task,
    aggregator: Aggregator,
    target: float,
    *,
    delta: float,
    relation: NeighboringRelation,
    student: bool,
    cutoff: float = 0.5,
    seeds: int = 1,
) -> Point | None:
    """Return what an aggregator makes of a task at a target epsilon, or None where no noise meets it."""
    plan = calibrated(aggregator, task.votes, target, delta=delta, relation=relation)
    if plan is None:
        return None
    drawn = [
        _draw_once(task, plan, delta=delta, relation=relation, student=student, cutoff=cutoff, seed=seed)
        for seed in range(seeds)
    ]
    medians = {name: float(np.median([each[name] for each in drawn])) for name in drawn[0]}
    return Point(
        aggregator=name_of(aggregator),
        target_epsilon=target,
        epsilon=plan.epsilon,
        parameters=json.dumps(_noise(plan)),
        **medians,
    )


def _draw_once(
    task: Task, plan: Plan, *, delta: float, relation: NeighboringRelation, student: bool, cutoff: float, seed: int
) -> dict[str, float]:
    generator, votes = np.random.default_rng(seed), task.votes
    earlier = None
    if plan.first is not None:
        earlier = plan.first.aggregate(votes, generator=generator)
        votes = replace(votes, predictions=train(task.features, earlier, votes).predict(task.features))
    release = plan.aggregator.aggregate(votes, generator=generator)
    found = {"realised_epsilon": _realised(plan, release, votes, delta=delta, relation=relation)}
    found |= label_quality(release, votes)
    if student:
        found |= judge(train(task.features, joined(earlier, release, plan), votes), task, cutoff=cutoff)
    return found


def joined(earlier: Release | None, release: Release, plan: Plan) -> Release:
    """Return a release with what an earlier one adds to it: counts averaged by their noise, labels filled in."""
    if earlier is None or earlier.values is None or earlier.noise_std is None:
        return release
    if release.values is None or release.noise_std is None or not release.mask.all() or release.tiers is not None:
        return release
    first, second = earlier.noise_std**-2, release.noise_std**-2
    values = (first * earlier.values + second * release.values) / (first + second)
    return release._replace(values=values, noise_std=(first + second) ** -0.5)


def train(features: FloatArray, release: Release, votes: Votes) -> LinearStudent:
    """Return the linear student of a release; one that says no to everything where nothing was released."""
    if not release.mask.any():
        return LinearStudent(np.zeros((features[0].size + 1, votes.num_labels)), logistic=False)
    if release.values is None or release.noise_std is None:
        return fit_released(features, release.labels, release.mask)
    share = 1 / votes.num_teachers
    return fit_released(features, release.values * share, release.mask, noise_std=release.noise_std * share)


def judge(student: LinearStudent, task: Task, *, cutoff: float = 0.5) -> dict[str, float]:
    """Return how good a student is on the test set."""
    probabilities, truth = student.predict(task.test_features), task.test_labels > 0
    given = probabilities > cutoff
    either = given.sum(axis=0) + truth.sum(axis=0)
    return {
        "student_accuracy": float((given == truth).mean()),
        "student_macro_f1": float((2 * (given & truth).sum(axis=0) / np.maximum(either, 1)).mean()),
        "student_mAP": float(average_precision(probabilities, truth).mean()),
    }


def average_precision(scores: FloatArray, truth: NDArray[np.bool_]) -> FloatArray:
    """Return the average precision of each label ``[C]`` for scores ``[N, C]``; 0 for a label that nobody has."""
    found = np.zeros(truth.shape[1])
    for j in range(truth.shape[1]):
        order = np.argsort(-scores[:, j], kind="stable")
        hits = np.cumsum(truth[order, j])
        # equal scores are one step
        last = np.append(np.diff(scores[order, j]) != 0, True)
        gained = np.diff(hits[last], prepend=0)
        found[j] = gained @ (hits[last] / (np.flatnonzero(last) + 1)) / max(1, hits[-1])
    return found


def label_quality(release: Release, votes: Votes) -> dict[str, float]:
    """Return how much was released, and how well it agrees with the noiseless majority; NaN where nothing was."""
    majority = 2 * votes.counts.astype(np.int64) > votes.num_teachers
    given, seen = release.labels > 0, release.mask
    right = (given == majority) & seen
    both = (given & majority & seen).sum(axis=0)
    either = (given & seen).sum(axis=0) + (majority & seen).sum(axis=0)
    some = either > 0
    return {
        "answered": float(seen.mean()),
        "label_accuracy": float(right.sum() / seen.sum()) if seen.any() else math.nan,
        "label_macro_f1": float((2 * both[some] / either[some]).mean()) if some.any() else math.nan,
    }


def noiseless(task: Task, *, cutoff: float = 0.5) -> dict[str, float]:
    """Return how good a student of the noiseless majority is."""
    majority = (2 * task.votes.counts.astype(np.int64) > task.votes.num_teachers).astype(np.uint8)
    release = Release(majority, np.ones(majority.shape, dtype=np.bool_))
    return judge(train(task.features, release, task.votes), task, cutoff=cutoff)


def simulated(simulation: Simulation) -> Task:
    """Make a task of simulated teachers."""
    generator = np.random.default_rng(simulation.seed)
    directions = generator.standard_normal((simulation.num_features, simulation.num_labels))
    directions /= np.linalg.norm(directions, axis=0)
    far = float(ndtri(1 - simulation.label_density))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    distances, weights = np.abs(nodes - far), weights / weights.sum()
    blur = smallest_where(
        lambda width: float(weights @ ndtr(distances / width)) <= simulation.teacher_accuracy, 1e-6, 1e6
    )

    def samples(number: int) -> tuple[FloatArray, FloatArray]:
        features = generator.standard_normal((number, simulation.num_features))
        return features, features @ directions - far

    features, margins = samples(simulation.num_public)
    test_features, test_margins = samples(4000)
    size = (simulation.num_public, simulation.num_teachers, simulation.num_labels)
    ballots = (generator.random(size, dtype=np.float32) < ndtr(margins / blur)[:, None]).view(np.uint8)
    counts = ballots.sum(axis=1, dtype=np.int64)
    return Task(
        votes=Votes(counts=counts, num_teachers=simulation.num_teachers, ballots=ballots),
        features=features,
        test_features=test_features,
        test_labels=(test_margins > 0).astype(np.uint8),
        label_names=tuple(f"label_{j}" for j in range(simulation.num_labels)),
        private=False,
    )


def name_of(aggregator: Aggregator) -> str:
    """Return the name of an aggregator with what sets it apart from others of its class."""
    marks = {
        "soft": lambda value: "" if value else "hard",
        "norm": lambda value: "L1" if value == "l1" else "",
        "around_predictions": lambda value: "around a student" if value else "",
        "k": lambda value: f"k={value}",
        "answers": name_of,
    }
    told: list[str] = [mark(getattr(aggregator, name)) for name, mark in marks.items() if hasattr(aggregator, name)]
    told = [word for word in told if word]
    return type(aggregator).__name__ + (f" ({', '.join(told)})" if told else "")


def best_at(points: Sequence[Point], measured: str) -> dict[float, Point]:
    """Return the best point at each target by one figure; a figure that is missing never wins."""
    best: dict[float, Point] = {}
    for point in points:
        value = getattr(point, measured)
        held = best.get(point.target_epsilon)
        if not math.isnan(value) and (held is None or value > getattr(held, measured)):
            best[point.target_epsilon] = point
    return dict(sorted(best.items()))


def table(points: Sequence[Point], reference: dict[str, float], *, student: bool, title: str, notice: str) -> str:
    """Return all points as text, and the best aggregator at each epsilon."""
    shown = (*_LABELS, *(_STUDENT if student else ()))
    width = max([len(point.aggregator) for point in points] + [len("noiseless majority")]) + 2
    lines = [notice, title, ""]
    lines.append(f"{'aggregator':<{width}}{'epsilon':>9}{'realised':>10}" + "".join(f"{name:>18}" for name in shown))
    for point in points:
        figures = "".join(f"{getattr(point, name):>18.4f}" for name in shown)
        lines.append(f"{point.aggregator:<{width}}{point.epsilon:>9.3f}{point.realised_epsilon:>10.3f}{figures}")
    if reference:
        figures = "".join(f"{reference.get(name, 1.0):>18.4f}" for name in shown)
        lines.append(f"{'noiseless majority':<{width}}{'inf':>9}{'inf':>10}{figures}")
    for measured in _STUDENT if student else ("label_accuracy",):
        lines += ["", f"Best by {measured}:"]
        for target, point in best_at(points, measured).items():
            lines.append(f"    epsilon {target:g}: {point.aggregator} ({getattr(point, measured):.4f})")
    if not student:
        lines.append("An aggregator that answers little can be right where it does: look at `answered` too.")
    return "\n".join(lines) + "\n"


def write_csv(path: Path, points: Sequence[Point], notice: str) -> None:
    """Write all points, below a comment that says what they are."""
    with replacing(path, "w") as file:
        file.write(f"# {notice}\n")
        writer = csv.DictWriter(file, fieldnames=list(Point.__dataclass_fields__))
        writer.writeheader()
        writer.writerows(asdict(point) for point in points)


def draw(
    path: Path,
    points: Sequence[Point],
    reference: dict[str, float],
    *,
    student: bool,
    title: str,
    notice: str,
) -> None:
    """Draw each figure against epsilon, one line per aggregator, the noiseless majority as a dashed line."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # without pyplot there is no window and no state

    shown = _STUDENT if student else _LABELS
    names = list(dict.fromkeys(point.aggregator for point in points))
    figure = Figure(figsize=(4.4 * len(shown) + 3.2, 4.8), layout="constrained")
    colours, markers = colormaps["tab20"].colors, "osD^vPX*"  # type: ignore[attr-defined]
    targets = sorted({point.target_epsilon for point in points})
    for axes, measured in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown, strict=True):
        for i, name in enumerate(names):
            line = sorted((p.target_epsilon, getattr(p, measured)) for p in points if p.aggregator == name)
            axes.plot(
                *zip(*line, strict=True),
                color=colours[i % 20],
                marker=markers[i % len(markers)],
                markersize=5,
                linewidth=1.4,
                label=name,
            )
        if measured in reference:
            axes.axhline(reference[measured], color="black", linestyle="--", linewidth=1, label="noiseless majority")
        axes.set_xscale("log", base=2)
        axes.set_xticks(targets, [f"{target:g}" for target in targets])
        axes.minorticks_off()
        axes.set(xlabel="epsilon", title=_TITLES[measured])
        axes.grid(alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize="small")
    figure.suptitle(f"{title}\n{notice}", fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=130)


def _realised(plan: Plan, release: Release, votes: Votes, *, delta: float, relation: NeighboringRelation) -> float:
    if release.tiers is None:
        return plan.epsilon
    charges = [*plan.aggregator.charges(release, votes.panel)]
    if plan.first is not None:
        charges.append((plan.first.events(votes.panel), votes.num_queries))
    return account(charges, relation).get_epsilon(delta=delta)


def _noise(plan: Plan) -> dict[str, float]:
    def of(aggregator: Aggregator) -> dict[str, float]:
        noise = {name: round(getattr(aggregator, name), 4) for name in aggregator.noise_parameters}
        return noise | (of(aggregator.answers) if hasattr(aggregator, "answers") else {})

    return of(plan.aggregator) | ({} if plan.first is None else {"first_sigma_votes": round(plan.first.sigma_votes, 4)})


def _load(root: Path, student: bool) -> Task:
    run = Run(root)
    run.require(TEACHERS_VOTE)
    votes, ids = VoteStore(root / TEACHERS_VOTE.outputs[0]).load(ballots=True)
    data = load_data(run)
    names = data.label_names
    if not student:
        empty = np.zeros((0, 1))
        return Task(
            votes=votes,
            features=np.zeros((len(ids), 1)),
            test_features=empty,
            test_labels=np.zeros((0, len(names)), dtype=np.uint8),
            label_names=names,
            private=True,
        )
    public, test = data.records(Role.PUBLIC), data.records(Role.TEST)
    expect(ids == public.ids.tolist(), "votes on the public samples of the data", samples=len(ids))
    return Task(
        votes=votes,
        features=public.features,  # type: ignore[arg-type]
        test_features=np.asarray(test.features[np.arange(len(test))]),
        test_labels=test.labels,
        label_names=names,
        private=True,
    )


def main(args: Sequence[str]) -> None:
    """Run `pate frontier`."""
    call("frontier", frontier, args)
