"""The frontier: what each aggregator makes of a task at an epsilon, in released labels and the student they train."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tqdm import tqdm

from pate.accounting.charges import account
from pate.aggregators import Aggregator, Outlook, Release, propose
from pate.planning.comparison import Comparison, Frontier, Point
from pate.planning.plan import Plan, plan_for
from pate.planning.task import Task
from pate.student.average_precision import average_precision
from pate.student.linear import LinearStudent, fit_released
from pate.typing import FloatArray
from pate.votes import Votes


def measure(task: Task, aggregator: Aggregator, epsilon: float, comparison: Comparison) -> Point | None:
    """Return the results of an aggregator on a task at a target epsilon, or None if no noise meets it."""
    panel = task.votes.panel
    target = replace(comparison.target(epsilon), num_queries=task.votes.num_queries)
    plan = plan_for(aggregator, target, panel)
    if plan is None:
        return None
    allowed = plan.epsilon(target, panel)
    drawn = [_figures_of(task, plan, allowed, comparison, seed) for seed in range(comparison.seeds)]
    medians = {name: float(np.median([each[name] for each in drawn])) for name in drawn[0]}
    return Point(
        aggregator=aggregator.title,
        target_epsilon=epsilon,
        epsilon=allowed,
        parameters=json.dumps(plan.noise),
        **medians,
    )


def _figures_of(task: Task, plan: Plan, allowed: float, comparison: Comparison, seed: int) -> dict[str, float]:
    """Draw the noise of a plan once, and return its figures by name."""
    generator, votes = np.random.default_rng(seed), task.votes
    earlier = None
    if plan.first is not None:
        earlier = plan.first.aggregate(votes, generator=generator)
        votes = replace(votes, predictions=train(task.features, earlier, votes).predict(task.features))
    release = plan.aggregator.aggregate(votes, generator=generator)
    paid = allowed
    if release.tiers is not None:
        charges = plan.charges(release, votes.panel)
        paid = account(charges, comparison.neighboring_relation).get_epsilon(delta=comparison.delta)
    found = {"realised_epsilon": paid} | label_quality(release, votes)
    if comparison.student:
        student = train(task.features, joined(earlier, release), votes)
        found |= judge(student, task, cutoff=comparison.cutoff)
    return found


def joined(earlier: Release | None, release: Release) -> Release:
    """Return a release combined with an earlier one: counts averaged by their noise, missing labels filled in."""
    if earlier is None or earlier.noisy_counts is None or earlier.noise_std is None:
        return release
    if release.noisy_counts is None or release.noise_std is None or not release.mask.all() or release.tiers is not None:
        return release
    first, second = earlier.noise_std**-2, release.noise_std**-2
    values = (first * earlier.noisy_counts + second * release.noisy_counts) / (first + second)
    return release._replace(noisy_counts=values, noise_std=(first + second) ** -0.5)


def train(features: FloatArray, release: Release, votes: Votes) -> LinearStudent:
    """Return the linear student of a release; one that denies all labels if nothing was released."""
    if not release.mask.any():
        return LinearStudent(np.zeros((features[0].size + 1, votes.num_labels)), logistic=False)
    if release.noisy_counts is None or release.noise_std is None:
        return fit_released(features, release.labels, release.mask)
    share = 1 / votes.num_teachers
    return fit_released(features, release.noisy_counts * share, release.mask, noise_std=release.noise_std * share)


def judge(student: LinearStudent, task: Task, *, cutoff: float) -> dict[str, float]:
    """Return the metrics of a student on the test set."""
    probabilities, truth = student.predict(task.test_features), task.test_labels > 0
    given = probabilities > cutoff
    either = given.sum(axis=0) + truth.sum(axis=0)
    return {
        "student_accuracy": float((given == truth).mean()),
        "student_macro_f1": float((2 * (given & truth).sum(axis=0) / np.maximum(either, 1)).mean()),
        "student_mAP": float(average_precision(probabilities, truth).mean()),
    }


def label_quality(release: Release, votes: Votes) -> dict[str, float]:
    """Return how much was released, and its agreement with the noiseless majority; NaN if nothing was released."""
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


def noiseless(task: Task, *, cutoff: float) -> dict[str, float]:
    """Return the metrics of a student of the noiseless majority."""
    majority = (2 * task.votes.counts.astype(np.int64) > task.votes.num_teachers).astype(np.uint8)
    release = Release(majority, np.ones(majority.shape, dtype=np.bool_))
    return judge(train(task.features, release, task.votes), task, cutoff=cutoff)


def frontier(task: Task, comparison: Comparison, aggregators: Sequence[Aggregator] | None = None) -> Frontier:
    """Measure the quality of labels, and of a student, against epsilon for a list of aggregators on the same votes.

    Args:
        task: the votes, and what a student is trained and judged on.
        comparison: what is the same for all aggregators.
        aggregators: what is compared, with noise in any proportion: all of it is scaled by one factor to meet each
            target. None for what all registered aggregators propose.

    Returns:
        A point for each aggregator and epsilon that it can meet, as PRIVATE as the votes.

    Raises:
        ValueError: if there are fewer samples than queries, or an aggregator cannot serve the votes.
    """
    asked = task.drawn(comparison.num_queries, seed=comparison.query_seed)
    if aggregators is None:
        relation = comparison.neighboring_relation
        aggregators = propose(Outlook.of(asked.votes, delta=comparison.delta, relation=relation))
    points: list[Point] = []
    with tqdm(total=len(aggregators) * len(comparison.epsilons), desc="frontier", unit="point") as progress:
        for aggregator in aggregators:
            for epsilon in comparison.epsilons:
                found = measure(asked, aggregator, epsilon, comparison)
                points += [] if found is None else [found]
                progress.update()
    reference = noiseless(asked, cutoff=comparison.cutoff) if comparison.student else {}
    return Frontier(comparison=comparison, points=tuple(points), reference=reference, private=task.private)
