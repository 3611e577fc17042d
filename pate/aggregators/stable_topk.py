"""StableTopK of Zhu & Wang (2022), and its variants."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pate.accounting.events import Event
from pate.accounting.relation import NeighboringRelation
from pate.aggregators._release import expect_k, release_rows
from pate.aggregators.base import Aggregator, Release
from pate.mechanisms.stable_top_k import FixedTopKMechanism, StableTopKMechanism
from pate.validation import expect, expect_count, expect_open_unit, expect_positive
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

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_gap", "sigma_test")

    scale_gap: float
    sigma_test: float
    delta_test: float
    allow_empty: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_open_unit(delta_test=self.delta_test)

    def event(
        self, *, num_teachers: int, num_labels: int, neighboring_relation: NeighboringRelation | None = None
    ) -> Event:
        """Describe the cost of one query, which does not depend on ``num_labels``."""
        expect_count(2, num_teachers=num_teachers)
        expect_count(1 if self.allow_empty else 2, num_labels=num_labels)
        return self.mechanism(num_teachers, num_labels).event(self.relation_of(neighboring_relation))

    def mechanism(self, num_teachers: int, num_labels: int) -> StableTopKMechanism:
        """Return the choice and the test for ``num_teachers`` teachers who vote on ``num_labels`` labels."""
        return StableTopKMechanism(
            num_teachers=num_teachers,
            num_labels=num_labels,
            scale_gap=self.scale_gap,
            sigma_test=self.sigma_test,
            delta_test=self.delta_test,
            shift=self.neighboring_relation.count_window,
            allow_empty=self.allow_empty,
        )

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries; a query is answered for all its labels or for none."""
        return release_rows(*self.mechanism(votes.num_teachers, votes.num_labels)(votes.counts, generator=generator))


@dataclass(frozen=True, kw_only=True)
class GaussianStableTopK(Aggregator):
    """StableTopK with Gaussian noise in the choice of k, as in the experiments of Zhu & Wang (2022).

    Choose it to compare with the paper. Gumbel noise of the same standard deviation costs far less: `StableTopK`.

    Privacy: the largest of C + 1 gaps (C - 1 without the empty and the full set) with Gaussian noise, at the cost that
    is proven (Zhu & Wang (2022), Corollary 9; the gaps move within 2 votes under ADD_REMOVE_TEACHER, 4 under
    REPLACE_RECORD), composed with the test of `StableTopK`. The smaller cost behind the paper's figures is refuted.

    Args:
        sigma_gap: standard deviation of the noise on the gaps, in votes.
        sigma_gap_test: standard deviation of the noise of the stability test, in votes.
        delta_gap_test: probability that an unstable set passes the test, paid by every query.
        neighboring_relation: the relation that the test protects.
        allow_empty: whether no label, and all labels, are possible answers.

    Raises:
        ValueError: on a deviation that is not positive, or ``delta_gap_test`` outside (0, 1).
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("sigma_gap", "sigma_gap_test")

    sigma_gap: float
    sigma_gap_test: float
    delta_gap_test: float
    allow_empty: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_open_unit(delta_gap_test=self.delta_gap_test)

    def event(
        self, *, num_teachers: int, num_labels: int, neighboring_relation: NeighboringRelation | None = None
    ) -> Event:
        """Describe the cost of one query."""
        expect_count(2, num_teachers=num_teachers)
        expect_count(1 if self.allow_empty else 2, num_labels=num_labels)
        return self.mechanism(num_teachers, num_labels).event(self.relation_of(neighboring_relation))

    def mechanism(self, num_teachers: int, num_labels: int) -> StableTopKMechanism:
        """Return the choice and the test for ``num_teachers`` teachers who vote on ``num_labels`` labels."""
        return StableTopKMechanism(
            num_teachers=num_teachers,
            num_labels=num_labels,
            scale_gap=self.sigma_gap,
            sigma_test=self.sigma_gap_test,
            delta_test=self.delta_gap_test,
            shift=self.neighboring_relation.count_window,
            allow_empty=self.allow_empty,
            noise="gaussian",
        )

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries; a query is answered for all its labels or for none."""
        return release_rows(*self.mechanism(votes.num_teachers, votes.num_labels)(votes.counts, generator=generator))


