"""Lists of at most k of the kbar largest items, which need not be known to the public.

`LimitedDomain` peels until a noisy threshold comes first (Durfee & Rogers (2019)). `TopStable`
finds a stable gap by the sparse vector technique (Carvalho et al. (2020)).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from pate._core.accounting.cost import NeighboringRelation, smallest_where
from pate._core.accounting.events import ComposedEvent, Event, FailureEvent, PureDPEvent
from pate._core.mechanisms.base import (
    Case,
    Checks,
    Release,
    ScoreMechanism,
    choice_event,
)
from pate._core.mechanisms.exact_choice import (
    REACH,
    Ranked,
    as_batch,
    blocks_of,
    distances,
    in_blocks,
    rank,
    require_within,
    sample_k_smallest,
)
from pate._core.validation import (
    BoolArray,
    IntArray,
    Rows,
    require,
    require_count,
    require_flag,
    require_in_open_unit_interval,
)


class TopItems(NamedTuple):
    """At most k items."""

    items: IntArray
    """``[k]`` or ``[B, k]``: indices of the listed items, then -1."""
    mask: BoolArray
    """Same shape: which places hold an item."""

    @classmethod
    def of(cls, items: IntArray) -> Self:
        """Return the list of ``items``, -1 where a place holds none."""
        return cls(items, items >= 0)


@dataclass(frozen=True, kw_only=True)
class DomainMechanism(ScoreMechanism[TopItems]):
    """List at most k of the kbar largest items, with a threshold that is set for one relation.

    The cost is known under both: a threshold for a narrower window fails more often, one for a
    wider window less often.

    Args:
        k: largest length of the list, 1..kbar.
        kbar: size of the domain, 1..d-1.
        delta: probability that something is listed that a neighbor could not list, in (0, 1).
        relation: the relation that the threshold is set for.

    Raises:
        ValueError: on noise or a ``sensitivity`` that is not positive, ``k`` or ``kbar`` below 1,
            ``k > kbar``, ``delta`` outside (0, 1) or an unknown relation.
    """

    checks: ClassVar[Checks] = {
        "delta": require_in_open_unit_interval,
        "kbar": partial(require_count, 1),
        "k": partial(require_count, 1),
    }

    k: int
    kbar: int
    delta: float
    relation: NeighboringRelation

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "relation", NeighboringRelation(self.relation))
        require_within(self.kbar, k=self.k)

    @classmethod
    def defaults(cls, case: Case) -> Sequence[Mapping[str, Any]]:
        most = case.num_items - 1
        settings = {"k": case.k, "kbar": min(2 * case.k, most), "delta": case.delta_test}
        return [settings] if case.k <= most else []

    def __call__(self, scores: ArrayLike, *, generator: np.random.Generator) -> TopItems:
        """Choose from ``scores`` ``[d]`` or ``[B, d]``.

        Raises:
            ValueError: on scores that are not finite numbers, or not more than kbar.
        """
        rows, single = self._rows(scores)
        items = in_blocks(rows, lambda part: self._items(rank(part), generator))
        return TopItems.of(items[0] if single else items)

    def event(self, relation: NeighboringRelation) -> Event:
        """Describe the cost of one row, under the threshold's relation or the other."""
        return ComposedEvent(events=(*self._parts(relation), self._failure_event(relation)))

    def failure(self, relation: NeighboringRelation) -> float:
        """Return the probability to list something that a neighbor could not list."""
        if relation is self.relation:
            return self.delta
        wider = self.window(relation) - self.window(self.relation)
        return min(max(self._failure(wider), math.ulp(0.0)), math.nextafter(1, 0))

    def answer(self, counts: ArrayLike, *, generator: np.random.Generator) -> Release:
        """Release lists as labels: full lists answer all labels, shorter ones their own."""
        return self._answered(self(counts, generator=generator), np.shape(counts)[1])

    def _answered(self, top: TopItems, num_labels: int, tiers: IntArray | None = None) -> Release:
        labels = np.zeros((len(top.items), num_labels + 1), dtype=np.uint8)
        # places without an item name one label beyond the last
        np.put_along_axis(labels, np.where(top.mask, top.items, num_labels), 1, axis=1)
        labels = labels[:, :num_labels]
        full = np.asarray(top.mask.all(axis=1, keepdims=True))
        return Release(labels, (labels > 0) | full, tiers=tiers)

    def _failure_event(self, relation: NeighboringRelation) -> Event:
        """Describe the failure, at most ``exp(v / scale)`` times as likely in a window wider by v.

        The tails of Gumbel and Laplace noise, and of sums of the latter, are bounded so by their
        largest scale.
        """
        return FailureEvent(
            neighboring_relation=relation,
            delta=self.failure(relation),
            tail="exponential",
            step=self.window(relation) / self._threshold_scale,
        )

    def require_items(self, num_items: int) -> None:
        require_count(1, num_items=num_items)
        require_within(num_items, spare=1, kbar=self.kbar)

    def _rows(self, scores: ArrayLike) -> tuple[Rows, bool]:
        rows, single = as_batch(scores)
        self.require_items(rows.shape[1])
        return rows, single

    @property
    @abstractmethod
    def _threshold_scale(self) -> float:
        """The largest scale of the noise that decides whether a threshold is exceeded."""

    @abstractmethod
    def _items(self, ranked: Ranked, generator: np.random.Generator) -> IntArray:
        """Choose from ranked scores ``[n, d]``; return indices ``[n, k]``, -1 in empty places."""

    @abstractmethod
    def _parts(self, relation: NeighboringRelation) -> tuple[Event, ...]:
        """Describe the cost of one row apart from the probability of failure."""

    @abstractmethod
    def _failure(self, wider: float) -> float:
        """Return the probability of failure for a window ``wider`` by that, of either sign."""


