"""Aggregators of one mechanism, which has their settings, answers, cost and law, bound to votes.

First sets and lists of labels for a public k, then labels that are released exactly if they are
stable: variants of Zhu & Wang (2022).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import (
    Any,
    ClassVar,
    Generic,
    Self,
    TypeVar,
    cast,
    get_args,
)

import numpy as np

from pate._core.accounting.accountant import COARSE_ORDERS, Target
from pate._core.accounting.cost import NeighboringRelation
from pate._core.accounting.events import Event
from pate._core.mechanisms.base import FACTS, Law, Mechanism
from pate._core.mechanisms.canonical import CanonicalLoss, CanonicalMechanism
from pate._core.mechanisms.joint import JointMechanism
from pate._core.mechanisms.limited_domain import LimitedDomain, TopStable
from pate._core.mechanisms.noise import ChoiceNoise, Noise
from pate._core.mechanisms.peeling import GapNoise, NoisyTopK, PermuteAndFlipPeeling
from pate._core.mechanisms.stable_top_k import (
    FixedTopKMechanism,
    StableTopKMechanism,
)
from pate._core.validation import require, require_in_open_unit_interval
from pate._labeling.aggregators.base import Aggregator, Outlook, Release
from pate._labeling.votes.kinds import Counts, VoteShape

Bound = TypeVar("Bound", bound=Mechanism[Any])


@dataclass(frozen=True, kw_only=True)
class MechanismAggregator(Aggregator, Generic[Bound]):
    """The aggregator of the mechanism in brackets.

    It is a frozen dataclass, declared as ``class Mine(MechanismAggregator[MyMechanism],
    tag="mine")``. Its fields are the mechanism's, but for the facts that votes tell
    (`pate.mechanisms.FACTS`), and are checked there. ``noise`` is called ``noise_law``, and
    names of noise and of failure probabilities end with the ``tag``, so that none is carried over
    silently when the class in a configuration changes.

    Raises:
        ValueError: on fields that the mechanism refuses, or a subclass that lacks some.
    """

    kind: ClassVar[Any] = Mechanism
    """The class of the mechanism, taken from the brackets."""
    names: ClassVar[Mapping[str, str]] = {}
    """Names of the fields, and how the mechanism calls them."""

    def __init_subclass__(cls, *, tag: str = "", **options: Any) -> None:
        bases = vars(cls).get("__orig_bases__", ())
        kinds = [part for base in bases for part in get_args(base) if isinstance(part, type)]
        if kinds:
            (cls.kind,) = kinds
            settings = [field.name for field in fields(cls.kind) if field.name not in FACTS]
            public = {field: _public_name(field, cls.kind, tag) for field in settings}
            cls.names = {name: field for field, name in public.items()}
            cls.noise_parameters = tuple(public[name] for name in cls.kind.noise_parameters)
        super().__init_subclass__(**options)

    def __post_init__(self) -> None:
        missing = self.names.keys() - {field.name for field in fields(self)}
        require(not missing, f"fields of the dataclass {type(self).__name__}", missing=missing)
        super().__post_init__()
        for name, field in self.names.items():
            if field in self.kind.checks:
                self.kind.checks[field](**{name: getattr(self, name)})
        if not {"num_teachers", "num_labels", "num_items"} & {
            field.name for field in fields(self.kind)
        }:
            self._bound()

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        public = {field: name for name, field in cls.names.items()}
        return [
            {public[field]: value for field, value in settings.items()}
            for settings in cls.kind.defaults(outlook)
        ]

    def mechanism(self, shape: VoteShape) -> Bound:
        """Return the mechanism for a shape. Raises ``ValueError`` if it cannot serve it."""
        mechanism = self._bound(
            num_teachers=shape.num_teachers,
            num_labels=shape.num_labels,
            num_items=shape.num_labels,
        )
        mechanism.require_items(shape.num_labels)
        return mechanism

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of one query of a price tier, or the most that one may cost."""
        mechanism, stated = self.mechanism(shape), self.relation_of(relation)
        return mechanism.event(stated) if tier is None else mechanism.tier_event(stated, tier)

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        return self.mechanism(votes.shape).answer(votes.counts, generator=generator)

    def law(self, votes: Counts) -> Law:
        return self.mechanism(votes.shape).law(votes.counts.astype(np.int64))

    def max_answer_probability(self, shape: VoteShape) -> float:
        return self.mechanism(shape).max_answer_probability(shape.num_teachers)

    def _bound(self, **facts: Any) -> Bound:
        relation = self.neighboring_relation
        facts |= {"relation": relation, "shift": relation.score_range}
        settings = {field: getattr(self, name) for name, field in self.names.items()}
        return cast(Bound, self.kind.of(facts, **settings))


