"""StableTopK of Zhu & Wang (2022), and its variants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, get_args

import numpy as np

from pate._validation import expect, expect_open_unit
from pate._votes import Panel, Votes
from pate.accounting._calibration import COARSE_ORDERS, Target
from pate.accounting._events import Event
from pate.accounting._relation import NeighboringRelation
from pate.aggregators._base import Release
from pate.aggregators._of_mechanism import MechanismAggregator
from pate.aggregators._outlook import Gap, Outlook
from pate.mechanisms._gaps import GapNoise
from pate.mechanisms._stability import TestedBy
from pate.mechanisms._stable_top_k import FixedTopKMechanism, StableTopKMechanism
from pate.mechanisms._success import gap_for_answer


@dataclass(frozen=True, kw_only=True)
class StableTopK(MechanismAggregator[StableTopKMechanism]):
    """Release the exact set of the k most voted labels, k chosen by the widest noisy gap, if that gap is stable.

    Choose it if samples have many labels and the teachers agree: the cost of a query does not grow with the number of
    labels. A query whose gap is narrow is not answered.

    Privacy: an ``eta``-bounded-range choice (Gumbel noise on gaps that move within a window of 2 votes under
    ADD_REMOVE_TEACHER, 4 under REPLACE_RECORD; ``eta = window / scale_gap``) composed with a Gaussian
    propose-test-release of ``delta_test`` (Zhu & Wang (2022), Algorithm 2, at the exact cost of its released bit).
    Other noise costs what `pate.mechanisms.GapChoice` and `pate.mechanisms.LaplaceStabilityTest` say. With Gaussian
    noise in the choice, as in the experiments of the paper, it costs far more than with Gumbel noise of the same
    standard deviation: what is proven is a `GaussianNoisyMaxEvent` of C + 1 gaps (C - 1 without the empty and the full
    set). We know no theorem for the smaller cost in their Table 2.

    Args:
        scale_gap: scale of the noise on the gaps, in votes.
        sigma_test: standard deviation of the noise of the stability test, or its scale if it is ``laplace``, in votes.
        delta_test: probability that an unstable set passes the test, paid by every query.
        neighboring_relation: the relation that the test protects.
        allow_empty: whether no label, and all labels, are possible answers.
        noise_law: noise on the gaps, one of those of `pate.mechanisms.GapChoice`.
        test_law: noise of the test, ``gaussian`` or ``laplace``.
        regularizer: public numbers, one more than labels, added to the gaps below 0, 1, .. labels; minus infinity
            rules a k out.
        kbar: largest number of labels given, if the labels themselves are not public: those of rank beyond
            ``kbar + 1`` have no influence.

    Raises:
        ValueError: on a scale or deviation that is not positive, ``delta_test`` outside (0, 1), an unknown noise, a
            regulariser that is NaN or plus infinity, or ``kbar < 1``.
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
            object.__setattr__(self, "regularizer", tuple(float(value) for value in self.regularizer))

    @property
    def marks(self) -> tuple[str, ...]:
        """The laws of the noise unless they are the defaults, and which sets are preferred or ruled out."""
        return (
            "" if self.noise_law == "gumbel" else self.noise_law,
            "" if self.test_law == "gaussian" else f"{self.test_law} test",
            "" if self.regularizer is None else "regularized",
            "" if self.kbar is None else f"kbar={self.kbar}",
        )

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries; a query is answered for all its labels or for none."""
        return Release.of_rows(*self.mechanism(votes.panel)(votes.counts, generator=generator))

    def gap_needed(self, panel: Panel, *, probability: float) -> Gap | None:
        """Return the gap between counts at which a query is answered correctly; None with a regulariser.

        The gap has to win against gaps of 0 above and below each label, and then to pass the test. In real votes, other
        gaps exceed 0 only by as much as teachers disagree.
        """
        if self.regularizer is not None:
            return None
        votes = gap_for_answer(self.mechanism(panel), probability=probability)
        meaning = f"A gap of {votes:.1f} votes between the counts is what a query needs to be answered,"
        return Gap(votes, panel.num_teachers, f"{meaning} and answered right,")

    def most_answered(self, panel: Panel) -> float:
        """Return the probability that the widest gap of all passes its test."""
        return float(self.mechanism(panel).test.probability(panel.num_teachers))

    @classmethod
    def for_target(
        cls, target: Target, panel: Panel, *, delta_test: float | None = None, answered: float = 0.9
    ) -> Self | None:
        """Return the instance that meets a target, its noise split so that the gap that a query needs is narrowest.

        Args:
            target: the largest cost of all queries together.
            panel: the numbers of teachers and labels.
            delta_test: what each test adds to delta. None for half of the target's delta over all queries.
            answered: the probability with which a query of the predicted gap is answered.

        Raises:
            ValueError: if the tests alone cost the target's delta.
        """
        test_delta = target.delta / (2 * target.num_queries) if delta_test is None else delta_test
        expect_open_unit(delta_test=test_delta, answered=answered)
        largest = target.delta / target.num_queries
        spent = -math.expm1(target.num_queries * math.log1p(-test_delta))
        requirement = f"delta_test < {largest:.3g}, so that all tests stay below delta"
        expect(spent < target.delta, requirement, delta_test=test_delta)
        equal = cls(
            scale_gap=1.0, sigma_test=1.0, delta_test=test_delta, neighboring_relation=target.neighboring_relation
        )

        def gap(log_ratio: float) -> float:
            # fewer orders err on the private side, which is enough to compare splits
            unequal = replace(equal, scale_gap=math.exp(log_ratio))
            calibrated = unequal.calibrated(target, panel, tolerance=1e-3, orders=COARSE_ORDERS)
            return math.inf if calibrated is None else gap_for_answer(calibrated.mechanism(panel), probability=answered)

        # the gap is flat around its minimum: the ratio of the scales to within a twentieth loses nothing noticeable
        centre = min(np.arange(-2.0, 2.01, 0.25).tolist(), key=gap)
        best = min((centre + np.arange(-0.2, 0.21, 0.05)).tolist(), key=gap)
        return replace(equal, scale_gap=math.exp(best)).calibrated(target, panel)

    @classmethod
    def proposals(cls, outlook: Outlook) -> tuple[Self, ...]:
        """Return two with equal scales, of Gumbel and of Gaussian noise, whose tests may take half of delta."""
        gumbel = cls.blank(delta_test=outlook.delta_test)
        return (gumbel, replace(gumbel, noise_law="gaussian"))

    @classmethod
    def variants(cls, outlook: Outlook) -> Mapping[str, Sequence[Any]]:
        """Return the laws of both noises, which sets may be given, and a ``kbar``.

        That is twice the number of labels that a sample has, if it is known.
        """
        k, most = outlook.labels_per_sample, outlook.panel.num_labels - 1
        return {
            "noise_law": get_args(GapNoise),
            "test_law": get_args(TestedBy),
            "allow_empty": _both(outlook),
            "kbar": () if k is None or most < 1 else (min(2 * k, most),),
        }


@dataclass(frozen=True, kw_only=True)
class FixedStableTopK(MechanismAggregator[FixedTopKMechanism]):
    """Release a set of exactly k labels, most of them by a stable gap near k and the rest by peeling.

    Choose it if k is public and the teachers nearly agree on the k labels. If they do not, `Canonical` has no test that
    could fail.

    Privacy: the choice of a gap and the test of `StableTopK`, then one bounded-range choice (counts that move within a
    window of 1 vote under ADD_REMOVE_TEACHER, 2 under REPLACE_RECORD) for every label that is peeled, k at most: a
    query costs the rounds that it took (Zhu & Wang (2022), Algorithm 3). With ``fallback`` a query that fails the test
    is answered by k rounds of peeling (line 5 there): every query is answered.

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
        peel_by_root: whether r rounds of peeling have noise of ``scale_peel_fixed sqrt(r / k)``: they cost about what k
            rounds do.

    Raises:
        ValueError: on noise that is not positive, ``delta_test_fixed`` outside (0, 1), ``k < 1`` or ``pull < 0``.
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

    @property
    def marks(self) -> tuple[str, ...]:
        """The number of labels of a set, and what happens if the test fails or rounds are few."""
        return (f"k={self.k}", "fallback" * self.fallback, "by root" * self.peel_by_root)

    def event(self, panel: Panel, relation: NeighboringRelation | None = None, tier: int | None = None) -> Event:
        """Describe the cost of one query for which ``tier`` labels are peeled, k if None."""
        return self.mechanism(panel).event(self.relation_of(relation), tier)

    def aggregate(self, votes: Votes, *, generator: np.random.Generator) -> Release:
        """Label a batch of queries; a query is answered for all its labels or for none."""
        members, passed, rounds = self.mechanism(votes.panel)(votes.counts, generator=generator)
        return Release.of_rows(members, passed | self.fallback, rounds)

    def most_answered(self, panel: Panel) -> float:
        """Return the probability that the widest gap of all passes its test, or 1 with a fallback."""
        return 1.0 if self.fallback else float(self.mechanism(panel).test.probability(panel.num_teachers))

    @classmethod
    def proposals(cls, outlook: Outlook) -> tuple[Self, ...]:
        """Return two for sets of as many labels as a sample has, without a fallback and with one.

        Their tests may take half of delta.
        """
        pull = outlook.panel.num_teachers / 20
        without = cls.blank(k=outlook.k, pull=pull, delta_test_fixed=outlook.delta_test)
        return (without, replace(without, fallback=True))

    @classmethod
    def variants(cls, outlook: Outlook) -> Mapping[str, Sequence[Any]]:
        """Return which sets may be tested, with a fallback and without, and both ways to share noise among rounds."""
        return {"allow_empty": _both(outlook), "fallback": (False, True), "peel_by_root": (False, True)}


def _both(outlook: Outlook) -> tuple[bool, ...]:
    """Return whether the empty and the full set may be allowed: of one label there are no others."""
    return (True, False) if outlook.panel.num_labels > 1 else (True,)
