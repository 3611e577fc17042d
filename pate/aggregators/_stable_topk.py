"""Labels that are released exactly if they are stable: variants of Zhu & Wang (2022)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np

from pate._validation import require, require_in_open_unit_interval
from pate._votes import VoteShape
from pate.accounting._accountant import COARSE_ORDERS, Target
from pate.aggregators._of_mechanism import MechanismAggregator
from pate.aggregators._outlook import Outlook
from pate.mechanisms import FixedTopKMechanism, MajorityMechanism, StableTopKMechanism


class StableTopK(MechanismAggregator[StableTopKMechanism]):
    """Release the k most voted labels exactly, if the gap below them is stable; k is chosen by it.

    Choose it if samples have many labels and the teachers agree: the cost of a query does not grow
    with the number of labels. A query whose gap is narrow is not answered, unless most teachers
    give none or all of the labels.

    Privacy: an ``eta``-bounded-range choice (Gumbel noise on gaps that move within a window of 2
    votes under ADD_REMOVE_TEACHER, 4 under REPLACE_RECORD; ``eta = window / scale_gap``) composed
    with a Gaussian propose-test-release of ``delta_test`` (Zhu & Wang (2022), Algorithm 2, at the
    exact cost of its released bit). Majorities for none and for all move as gaps do; made for
    REPLACE_RECORD, they move by 2 under both relations, so the cost under both is the cost under
    REPLACE_RECORD. For other noise see `pate.mechanisms.GapChoice` and
    `pate.mechanisms.LaplaceStabilityTest`. With Gaussian noise in the choice, as in the
    experiments of the paper, it costs far more than with Gumbel noise of the same standard
    deviation: the proven cost is a `GaussianNoisyMaxEvent` of C + 1 gaps (C - 1 without the empty
    and the full set). We know no theorem for the smaller cost in their Table 2.

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = StableTopK(scale_gap=2.0, sigma_test=2.0, delta_test=1e-6)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).mask
    array([[ True,  True,  True,  True],
           [False, False, False, False]])

    Args:
        scale_gap: scale of the noise on the gaps, in votes.
        sigma_test: standard deviation of the noise of the stability test, or its scale if it is
            ``laplace``, in votes.
        delta_test: probability that an unstable set passes the test, paid by every query.
        neighboring_relation: the relation that the test protects.
        allow_empty: whether no label, and all labels, are possible answers, by majority; the paper
            leaves them out.
        noise_law: noise on the gaps, any noise of `pate.mechanisms.GapChoice`.
        test_law: noise of the test, ``gaussian`` or ``laplace``.
        regularizer: public numbers, one more than labels, added to the gaps below 0, 1, .. labels;
            minus infinity rules a k out.
        kbar: largest number of labels given, if the labels themselves are not public: labels of
            rank beyond ``kbar + 1`` have no influence.

    Raises:
        ValueError: on a scale or deviation that is not positive, ``delta_test`` outside (0, 1), an
            unknown noise, a regularizer that is NaN or plus infinity, or ``kbar < 1``.
    """

    splits_noise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.regularizer is not None:
            regularizer = tuple(float(value) for value in self.regularizer)
            object.__setattr__(self, "regularizer", regularizer)

    @classmethod
    def variants(cls, outlook: Outlook) -> Mapping[str, Sequence[Any]]:
        most = outlook.num_items - 1
        ranks = (
            {}
            if outlook.labels_per_sample is None or not most
            else {"kbar": (min(2 * outlook.k, most),)}
        )
        return _sizes_of(super().variants(outlook), outlook) | ranks

    @classmethod
    def for_target(
        cls,
        target: Target,
        shape: VoteShape,
        *,
        delta_test: float | None = None,
        answered: float = 0.9,
    ) -> Self | None:
        """Return the instance that meets a target, its noise split to answer the narrowest gaps.

        Args:
            target: the largest cost of all queries together.
            shape: the numbers of teachers and labels.
            delta_test: the delta of each test. None for half of the target's delta over all
                queries.
            answered: the probability with which a query of the predicted gap is answered.

        Raises:
            ValueError: if the tests take all of the target's delta.
        """
        test_delta = target.delta / (2 * target.num_queries) if delta_test is None else delta_test
        require_in_open_unit_interval(delta_test=test_delta, answered=answered)
        largest = target.delta / target.num_queries
        spent = -math.expm1(target.num_queries * math.log1p(-test_delta))
        require(
            spent < target.delta,
            f"delta_test < {largest:.3g}, so that all tests stay below delta",
            delta_test=test_delta,
        )

        def split(log_ratio: float) -> Any:
            return cls(
                scale_gap=math.exp(log_ratio),
                sigma_test=1.0,
                delta_test=test_delta,
                neighboring_relation=target.neighboring_relation,
            )

        @cache
        def gap(log_ratio: float) -> float:
            # fewer orders err on the private side, which is enough to compare splits
            calibrated: Self | None = split(log_ratio).calibrated(
                target, shape, tolerance=1e-3, orders=COARSE_ORDERS
            )
            if calibrated is None:
                return math.inf
            return float(calibrated.mechanism(shape).gap_to_answer(probability=answered))

        # the gap is flat around its minimum: the ratio of the scales to within a twentieth loses
        # nothing noticeable
        center = _lowest(np.arange(-2.0, 2.01, 0.25).tolist(), gap)
        best = _lowest((center + np.arange(-0.2, 0.21, 0.05)).tolist(), gap)
        return split(best).calibrated(target, shape)


class FixedStableTopK(MechanismAggregator[FixedTopKMechanism], tag="fixed"):
    """Release a set of k labels, most of them by a stable gap near k and the rest by peeling.

    Choose it if k is public and the teachers nearly agree on the k labels. If they do not,
    `Canonical` has no test that could fail.

    Privacy: the choice of a gap and the test of `StableTopK`, then one bounded-range choice (counts
    that move within a window of 1 vote under ADD_REMOVE_TEACHER, 2 under REPLACE_RECORD) for every
    label that is peeled, k at most: a query costs the rounds that it took (Zhu & Wang (2022),
    Algorithm 3). With ``fallback`` a query that fails the test is answered by k rounds of peeling
    (line 5 there): every query is answered.

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = FixedStableTopK(
    ...     k=2,
    ...     rank_penalty=2.0,
    ...     scale_gap_fixed=2.0,
    ...     sigma_test_fixed=2.0,
    ...     delta_test_fixed=1e-6,
    ...     scale_peel_fixed=2.0,
    ... )
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [1, 0, 1, 0]], dtype=uint8)

    Args:
        k: number of labels of every sample.
        rank_penalty: public preference for gaps near k, in votes per label, at least 0.
        scale_gap_fixed: scale of the Gumbel noise on the gaps, in votes.
        sigma_test_fixed: standard deviation of the noise of the stability test, in votes.
        delta_test_fixed: probability that an unstable set passes the test, paid by every query.
        scale_peel_fixed: scale of the Gumbel noise of the peeling, in votes.
        neighboring_relation: the relation that the test protects.
        allow_empty: whether the gap may lie above all labels or below all of them.
        fallback: whether queries that fail the test are answered by peeling k labels from all.
        scale_noise_with_rounds: whether r rounds of peeling have noise of
            ``scale_peel_fixed sqrt(r / k)``, so that they cost about as much as k rounds.

    Raises:
        ValueError: on noise that is not positive, ``delta_test_fixed`` outside (0, 1), ``k < 1`` or
            ``rank_penalty < 0``.
    """

    @classmethod
    def variants(cls, outlook: Outlook) -> Mapping[str, Sequence[Any]]:
        return _sizes_of(super().variants(outlook), outlook)


class StableMajority(MechanismAggregator[MajorityMechanism], tag="majority"):
    """Release the majority of every label if the least certain of them is far from a tie.

    Choose it if teachers agree on all labels of a sample: a query costs a single test, however many
    labels there are, about half of `StableTopK`. If one label is in doubt, the query is not
    answered.

    Privacy: a Gaussian propose-test-release (the test of Zhu & Wang (2022), Algorithm 2) on the
    least of the distances ``abs(h_j - T / 2)``, which moves by 1 vote under REPLACE_RECORD and
    ADD_REMOVE_TEACHER alike. A majority may turn only within that distance. The test works on
    distances in votes, multiples of 1/2 up to ``T / 2``.

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = StableMajority(sigma_majority=2.0, delta_majority=1e-6)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).mask
    array([[ True,  True,  True,  True],
           [False, False, False, False]])

    Args:
        sigma_majority: standard deviation of the noise of the test, in votes.
        delta_majority: probability that an unstable majority passes the test, paid by every query.
        neighboring_relation: the relation under which the cost is stated first.

    Raises:
        ValueError: on a deviation that is not positive, or ``delta_majority`` outside (0, 1).
    """


def _lowest(points: Sequence[float], value: Callable[[float], float]) -> float:
    """Return the first point at which ``value``, which falls and then rises, is least."""
    steps = range(len(points) - 1)
    return points[bisect_left(steps, True, key=lambda i: value(points[i]) <= value(points[i + 1]))]


def _sizes_of(values: Mapping[str, Sequence[Any]], outlook: Outlook) -> dict[str, Sequence[Any]]:
    """Return values of settings, without ``allow_empty`` if there is but one label."""
    others = {"allow_empty"} if outlook.num_items == 1 else set()
    return {name: values[name] for name in values if name not in others}
