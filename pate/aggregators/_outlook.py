"""The public facts about votes from which an aggregator is chosen."""

from __future__ import annotations

from dataclasses import dataclass

from pate._validation import require_count, require_given, require_in_open_unit_interval
from pate._votes import Counts, Votes, VoteShape
from pate.accounting import NeighboringRelation, Target


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The public facts about votes from which an aggregator is chosen.

    >>> outlook = Outlook(
    ...     shape=VoteShape(num_teachers=100, num_labels=4),
    ...     num_queries=50,
    ...     delta=1e-6,
    ...     relation=NeighboringRelation.REPLACE_RECORD,
    ... )
    >>> outlook.target(2.0).num_queries
    50

    Args:
        shape: the numbers of teachers and labels.
        num_queries: number of queries asked.
        delta: the delta of the guarantee.
        relation: the relation of the guarantee.
        labels_per_sample: average number of labels of a sample, rounded; None if unknown.
    """

    shape: VoteShape
    num_queries: int
    delta: float
    relation: NeighboringRelation
    labels_per_sample: int | None = None

    def __post_init__(self) -> None:
        require_count(1, num_queries=self.num_queries)
        require_in_open_unit_interval(delta=self.delta)

    @classmethod
    def of(cls, votes: Votes, *, delta: float, relation: NeighboringRelation) -> Outlook:
        """Describe given votes; the result is as PRIVATE as they are.

        A set never has all of several labels. Votes without counts do not tell how many it has.
        """
        num_labels, k = votes.num_labels, None
        if isinstance(votes, Counts):
            average = round(float(votes.counts.mean()) * num_labels / votes.num_teachers)
            k = min(max(1, average), max(1, num_labels - 1))
        return cls(
            shape=votes.shape,
            num_queries=votes.num_queries,
            delta=delta,
            relation=relation,
            labels_per_sample=k,
        )

    @classmethod
    def at(
        cls, target: Target, shape: VoteShape, *, labels_per_sample: int | None = None
    ) -> Outlook:
        """Describe votes of a shape for a target."""
        return cls(
            shape=shape,
            num_queries=target.num_queries,
            delta=target.delta,
            relation=target.neighboring_relation,
            labels_per_sample=labels_per_sample,
        )

    def target(self, epsilon: float) -> Target:
        """Return the target of an ``epsilon`` for all queries."""
        return Target(
            epsilon=epsilon,
            delta=self.delta,
            num_queries=self.num_queries,
            neighboring_relation=self.relation,
        )

    @property
    def k(self) -> int:
        """The number of labels that a set should have. Raises ``ValueError`` if it is unknown."""
        requirement = "k (`aggregator.k`), which follows from how many labels a sample has"
        return require_given(self.labels_per_sample, requirement)

    @property
    def num_items(self) -> int:
        """The number of labels."""
        return self.shape.num_labels

    @property
    def largest(self) -> int:
        """The largest count, which is the number of teachers."""
        return self.shape.num_teachers

    @property
    def delta_test(self) -> float:
        """The delta of one query's stability test; all tests together take half of delta."""
        return self.delta / (2 * self.num_queries)
