"""StableTopK of Zhu & Wang (2022)."""

from dataclasses import dataclass

import numpy as np

from pate.accounting.events import BoundedRangeEvent, ComposedEvent, Event, StabilityTestEvent
from pate.accounting.relation import NeighboringRelation
from pate.aggregators.base import Aggregator, Release
from pate.mechanisms.stability import stable_top_k
from pate.validation import expect_count, expect_open_unit, expect_positive
from pate.votes import Votes


@dataclass(frozen=True, kw_only=True)
class StableTopK(Aggregator):
    """Release the exact set of the k most voted labels, k chosen by the widest noisy gap, if that gap is stable.

    Choose it where the labels of a sample are many and the teachers agree: the cost of a query does not grow with
    the number of labels. A query whose gap is narrow is answered with nothing.

    Privacy: an ``eta``-bounded-range choice (Gumbel noise on gaps that move within a window of 2 votes under
    ADD_REMOVE_TEACHER, 4 under REPLACE_RECORD; ``eta = window / scale_gap``) composed with a Gaussian
    propose-test-release of ``delta_test`` (Zhu & Wang (2022), Algorithm 2, at the exact cost of its released bit).

    Args:
        scale_gap: scale of the Gumbel noise on the gaps, in votes.
        sigma_test: standard deviation of the noise of the stability test, in votes.
        delta_test: probability that an unstable set passes the test, paid by every query.
        neighboring_relation: the relation that the test protects.
        allow_empty: whether no label, and all labels, are possible answers.

    Raises:
        ValueError: on a scale or deviation that is not positive, or ``delta_test`` outside (0, 1).
    """

    scale_gap: float
    sigma_test: float
    delta_test: float
    allow_empty: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_positive(scale_gap=self.scale_gap, sigma_test=self.sigma_test)
        expect_open_unit(delta_test=self.delta_test)

    def event(
        self, *, num_teachers: int, num_labels: int, neighboring_relation: NeighboringRelation | None = None
    ) -> Event:
        """Describe the cost of one query, which does not depend on ``num_labels``."""
        expect_count(2, num_teachers=num_teachers)
        expect_count(1 if self.allow_empty else 2, num_labels=num_labels)
        relation = NeighboringRelation(neighboring_relation or self.neighboring_relation)
        choice = BoundedRangeEvent(eta=2 * relation.count_window / self.scale_gap, neighboring_relation=relation)
        test = StabilityTestEvent(
            sigma=self.sigma_test,
            delta_test=self.delta_test,
            shift=self.neighboring_relation.count_window,
            num_teachers=num_teachers,
            neighboring_relation=relation,
        )
        return ComposedEvent(events=(choice, test))

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries; a query is answered for all its labels or for none."""
        members, released = stable_top_k(
            votes.counts,
            upper=votes.num_teachers,
            scale_gap=self.scale_gap,
            sigma_test=self.sigma_test,
            delta_test=self.delta_test,
            shift=self.neighboring_relation.count_window,
            allow_empty=self.allow_empty,
            generator=generator,
        )
        return Release(members.astype(np.uint8), np.broadcast_to(released[:, None], members.shape).copy())