# abstract, as long as no brackets name a mechanism
MechanismAggregator.__abstractmethods__ = frozenset({"kind"})


def _public_name(field: str, kind: type[Mechanism[Any]], tag: str) -> str:
    """Return the name of a mechanism's field in an aggregator."""
    if field == "noise":
        return "noise_law"
    tagged = field in kind.noise_parameters or field.startswith("delta")
    return f"{field}_{tag}" if tag and tagged else field


@dataclass(frozen=True, kw_only=True)
class Canonical(MechanismAggregator[CanonicalMechanism], tag="canonical"):
    """Release one set of k labels, chosen among all of them at the cost of a single choice.

    Choose it if every sample has k labels and there are at most 25 in all, or k is most of them:
    the cost of a query grows neither with k nor with the number of labels, but the gap that it
    needs grows with the logarithm of the number of sets.

    Privacy: one ``eta``-bounded-range choice, ``eta = window / scale_canonical`` with a window of 1
    vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD, for both losses of
    `pate.mechanisms.CanonicalMechanism`: ours, which credits the k most voted labels with their
    lead over the next one, and the loss of Shekelyan & Loukides (2022).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = Canonical(k=2, scale_canonical=2.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [1, 0, 1, 0]], dtype=uint8)

    Args:
        k: number of labels of every sample, below the number of labels.
        noise_law: the law of the noise; ``exponential`` makes a pure choice of ``eta``
            (permute-and-flip among all sets).
        scale_canonical: scale of the noise, in votes.
        neighboring_relation: the relation of the cost that is stated first.
        gamma: weight of the least voted label in the set against the most voted one outside it, in
            [0, 1].
        loss: ``lead`` (ours) or ``published``, with which the k most voted labels are less likely
            at the same cost.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1``, ``gamma`` outside [0, 1] or an
            unknown loss.
    """

    k: int
    scale_canonical: float
    gamma: float = 0.5
    noise_law: ChoiceNoise = "gumbel"
    loss: CanonicalLoss = "lead"


@dataclass(frozen=True, kw_only=True)
class Peeling(MechanismAggregator[NoisyTopK], tag="peel"):
    """Release the k labels of the largest noisy counts.

    Choose it for a few of many labels: it costs k choices, so that the noise grows with the root of
    k, but the gap that it needs grows only with the logarithm of the number of labels. With 40
    labels `Canonical` needs a smaller gap for k of 18 and more, with 80 labels from 53 on, and up
    to 25 labels for any k.

    Privacy: k ``eta``-bounded-range choices, ``eta = window / scale_peel`` with a window of 1 vote
    under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD (Durfee & Rogers (2019), Lemma 4.2). Any
    other noise is drawn once, and the set costs pure ``k eta`` (Shekelyan & Loukides (2022)).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = Peeling(k=2, scale_peel=2.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [0, 0, 1, 1]], dtype=uint8)

    Args:
        k: number of labels of every sample.
        noise_law: ``gumbel``, ``exponential``, ``laplace``, ``logistic`` or ``half_logistic``.
        scale_peel: scale of the noise, in votes.
        neighboring_relation: the relation of the cost that is stated first.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1`` or an unknown noise.
    """

    k: int
    scale_peel: float
    noise_law: Noise = "gumbel"