@dataclass(frozen=True, kw_only=True)
class LimitedDomain(DomainMechanism):
    """Peel at most k of the kbar largest items, until a noisy threshold comes first.

    Only the ``kbar + 1`` largest scores have any influence.

    The threshold has the score ``h_(kbar+1) + w + scale log(kbar / delta)``, ``w`` the window: the
    sensitivity under ADD_REMOVE_TEACHER, and twice that under REPLACE_RECORD. The paper has counts
    and ``w = 1``. The proof holds for real scores and any w. Items are listed in the order of
    choice.

    Privacy: k bounded-range choices of ``w / scale``, except with probability ``delta``. Sorted
    scores move within the window of the scores. So an item that a neighbor has not in its domain
    scores at most ``h_(kbar+1) + w``, and comes before the threshold with probability ``delta /
    kbar`` at most; ties may be broken in any way. Items that enter the domain of a neighbor can be
    paired with those that leave it so that each pair moves within the window, as the threshold
    does, and the choices among the paired are k bounded ranges apart. If every such item is counted
    as the end of the list, that is still so, and a list is at most ``1 + delta`` times as likely as
    before. Under the other relation, with a window wider by v (of either sign), the threshold is
    set for ``delta exp(v / scale)``.

    The items that exist need not be public: a call on their positive counts, with ``kbar + 1``
    zeros behind them that are left out of the list, is one on all items that there could be
    (docs/appendix/proofs.md, "Items that are not public").

    >>> mechanism = LimitedDomain(
    ...     k=2, kbar=3, delta=1e-6, relation=NeighboringRelation.REPLACE_RECORD, scale=1.0
    ... )
    >>> mechanism(np.array([90, 80, 10, 0]), generator=seeded_generator(0)).items
    array([0, 1])

    Args:
        k: largest length of the list, 1..kbar.
        kbar: size of the domain, 1..d-1.
        delta: probability that an item is listed that a neighbor could not list.
        relation: decides the threshold.
        scale: scale of the Gumbel noise, in the unit of the scores (votes).
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float

    def _items(self, ranked: Ranked, generator: np.random.Generator) -> IntArray:
        order, scores = ranked
        below = distances(
            scores[:, : self.kbar + 1], scores[:, self.k - 1 : self.k], reach=REACH * self.scale
        )
        lift = self.window(self.relation) + self.scale * math.log(self.kbar / self.delta)
        below[:, self.kbar] -= lift  # the threshold

        def exact(row: int, place: int) -> Fraction:
            return -Fraction(scores[row, place].item()) - (
                Fraction(lift) if place == self.kbar else 0
            )

        ranks = sample_k_smallest(
            below, self.k, noise="gumbel", scale=self.scale, generator=generator, exact=exact
        )
        before = np.logical_and.accumulate(ranks != self.kbar, axis=1)
        return np.where(before, np.take_along_axis(order, ranks, axis=1), -1)

    def _parts(self, relation: NeighboringRelation) -> tuple[Event, ...]:
        return (
            choice_event(
                relation, eta=self.window(relation) / self.scale, noise="gumbel", count=self.k
            ),
        )

    def max_answer_probability(self, widest: float) -> float:
        """Return the probability to list an item if kbar items lead all others by ``widest``."""
        ahead = (widest - self.window(self.relation)) / self.scale
        return float(expit(ahead + math.log(self.delta)))

    def _failure(self, wider: float) -> float:
        return math.exp(min(math.log(self.delta) + wider / self.scale, 0.0))

    @property
    def _threshold_scale(self) -> float:
        return self.scale


class TopStableOutcome(NamedTuple):
    """A release of `TopStable`, and the branch that led to it."""

    listed: TopItems
    """The set, in ascending order."""
    passed: BoolArray
    """``[]`` or ``[B]``: whether a gap passed the threshold, and so which branch was taken."""
    rounds: IntArray
    """``[]`` or ``[B]``: number of rounds of peeling: k where the set was cut down, or a fallback
    took its place, and 0 elsewhere. It is a function of the first gap that passed, so that the
    sparse vector technique pays.
    """


@dataclass(frozen=True, kw_only=True)
class TopStable(DomainMechanism):
    """Release the set above the first gap that passes a noisy threshold, cut down to k by peeling.

    The gaps below ranks ``k, k + 1, .., kbar, k - 1, .., 1`` are tried in turn. With ``w`` the
    window of the scores (the sensitivity, or twice that under REPLACE_RECORD), gap q passes if
    ``max(q - w, 0) + Laplace(scale_gap) > t + Laplace(scale_threshold)``, the second noise drawn
    once, and t such that an unstable gap passes with probability ``delta / kbar``. The set is
    listed in ascending order. If no gap passes, nothing is listed, or with ``fallback`` the k items
    that k rounds of peeling choose among all: then all items must be public, whereas without it
    only the ``kbar + 1`` largest scores have any influence.

    Privacy: the sparse vector technique, k rounds of Gumbel peeling (bounded range of ``w /
    scale_peel`` each), and the probability ``delta``. Sorted scores move within the window of the
    scores, whole numbers or not, so a gap moves by w at most. The first passing rank, or that there
    is none, is pure ``w / scale_threshold + 2 w / scale_gap`` DP (Dwork & Roth (2014), Theorem
    3.23, with the budget split as Lyu, Su & Li (2017) do). It says how many rounds there are, and
    their items. A set that differs on a neighbor lies above a gap of at most w, on both: its
    ``max(q - w, 0)`` is 0. That no such gap beats the threshold has the same probability on both,
    ``1 - delta`` or more, and makes the threshold stochastically larger only: its density, given
    that, still falls by a factor of ``exp(w / scale_threshold)`` at most where the threshold rises
    by w, and the theorem needs no more. Under a relation with a window wider by v,
    ``max(q - w, 0)`` of such a gap is v at most, and passes with probability at most that the noise
    exceeds ``t - v``.

    Args:
        k: largest size of the set, 1..kbar.
        kbar: last rank to try, 1..d-1.
        delta: probability that an unstable set is released, below ``kbar / 2``.
        relation: decides the window.
        scale_threshold: scale of the Laplace noise of the threshold, in the unit of the scores
            (votes).
        scale_gap: scale of the Laplace noise of the gaps, in that unit.
        scale_peel: scale of the Gumbel noise of the peeling, in that unit.
        fallback: whether rows without a passing gap list k items by peeling.
    """

    noise_parameters: ClassVar[tuple[str, ...]] = ("scale_threshold", "scale_gap", "scale_peel")
    checks: ClassVar[Checks] = {"fallback": require_flag}

    scale_threshold: float
    scale_gap: float
    scale_peel: float
    fallback: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(2 * self.delta < self.kbar, "delta < kbar / 2", delta=self.delta, kbar=self.kbar)

    @classmethod
    def defaults(cls, case: Case) -> Sequence[Mapping[str, Any]]:
        return [{**settings, "fallback": True} for settings in super().defaults(case)]

    def event(self, relation: NeighboringRelation, rounds: int | None = None) -> Event:
        """Describe the search for a gap and ``rounds`` rounds of peeling, for one row.

        Reserve the event of k rounds (None); the actual `TopStableOutcome.rounds` may be settled
        after the release.

        Raises:
            ValueError: on ``rounds`` that are neither 0 nor k.
        """
        require(rounds in (None, 0, self.k), f"0 or {self.k} rounds", rounds=rounds)
        parts = self._parts(relation) if rounds != 0 else self._parts(relation)[:1]
        return ComposedEvent(events=(*parts, self._failure_event(relation)))

    def peel(self, scores: ArrayLike, *, generator: np.random.Generator) -> TopStableOutcome:
        """Choose from ``scores`` ``[d]`` or ``[B, d]`` as a call does; also return the rounds.

        Raises:
            ValueError: on scores that are not finite numbers, or not more than kbar.
        """
        rows, single = self._rows(scores)
        peeled = [self._peel(rank(part), generator) for part in blocks_of(rows)]
        items, passed, rounds = map(np.concatenate, zip(*peeled, strict=True))
        if single:
            return TopStableOutcome(TopItems.of(items[0]), passed[0], rounds[0])
        return TopStableOutcome(TopItems.of(items), passed, rounds)

    def tier_event(self, relation: NeighboringRelation, tier: int) -> Event:
        """Describe the cost of a row for which ``tier`` rounds of peeling were run, 0 or k."""
        return self.event(relation, tier)

    def answer(self, counts: ArrayLike, *, generator: np.random.Generator) -> Release:
        peeled = self.peel(counts, generator=generator)
        return self._answered(peeled.listed, np.shape(counts)[1], peeled.rounds)

    def max_answer_probability(self, widest: float) -> float:
        """Return a bound on the probability that one of kbar gaps passes, or 1 with a fallback."""
        ahead = widest - self.window(self.relation)
        return 1.0 if self.fallback else min(1.0, self.chance_to_pass(ahead))

    def chance_to_pass(self, gap: float) -> float:
        """Return a bound on the chance that one of kbar gaps, ``gap`` over the window, passes."""
        return self.kbar * _chance_to_exceed(self._threshold - gap, **self._scales)

    def _items(self, ranked: Ranked, generator: np.random.Generator) -> IntArray:
        return self._peel(ranked, generator)[0]

    def _peel(
        self, ranked: Ranked, generator: np.random.Generator
    ) -> tuple[IntArray, BoolArray, IntArray]:
        """Return items ``[n, k]``, whether a gap passed ``[n]``, and rounds of peeling ``[n]``."""
        order, scores = ranked
        k, kbar = self.k, self.kbar
        below = distances(scores, scores[:, k - 1 : k], reach=REACH * self.scale_peel)
        turns = np.concatenate((np.arange(k, kbar + 1), np.arange(k - 1, 0, -1)))
        gaps = np.maximum(
            distances(scores[:, turns], scores[:, turns - 1]) - self.window(self.relation), 0
        )
        # the noisy gaps that come before the noisy threshold
        scales = [self.scale_gap] * kbar + [self.scale_threshold]
        bars = np.column_stack((-gaps, np.full(len(gaps), -self._threshold)))
        places = np.argsort(
            sample_k_smallest(bars, kbar + 1, noise="laplace", scale=scales, generator=generator),
            axis=1,
        )
        over = places[:, :-1] < places[:, -1:]
        passed: BoolArray = np.logical_or.reduce(over, axis=1)
        size = turns[np.argmax(over, axis=1)] * passed
        peeled = below[:, :kbar].copy()
        peeled[np.arange(kbar) >= size[:, None]] = np.inf  # of k items or fewer, none is peeled off
        ranks = sample_k_smallest(
            peeled, k, noise="gumbel", scale=self.scale_peel, generator=generator
        )
        if self.fallback:
            ranks[~passed] = sample_k_smallest(
                below[~passed], k, noise="gumbel", scale=self.scale_peel, generator=generator
            )
            size = np.where(passed, size, k)
        filled = np.arange(k) < size[:, None]
        chosen = np.where(filled, np.take_along_axis(order, ranks, axis=1), np.iinfo(np.int64).max)
        chosen.sort(axis=1)
        rounds = np.where((size > k) | ~passed, k, 0) * (passed | self.fallback)
        return np.where(filled, chosen, -1), passed, rounds

    def _parts(self, relation: NeighboringRelation) -> tuple[Event, ...]:
        window = self.window(relation)
        return (
            PureDPEvent(
                neighboring_relation=relation,
                epsilon=window / self.scale_threshold + 2 * window / self.scale_gap,
            ),
            choice_event(relation, eta=window / self.scale_peel, noise="gumbel", count=self.k),
        )

    def _failure(self, wider: float) -> float:
        return self.delta if wider <= 0 else self.chance_to_pass(wider)

    @property
    def _scales(self) -> dict[str, float]:
        return {"scale_threshold": self.scale_threshold, "scale_gap": self.scale_gap}

    @property
    def _threshold(self) -> float:
        return _unstable_threshold(self.delta / self.kbar, **self._scales)

    @property
    def _threshold_scale(self) -> float:
        return max(self.scale_threshold, self.scale_gap)


def _unstable_threshold(probability: float, *, scale_threshold: float, scale_gap: float) -> float:
    """Return the t that the difference of two noises exceeds with ``probability``, below 1/2.

    The difference is ``Laplace(scale_gap) - Laplace(scale_threshold)``.
    """
    require(probability > 0, "delta / kbar > 0", ratio=probability)
    wide, narrow = max(scale_threshold, scale_gap), min(scale_threshold, scale_gap)
    ratio = narrow / wide
    target = math.log(probability)
    return wide * smallest_where(lambda t: _log_tail(t, ratio) <= target, 0.0, -2 * target + 4)


def _chance_to_exceed(value: float, *, scale_threshold: float, scale_gap: float) -> float:
    """Return the probability that the difference of two noises exceeds ``value``.

    The difference is ``Laplace(scale_gap) - Laplace(scale_threshold)``.
    """
    wide, narrow = max(scale_threshold, scale_gap), min(scale_threshold, scale_gap)
    tail = math.exp(_log_tail(abs(value) / wide, narrow / wide))
    return tail if value > 0 else 1 - tail


def _log_tail(t: float, ratio: float) -> float:
    """Return the log chance to exceed ``t >= 0`` wide scales. The narrow one has ``ratio``."""
    if ratio > 1 - 1e-4:
        # the noise of two equal scales, which is the wider
        return -t + math.log((2 + t) / 4)
    return -t + math.log1p(-(ratio**2) * math.exp(t - t / ratio)) - math.log(2 * (1 - ratio**2))
