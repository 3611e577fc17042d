"""The settings of `pate label`: the queries, the mechanism that answers them, and the budget."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from pate._release.promise import require_promise
from pate._settings import require_made
from pate._validation import require, require_count
from pate.accounting import NeighboringRelation
from pate.accounting._budget import Budget, FilterName
from pate.aggregators._base import Aggregator, AnyAggregator, made_for


@dataclass(frozen=True)
class LabelSettings:
    """The queries to the teachers, the mechanism that answers them, and the budget.

    Args:
        aggregator: the mechanism, by name or path. With a target epsilon its noise may be left out,
            as of ``Partial(StableTopK)``, or all of it: None is then ``Rounds`` of
            ``ClippedVotes``, which need ballots and features, or ``ScoreVotes`` where ballots are
            scores or moments.
        delta: the delta of the statement, above what the mechanism's tests cost, at most 1e-3 and
            below one over the number of teachers.
        num_queries: number of public samples to label; None for all that were voted on.
        max_epsilon: the budget of the ledger, at this delta and under the aggregator's relation,
            for units that reach max_teachers_per_unit teachers. A release that would take the total
            of all releases beyond it, or is made for units that reach more, is refused before
            anything is spent. The first one given is final.
        max_delta0: the part of delta that this budget sets aside for failures of tests, those of
            later releases too. None for a tenth, or for what this release would need if it were
            repeated until the budget is spent.
        budget_filter: the filter that keeps this budget, ``renyi``, ``gaussian`` or ``mixed``. None
            for the one that allows most releases like this one. Of others, a Gaussian filter allows
            a third less choices and tests, a Renyi filter a tenth less Gaussian noise; a mixed one
            1% less of what is narrow, a third less of the rest.
        query_seed: seed of the public order in which samples are taken.
        noise_seed: a fixed seed of the noise, for tests and teaching: the result is NOT private.
            None for noise from the operating system's entropy.
        target_epsilon: what this release may cost at most, at this delta and under the aggregator's
            relation: its noise is scaled by the one factor that meets it. None to use the noise as
            given.
        max_teachers_per_unit: how many teachers one unit (a record, a patient) may reach, as one in
            several silos does. The target and the budget are for such units, and so are the figures
            of this statement and all later ones of the ledger, unless another release declared
            more.
        predictions: an ``.npz`` with ``ids`` and ``probabilities``: predictions for public samples
            by a student of an earlier release, for an aggregator that needs them.

    Raises:
        ValueError: if a number is outside its range, the aggregator is incomplete and there is no
            target, or predictions are missing, or given to an aggregator that takes none.
    """

    aggregator: AnyAggregator | None = None
    _: KW_ONLY
    delta: float
    num_queries: int | None = None
    max_epsilon: float | None = None
    query_seed: int = 0
    noise_seed: int | None = None
    target_epsilon: float | None = None
    predictions: Path | None = None
    max_teachers_per_unit: int = 1
    max_delta0: float | None = None
    budget_filter: FilterName | None = None

    def __post_init__(self) -> None:
        if self.num_queries is not None:
            require_count(1, num_queries=self.num_queries)
        require_count(0, query_seed=self.query_seed)
        if self.noise_seed is not None:
            require_count(0, noise_seed=self.noise_seed)
        require_promise(self.delta)
        require_count(1, max_teachers_per_unit=self.max_teachers_per_unit)
        _ = self.budget  # which checks what it is made of
        if self.target_epsilon is None:
            require(
                self.aggregator is not None,
                "`aggregator`, or `target_epsilon`, which finds one",
            )
            require_made("aggregator", self.aggregator, ", or `target_epsilon`, which finds it")
        if not isinstance(self.aggregator, Aggregator):
            return  # what is needed is known once the target has found the rest
        name, needed = type(self.aggregator).__name__, "predictions" in self.aggregator.needs
        use = (
            f"`predictions`, which {name} needs"
            if needed
            else f"no `predictions`, of which {name} makes no use"
        )
        require(
            needed == (self.predictions is not None),
            use,
            predictions=self.predictions and str(self.predictions),
        )

    @property
    def mechanism(self) -> Aggregator:
        """The aggregator. Raises ``ValueError`` if it is yet to be found."""
        if not isinstance(self.aggregator, Aggregator):
            raise ValueError(
                "Expected an aggregator, got none: it is found for a target once the votes are known"
            )
        return self.aggregator

    @property
    def relation(self) -> NeighboringRelation:
        """The relation of the target and of the budget."""
        return made_for(Aggregator if self.aggregator is None else self.aggregator)

    @property
    def budget(self) -> Budget | None:
        """The budget asked for, or None."""
        return Budget.declared(
            self.max_epsilon,
            delta=self.delta,
            neighboring_relation=self.relation,
            max_delta0=self.max_delta0,
            budget_filter=self.budget_filter,
            max_teachers_per_unit=self.max_teachers_per_unit,
        )