@dataclass(frozen=True, kw_only=True)
class Joint(MechanismAggregator[JointMechanism], tag="joint"):
    """Release a set of k labels by one choice among all sequences of k labels.

    Choose it to compare with the paper: `Canonical` makes a single choice too, on scores that move
    half as far.

    Privacy: one ``eta``-bounded-range choice, ``eta = window / scale_joint`` with a window of 2
    votes under ADD_REMOVE_TEACHER and 4 under REPLACE_RECORD, half of that for k = 1 (Gillenwater
    et al. (2022)).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = Joint(k=2, scale_joint=2.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [1, 0, 1, 0]], dtype=uint8)

    Args:
        k: number of labels of every sample.
        noise_law: the law of the noise; ``exponential`` makes a pure choice of ``eta``
            (permute-and-flip among all sequences).
        scale_joint: scale of the noise, in votes.
        neighboring_relation: the relation of the cost that is stated first.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1`` or an unknown noise.
    """

    k: int
    scale_joint: float
    noise_law: ChoiceNoise = "gumbel"


@dataclass(frozen=True, kw_only=True)
class PermuteAndFlip(MechanismAggregator[PermuteAndFlipPeeling], tag="flip"):
    """Release a set of k labels, one after another by permute-and-flip.

    Choose it for a few queries at a single pure epsilon: at the same pure epsilon it
    errs less often than `Peeling`. For many queries a bounded range composes better.

    Privacy: k pure choices of ``window / scale_flip``, with a window of 1 vote under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD (McKenna & Sheldon (2020)).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = PermuteAndFlip(k=2, scale_flip=2.0)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [1, 0, 1, 0]], dtype=uint8)

    Args:
        k: number of labels of every sample.
        scale_flip: scale of the exponential noise, in votes.
        neighboring_relation: the relation of the cost that is stated first.

    Raises:
        ValueError: on a scale that is not positive or ``k < 1``.
    """

    k: int
    scale_flip: float


@dataclass(frozen=True, kw_only=True)
class LimitedDomainTopK(MechanismAggregator[LimitedDomain], tag="domain"):
    """Release at most k of the kbar most voted labels, by peeling that ends at a noisy threshold.

    Choose it if the labels themselves are not public, such as words or places: labels of rank
    beyond ``kbar + 1`` have no influence. A list that ends early answers a query for its own labels
    only.

    Privacy: k ``eta``-bounded-range choices, ``eta = window / scale_domain`` with a window of 1
    vote under ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD, except with probability
    ``delta_domain`` (Durfee & Rogers (2019), Algorithm 1).

    >>> votes = Votes.from_counts([[95, 90, 5, 0], [50, 40, 60, 45]], num_teachers=100)
    >>> aggregator = LimitedDomainTopK(k=2, kbar=3, scale_domain=1.0, delta_domain=1e-6)
    >>> aggregator.aggregate(votes, generator=seeded_generator(0)).labels
    array([[1, 1, 0, 0],
           [0, 0, 1, 0]], dtype=uint8)

    Args:
        k: largest number of labels of a sample.
        kbar: number of labels to choose from, from k to one below the number of labels.
        scale_domain: scale of the Gumbel noise, in votes.
        delta_domain: probability that a label is listed that a neighbor could not list, paid by
            every query.
        neighboring_relation: the relation that the threshold is set for.

    Raises:
        ValueError: on a scale that is not positive, ``k < 1``, ``k > kbar`` or ``delta_domain``
            outside (0, 1).
    """

    k: int
    kbar: int
    delta_domain: float
    scale_domain: float


