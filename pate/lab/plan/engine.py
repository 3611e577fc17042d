"""What all comparisons share: a price, the noise that meets it, and draws of it by seed."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed

from pate._core.accounting.accountant import Target, epsilon_of
from pate._core.accounting.charges import account
from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import BoundedRangeEvent, Event, PureDPEvent, leaves
from pate._core.progress import stage_bar
from pate._core.release.transaction import require_promise
from pate._core.validation import require, require_count, require_positive
from pate._labeling.aggregators.base import Aggregator, AnyAggregator, Release
from pate._labeling.release.completion import complete_aggregator, scale_to_target
from pate._labeling.votes.kinds import Votes

FREE = "from simulated votes alone: nothing private was touched"
_FOR_SETTINGS = 1e-6  # delta of settings that a class chooses for a target without one

Figures = Mapping[str, float | None]
Row = Mapping[str, Any]
"""A row of a table of results, by column."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a comparison of mechanisms.

    Args:
        epsilons: the targets of all queries on the same votes together.
        delta: their delta. At 0 they are pure epsilons by simple addition, which
            choices with noise of any law have, and tests have not.
        neighboring_relation: the relation that they hold for.
        seeds: number of draws of the noise.

    Raises:
        ValueError: on parameters out of range, or without an epsilon.
    """

    epsilons: tuple[float, ...]
    delta: float = 1e-6
    neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_RECORD
    seeds: int = 10

    def __post_init__(self) -> None:
        require(self.epsilons, "at least one epsilon", epsilons=self.epsilons)
        require_positive(**{f"epsilons[{i}]": value for i, value in enumerate(self.epsilons)})
        require_count(1, seeds=self.seeds)
        if self.delta != 0:
            require_promise(self.delta)

    def target(self, epsilon: float, num_queries: int) -> Target:
        """Return what a number of queries may cost together."""
        return Target(
            epsilon=epsilon,
            delta=self.delta or _FOR_SETTINGS,
            num_queries=num_queries,
            neighboring_relation=self.neighboring_relation,
        )

    def priced(self, mechanism: AnyAggregator, epsilon: float, votes: Votes) -> Aggregator:
        """Return a mechanism with the least noise that lets all queries together cost an epsilon.

        Raises:
            ValueError: if no noise meets the target.
        """
        target = self.target(epsilon, votes.num_queries)
        made = complete_aggregator(mechanism, target, votes.shape)
        if self.delta:
            return scale_to_target(made, target, votes.shape)
        cost = self.cost(made, votes)
        require(math.isfinite(cost), "a mechanism of pure epsilon at delta = 0", cost="none")
        # noise of twice the scale costs half
        return made.scaled(cost / epsilon)

    def cost(self, aggregator: Aggregator, votes: Votes) -> float:
        """Return the epsilon of all queries on some votes together."""
        event = aggregator.event(votes.shape, self.neighboring_relation)
        if not self.delta:
            return pure_epsilon(event) * votes.num_queries
        return epsilon_of(event, count=votes.num_queries, delta=self.delta)

    def draws(
        self,
        aggregator: Aggregator,
        votes: Votes,
        figures: Callable[[Release], Figures],
        seeds: Sequence[int],
    ) -> list[dict[str, Any]]:
        """Release votes by each seed, and return the cost, the noise and the figures of each.

        The cost ``spent`` is less than what is ``allowed`` where a release settled for less.
        """
        allowed, rows = self.cost(aggregator, votes), []
        for seed in seeds:
            release = aggregator.aggregate(votes, generator=np.random.default_rng(seed))
            spent = allowed
            if release.tiers is not None and self.delta:
                charges = aggregator.charges(release, votes.shape)
                total = account(charges, self.neighboring_relation)
                spent = total.get_epsilon(delta=self.delta)
            noise = json.dumps(aggregator.noise)
            rows.append({"seed": seed, "spent": spent, "noise": noise} | dict(figures(release)))
        return rows


def pure_epsilon(event: Event) -> float:
    """Return the pure epsilon of an event by simple addition, infinite where none is known.

    A choice of bounded range eta is eta-DP, and the releases of an event add up (Dwork et al.
    (2006)), also where earlier ones decide later ones.
    """
    total = 0.0
    for leaf, count in leaves(event):
        if isinstance(leaf, BoundedRangeEvent):
            total += count * leaf.eta
        elif isinstance(leaf, PureDPEvent):
            total += count * leaf.epsilon
        else:
            return math.inf
    return total


Made = TypeVar("Made")


def in_processes(
    workers: int,
    name: str,
    function: Callable[..., Made],
    calls: Sequence[tuple[Any, ...]],
    *,
    private: bool,
) -> list[Made]:
    """Return a function's results for several arguments, in order; votes may be ``private``."""
    # private votes are not to be mapped from a file of all workers
    size = None if private else "1M"
    pool = Parallel(n_jobs=min(workers, len(calls) or 1), return_as="generator", max_nbytes=size)
    results = []
    with stage_bar(len(calls), name, unit="group") as bar:
        for result in pool(delayed(function)(*each) for each in calls):
            results.append(result)
            bar.update()
    return results
