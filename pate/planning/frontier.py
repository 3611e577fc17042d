"""The frontier: the results of each aggregator on the same votes at the same epsilons, to choose one by."""

from __future__ import annotations

from collections.abc import Sequence

from tqdm import tqdm

from pate.aggregators import Aggregator, Outlook, propose
from pate.planning.comparison import Comparison, Frontier, Point
from pate.planning.evaluation import measure, noiseless
from pate.planning.task import Task


def frontier(task: Task, comparison: Comparison, aggregators: Sequence[Aggregator] | None = None) -> Frontier:
    """Measure the quality of labels, and of a student, against epsilon for a list of aggregators on the same votes.

    Args:
        task: the votes, and the data on which a student is trained and evaluated.
        comparison: the settings common to all aggregators.
        aggregators: the aggregators to compare. Only the proportions of their noise matter: all of it is scaled by one
            factor to meet each target. None for the proposals of all registered aggregators.

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