@dataclass(frozen=True, kw_only=True)
class TopStableTopK(MechanismAggregator[TopStable], tag="stable"):
    """Release the labels above the first gap that passes a noisy threshold, at most k of them.

    Choose it to compare with the papers: `FixedStableTopK` finds a gap at less cost.

    Privacy: the sparse vector technique on gaps that move by 1 vote under ADD_REMOVE_TEACHER and 2
    under REPLACE_RECORD, k bounded-range choices of counts with the same window where labels are
    peeled, and the probability ``delta_stable``: a query costs the rounds that it took (Carvalho et
    al. (2020); `pate.mechanisms.TopStable`).

    Args:
        k: largest number of labels of a sample.
        kbar: last rank of a gap that is tried, from k to one below the number of labels.
        scale_threshold_stable: scale of the Laplace noise of the threshold, in votes.
        scale_gap_stable: scale of the Laplace noise of the gaps, in votes.
        scale_peel_stable: scale of the Gumbel noise of the peeling, in votes.
        delta_stable: probability that an unstable set is released, paid by every query, below
            ``kbar / 2``.
        neighboring_relation: the relation that the threshold is set for.
        fallback: whether queries without a passing gap are answered by peeling k labels from all,
            which then have to be public.

    Raises:
        ValueError: on noise that is not positive, ``k < 1``, ``k > kbar``, or ``delta_stable`` out
            of its range.
    """

    k: int
    kbar: int
    delta_stable: float
    scale_threshold_stable: float
    scale_gap_stable: float
    scale_peel_stable: float
    fallback: bool = False


@dataclass(frozen=True, kw_only=True)
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
    REPLACE_RECORD. For other noise of the choice see
    `pate.mechanisms.GapChoice`. With Gaussian noise in the choice, as in the
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
        sigma_test: standard deviation of the noise of the stability test, in votes.
        delta_test: probability that an unstable set passes the test, paid by every query.
        neighboring_relation: the relation that the test protects.
        allow_empty: whether no label, and all labels, are possible answers, by majority. The paper
            leaves them out.
        noise_law: noise on the gaps, any noise of `pate.mechanisms.GapChoice`.
        regularizer: public numbers, one more than labels, added to the gaps below 0, 1, .. labels;
            minus infinity rules a k out.
        kbar: largest number of labels given, if the labels themselves are not public: labels of
            rank beyond ``kbar + 1`` have no influence.

    Raises:
        ValueError: on a scale or deviation that is not positive, ``delta_test`` outside (0, 1), an
            unknown noise, a regularizer that is NaN or plus infinity, or ``kbar < 1``.
    """

    scale_gap: float
    sigma_test: float
    delta_test: float
    allow_empty: bool = True
    noise_law: GapNoise = "gumbel"
    regularizer: tuple[float, ...] | None = None
    kbar: int | None = None

    splits_noise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.regularizer is not None:
            object.__setattr__(self, "regularizer", tuple(map(float, self.regularizer)))

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
            answered: the probability of an answer at the predicted gap.

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

        near = [1.0]

        @cache
        def gap(log_ratio: float) -> float:
            # fewer orders err on the private side, which is enough to compare splits
            calibrated: Self | None = (
                split(log_ratio)
                .scaled(near[-1])
                .calibrated(target, shape, tolerance=1e-4, orders=COARSE_ORDERS)
            )
            if calibrated is None:
                return math.inf
            near.append(calibrated.sigma_test)  # splits alike need noise alike
            return float(calibrated.mechanism(shape).gap_to_answer(answered))

        # the gap is flat around its minimum: the ratio of the scales to within a twentieth loses
        # nothing noticeable
        center = _lowest(np.arange(-2.0, 2.01, 0.25).tolist(), gap)
        best = _lowest((center + np.arange(-0.2, 0.21, 0.05)).tolist(), gap)
        return split(best).calibrated(target, shape)

    def teachers_to_answer(self, probability: float, num_labels: int) -> float | None:
        if self.noise_law != "gumbel" or self.regularizer is not None:
            return None
        # the gap does not depend on the number of teachers
        return self.mechanism(VoteShape(2, num_labels)).gap_to_answer(probability)


@dataclass(frozen=True, kw_only=True)
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

    scale_gap_fixed: float
    sigma_test_fixed: float
    delta_test_fixed: float
    allow_empty: bool = True
    noise_law: GapNoise = "gumbel"
    k: int
    rank_penalty: float
    scale_peel_fixed: float
    fallback: bool = False
    scale_noise_with_rounds: bool = False


def _lowest(points: Sequence[float], value: Callable[[float], float]) -> float:
    """Return the first least point of ``value``, which falls and then rises."""
    steps = range(len(points) - 1)
    return points[bisect_left(steps, True, key=lambda i: value(points[i]) <= value(points[i + 1]))]
