"""The frontier: the quality of each aggregator's labels, and of their student, at each epsilon."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pate._linear import LinearStudent, fit_linear, student_of
from pate._planning.candidates import candidates
from pate._planning.comparison import Comparison, Frontier, Point
from pate._planning.task import Task
from pate._progress import stage_bar
from pate._validation import BoolArray, FloatArray, UInt8Array, require
from pate._votes import Counts, Votes, VoteShape
from pate.accounting._accountant import COARSE_ORDERS, Target, epsilon_of
from pate.accounting._charges import account
from pate.accounting._cost import DEFAULT_ORDERS
from pate.aggregators import Aggregator, Outlook, Release
from pate.aggregators._base import features_of
from pate.data._checks import known_truth
from pate.student._decisions import agreement
from pate.student._metrics import average_precision

_TOLERANCE = 1e-4  # relative; less excess noise changes no figure visibly
_SHORT = 1e-3  # the relative shortfall of epsilon below its target that is accepted


def measure(
    task: Task[Counts], aggregator: Aggregator, epsilon: float, comparison: Comparison
) -> Point | None:
    """Return the results of an aggregator at a target epsilon, or None if no noise meets it."""
    shape, target = task.votes.shape, comparison.target(epsilon)
    met = _calibrated(aggregator, target, shape)
    if met is None:
        return None
    calibrated, allowed = met
    drawn = [
        _figures_of(task, calibrated, allowed, comparison, seed) for seed in range(comparison.seeds)
    ]
    medians = {name: float(np.median([figures[name] for figures in drawn])) for name in drawn[0]}
    return Point(
        aggregator=aggregator.display_name,
        target_epsilon=epsilon,
        epsilon=allowed,
        parameters=json.dumps({name: round(scale, 4) for name, scale in calibrated.noise.items()}),
        **medians,
    )


def _calibrated(
    aggregator: Aggregator, target: Target, shape: VoteShape
) -> tuple[Aggregator, float] | None:
    """Return an aggregator with noise that meets a target, and its epsilon; None if none does.

    A few orders suffice for most aggregators. They overestimate epsilon; where that is noticeable,
    all orders are used.
    """
    relation, best = target.neighboring_relation, None
    for orders in (COARSE_ORDERS, DEFAULT_ORDERS):
        calibrated = aggregator.calibrated(target, shape, tolerance=_TOLERANCE, orders=orders)
        if calibrated is not None:
            event = calibrated.event(shape, relation)
            best = (calibrated, epsilon_of(event, count=target.num_queries, delta=target.delta))
            if best[1] > (1 - _SHORT) * target.epsilon:
                break
    return best


def _figures_of(
    task: Task[Counts], aggregator: Aggregator, allowed: float, comparison: Comparison, seed: int
) -> dict[str, float]:
    """Draw the noise of a calibrated aggregator once, and return its figures by name."""
    votes = task.votes
    release = aggregator.aggregate(votes, generator=np.random.default_rng(seed))
    paid = allowed
    if release.tiers is not None:
        charges = aggregator.charges(release, votes.shape)
        paid = account(charges, comparison.neighboring_relation).get_epsilon(delta=comparison.delta)
    figures = {"realised_epsilon": paid} | label_quality(release, votes)
    if comparison.student:
        figures |= score_student(
            student_of(release, features_of(votes), votes.num_teachers),
            task,
            cutoff=comparison.cutoff,
        )
    return figures


def score_student(student: LinearStudent, task: Task[Votes], *, cutoff: float) -> dict[str, float]:
    """Return the metrics of a student on the test set."""
    return _metrics(student.predict(task.test_features), task.test_labels, cutoff=cutoff)


def _metrics(probabilities: FloatArray, truth: UInt8Array, *, cutoff: float) -> dict[str, float]:
    right, known = known_truth(truth)
    figures = agreement(probabilities > cutoff, right, known)
    return {
        "student_accuracy": figures["accuracy"],
        "student_macro_f1": figures["macro_f1"],
        "student_mAP": float(average_precision(probabilities, right, known).mean()),
    }


def label_quality(release: Release, votes: Counts) -> dict[str, float]:
    """Return the share of released labels, and their agreement with the majority (NaN if none)."""
    majority, labeled, answered = majority_of(votes), release.labels > 0, release.mask
    agreeing = (labeled == majority) & answered
    both = (labeled & majority & answered).sum(axis=0)
    either = (labeled & answered).sum(axis=0) + (majority & answered).sum(axis=0)
    occurring = either > 0
    return {
        "answered": float(answered.mean()),
        "label_accuracy": float(agreeing.sum() / answered.sum()) if answered.any() else math.nan,
        "label_macro_f1": float((2 * both[occurring] / either[occurring]).mean())
        if occurring.any()
        else math.nan,
    }


def majority_of(votes: Counts) -> BoolArray:
    """Return ``[Q, C]``, which labels more than half of the teachers gave."""
    return np.asarray(2 * votes.counts.astype(np.int64) > votes.num_teachers)


def references(task: Task[Counts], *, student: bool, cutoff: float) -> dict[str, dict[str, float]]:
    """Return the figures of the references that aggregators are compared with, by name.

    The ``constant answer`` gives each label its more common value, among noiseless majorities for
    released labels and among true test labels for a student. It is the best answer that does not
    look at a sample, which a useful student must beat. The ``noiseless majority`` releases the
    majority of the teachers' votes, the ``noiseless counts`` their exact numbers; both would cost
    an infinite epsilon.
    """
    votes, majority = task.votes, majority_of(task.votes)
    all_answered = np.ones(majority.shape, dtype=np.bool_)
    common = np.broadcast_to(majority.mean(axis=0) > 0.5, majority.shape)
    constant = label_quality(Release(common.astype(np.uint8), all_answered), votes)
    exact = label_quality(Release(majority.astype(np.uint8), all_answered), votes)
    figures = {"constant answer": constant, "noiseless majority": exact}
    if not student:
        return figures
    (right, known), features = known_truth(task.test_labels), features_of(votes)
    usual = np.broadcast_to(2 * right.sum(axis=0) > known.sum(axis=0), right.shape)
    figures["constant answer"] |= _metrics(
        usual.astype(np.float64), task.test_labels, cutoff=cutoff
    )
    figures["noiseless majority"] |= score_student(
        fit_linear(features, majority, all_answered), task, cutoff=cutoff
    )
    shares = votes.counts / votes.num_teachers
    figures["noiseless counts"] = exact | score_student(
        fit_linear(features, shares, all_answered), task, cutoff=cutoff
    )
    return figures


def frontier(
    task: Task[Counts], comparison: Comparison, aggregators: Sequence[Aggregator] | None = None
) -> Frontier:
    """Measure labels, and a student, against epsilon for several aggregators on the same votes.

    Args:
        task: the votes on the queries, and the data for a student.
        comparison: the settings common to all aggregators.
        aggregators: the aggregators to compare; one factor scales all noise of each of them to meet
            each target. Aggregators that need predictions become the last of two `Rounds`. None for
            the proposals of all registered aggregators.

    Returns:
        A point for each aggregator and epsilon that it can meet, as PRIVATE as the votes.

    Raises:
        ValueError: if the votes are on another number of queries, or an aggregator cannot serve
            them.
    """
    num_queries = task.votes.num_queries
    require(
        num_queries == comparison.num_queries,
        f"votes on {comparison.num_queries} queries",
        num_queries=num_queries,
    )
    outlook = Outlook.of(
        task.votes, delta=comparison.delta, relation=comparison.neighboring_relation
    )
    compared = candidates(outlook, aggregators, variants=comparison.variants)
    points: list[Point] = []
    with stage_bar(len(compared) * len(comparison.epsilons), "frontier", unit="point") as bar:
        for name, _, aggregator in compared:
            bar.set_postfix_str(name, refresh=False)
            for epsilon in comparison.epsilons:
                point = measure(task, aggregator, epsilon, comparison)
                points += [] if point is None else [replace(point, aggregator=name)]
                bar.update()
    return Frontier(
        comparison=comparison,
        points=tuple(points),
        references=references(task, student=comparison.student, cutoff=comparison.cutoff),
        private=task.private,
        families={name: family for name, family, _ in compared} if comparison.variants else {},
    )