@dataclass(frozen=True, kw_only=True)
class FixedStableTopK(Aggregator):
    """Release a set of exactly k labels, most of it by a stable gap near k, the rest peeled off.

    Choose it where k is public and the teachers are nearly agreed on the k labels. Where they are not, `Canonical` does
    without tests that fail.

    Privacy: the choice of a gap and the test of `StableTopK`, then one bounded-range choice (counts that move within a
    window of 1 vote under ADD_REMOVE_TEACHER, 2 under REPLACE_RECORD) for every label that is peeled, k at most: a
    query costs what it took in the end (Zhu & Wang (2022), Algorithm 3).

    Args:
        k: how many labels every sample has.
        pull: public preference for gaps near k, in votes per label, at least 0.
        scale_gap_fixed: scale of the Gumbel noise on the gaps, in votes.
        sigma_test_fixed: standard deviation of the noise of the stability test, in votes.
        delta_test_fixed: probability that an unstable set passes the test, paid by every query.
        scale_peel_fixed: scale of the Gumbel noise of the peeling, in votes.
        neighboring_relation: the relation that the test protects.
        allow_empty: whether the gap may lie above all labels or below all of them.

    Raises:
        ValueError: on noise that is not positive, ``delta_test_fixed`` outside (0, 1), ``k < 1`` or ``pull < 0``.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_gap_fixed", "sigma_test_fixed", "scale_peel_fixed")

    k: int
    pull: float
    scale_gap_fixed: float
    sigma_test_fixed: float
    delta_test_fixed: float
    scale_peel_fixed: float
    allow_empty: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        expect_count(1, k=self.k)
        if self.pull != 0:
            expect_positive(pull=self.pull)
        expect_open_unit(delta_test_fixed=self.delta_test_fixed)

    def event(
        self, *, num_teachers: int, num_labels: int, neighboring_relation: NeighboringRelation | None = None
    ) -> Event:
        """Describe the cost of one query for which k labels are peeled."""
        return self.realised_event(
            self.k, num_teachers=num_teachers, num_labels=num_labels, neighboring_relation=neighboring_relation
        )

    def realised_event(
        self,
        steps: int,
        *,
        num_teachers: int,
        num_labels: int,
        neighboring_relation: NeighboringRelation | None = None,
    ) -> Event:
        """Describe the cost of a query for which ``steps`` labels were peeled."""
        expect_count(2, num_teachers=num_teachers)
        expect_count(1 if self.allow_empty else 2, num_labels=num_labels)
        expect_k(self.k, num_labels, largest=num_labels)
        expect(0 <= steps <= self.k, f"0 <= steps <= {self.k}", steps=steps)
        return self.mechanism(num_teachers, num_labels).event(self.relation_of(neighboring_relation), rounds=steps)

    def mechanism(self, num_teachers: int, num_labels: int) -> FixedTopKMechanism:
        """Return the choice, the test and the peeling for ``num_teachers`` teachers and ``num_labels`` labels."""
        return FixedTopKMechanism(
            num_teachers=num_teachers,
            num_labels=num_labels,
            scale_gap=self.scale_gap_fixed,
            sigma_test=self.sigma_test_fixed,
            delta_test=self.delta_test_fixed,
            shift=self.neighboring_relation.count_window,
            allow_empty=self.allow_empty,
            k=self.k,
            pull=self.pull,
            scale_peel=self.scale_peel_fixed,
        )

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries; a query is answered for all its labels or for none."""
        mechanism = self.mechanism(votes.num_teachers, votes.num_labels)
        members, passed, rounds = mechanism(votes.counts, generator=generator)
        return release_rows(members, passed)._replace(steps=rounds.astype(np.int64))
