"""StableTopK of Zhu & Wang (2022), and its variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pate._votes import Counts, VoteShape
from pate.accounting._events import Event
from pate.accounting._relation import NeighboringRelation
from pate.aggregators._base import Release
from pate.aggregators._of_mechanism import MechanismAggregator
from pate.mechanisms._gaps import GapNoise
from pate.mechanisms._stability import TestedBy
from pate.mechanisms._stable_top_k import FixedTopKMechanism, StableTopKMechanism


@dataclass(frozen=True, kw_only=True)
class StableTopK(MechanismAggregator[StableTopKMechanism]):
    """Release the exact set of the k most voted labels, k chosen by the widest noisy gap, if that gap is stable.

    Choose it if samples have many labels and the teachers agree: the cost of a query does not grow
        with the number of
    labels. A query whose gap is narrow is not answered, unless most teachers give none or all of
    the labels.

    Privacy: an ``eta``-bounded-range choice (Gumbel noise on gaps that move within a window of 2
        votes under
    ADD_REMOVE_TEACHER, 4 under REPLACE_RECORD; ``eta = window / scale_gap``) composed with a
    Gaussian propose-test-release of ``delta_test`` (Zhu & Wang (2022), Algorithm 2, at the exact
    cost of its released bit). Majorities for none and for all move as gaps do; made for
    REPLACE_RECORD, they move by 2 under both relations, and so the cost is that of REPLACE_RECORD
    under both. Other noise costs what `pate.mechanisms.GapChoice` and
    `pate.mechanisms.LaplaceStabilityTest` say. With Gaussian noise in the choice, as in the
    experiments of the paper, it costs far more than with Gumbel noise of the same standard
    deviation: what is proven is a `GaussianNoisyMaxEvent` of C + 1 gaps (C - 1 without the empty
    and the full set). We know no theorem for the smaller cost in their Table 2.

    Args:
        scale_gap: scale of the noise on the gaps, in votes.
        sigma_test: standard deviation of the noise of the stability test, or its scale if it is
            ``laplace``, in votes.
        delta_test: probability that an unstable set passes the test, paid by every query.
        neighboring_relation: the relation that the test protects.
        allow_empty: whether no label, and all labels, are possible answers, by majority; the paper
            leaves them out.
        noise_law: noise on the gaps, one of those of `pate.mechanisms.GapChoice`.
        test_law: noise of the test, ``gaussian`` or ``laplace``.
        regularizer: public numbers, one more than labels, added to the gaps below 0, 1, .. labels;
            minus infinity rules a k out.
        kbar: largest number of labels given, if the labels themselves are not public: those of rank
            beyond ``kbar + 1`` have no influence.

    Raises:
        ValueError: on a scale or deviation that is not positive, ``delta_test`` outside (0, 1), an
            unknown noise, a regularizer that is NaN or plus infinity, or ``kbar < 1``.
    """

    names: ClassVar[Mapping[str, str]] = {"noise_law": "noise", "test_law": "test_noise"}

    scale_gap: float
    sigma_test: float
    delta_test: float
    allow_empty: bool = True
    noise_law: GapNoise = "gumbel"
    test_law: TestedBy = "gaussian"
    regularizer: tuple[float, ...] | None = None
    kbar: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.regularizer is not None:
            object.__setattr__(
                self, "regularizer", tuple(float(value) for value in self.regularizer)
            )

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        return Release.of_rows(*self.mechanism(votes.shape)(votes.counts, generator=generator))

    def most_answered(self, shape: VoteShape) -> float:
        """Return the probability that the widest gap of all passes its test."""
        mechanism = self.mechanism(shape)
        return float(mechanism.test.probability(mechanism.widest_gap))


@dataclass(frozen=True, kw_only=True)
class FixedStableTopK(MechanismAggregator[FixedTopKMechanism]):
    """Release a set of exactly k labels, most of them by a stable gap near k and the rest by peeling.

    Choose it if k is public and the teachers nearly agree on the k labels. If they do not,
    `Canonical` has no test that could fail.

    Privacy: the choice of a gap and the test of `StableTopK`, then one bounded-range choice (counts
        that move within a
    window of 1 vote under ADD_REMOVE_TEACHER, 2 under REPLACE_RECORD) for every label that is
    peeled, k at most: a query costs the rounds that it took (Zhu & Wang (2022), Algorithm 3). With
    ``fallback`` a query that fails the test is answered by k rounds of peeling (line 5 there):
    every query is answered.

    Args:
        k: number of labels of every sample.
        pull: public preference for gaps near k, in votes per label, at least 0.
        scale_gap_fixed: scale of the Gumbel noise on the gaps, in votes.
        sigma_test_fixed: standard deviation of the noise of the stability test, in votes.
        delta_test_fixed: probability that an unstable set passes the test, paid by every query.
        scale_peel_fixed: scale of the Gumbel noise of the peeling, in votes.
        neighboring_relation: the relation that the test protects.
        allow_empty: whether the gap may lie above all labels or below all of them.
        fallback: whether queries that fail the test are answered by peeling k labels from all.
        peel_by_root: whether r rounds of peeling have noise of ``scale_peel_fixed sqrt(r / k)``:
            they cost about what k rounds do.

    Raises:
        ValueError: on noise that is not positive, ``delta_test_fixed`` outside (0, 1), ``k < 1`` or
            ``pull < 0``.
    """

    names: ClassVar[Mapping[str, str]] = {
        "scale_gap_fixed": "scale_gap",
        "sigma_test_fixed": "sigma_test",
        "delta_test_fixed": "delta_test",
        "scale_peel_fixed": "scale_peel",
    }

    k: int
    pull: float
    scale_gap_fixed: float
    sigma_test_fixed: float
    delta_test_fixed: float
    scale_peel_fixed: float
    allow_empty: bool = True
    fallback: bool = False
    peel_by_root: bool = False

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of one query for which ``tier`` labels are peeled, k if None."""
        return self.mechanism(shape).event(self.relation_of(relation), tier)

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        members, passed, rounds = self.mechanism(votes.shape)(votes.counts, generator=generator)
        return Release.of_rows(members, passed | self.fallback, rounds)

    def most_answered(self, shape: VoteShape) -> float:
        """Return the probability that the widest gap of all passes its test, or 1 with a fallback."""
        return (
            1.0
            if self.fallback
            else float(self.mechanism(shape).test.probability(shape.num_teachers))
        )
