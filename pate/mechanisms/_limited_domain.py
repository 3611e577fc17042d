"""Top-k from a limited domain, which reads only the largest counts (Durfee & Rogers (2019))."""

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

from pate._validation import (
    BoolArray,
    IntArray,
    require,
    require_count,
    require_in_open_unit_interval,
)
from pate.accounting import ComposedEvent, Event, FailureEvent, NeighboringRelation
from pate.mechanisms._base import Case, Checks, Release, ScoreMechanism, TopKMechanism, choice_event
from pate.mechanisms._exact_choice import sample_k_smallest
from pate.mechanisms._ranking import (
    REACH,
    Ranked,
    Rows,
    as_batch,
    distances,
    in_blocks,
    rank,
    require_within,
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

    def choose(self, scores: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        top = self(scores, generator=generator)
        return top.items[top.mask]

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
        step = self.window(relation) / self._threshold_scale
        delta = self.failure(relation)
        return FailureEvent(
            neighboring_relation=relation, delta=delta, tail="exponential", step=step
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
    and ``w = 1``; the proof holds for real scores and any w. Items are listed in the order of
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

    short_name: ClassVar[str] = "limited_domain"
    ordered: ClassVar[bool] = True
    needs_public_items: ClassVar[bool] = False
    noise_parameters: ClassVar[tuple[str, ...]] = ("scale",)
    gap_meaning: ClassVar[str] = TopKMechanism.gap_meaning

    scale: float

    def choose_unknown(self, counts: ArrayLike, *, generator: np.random.Generator) -> IntArray:
        """Choose among items without a public list: only items with a positive count exist.

        Privacy: as for a call. Think of all items that there could be, of count 0 without
        counts for them, and of ``kbar + 1`` blanks more, of count 0 whatever the data: their counts
        are at most a sensitivity away from those of a neighbor, too. Where items of count 0 come
        after the blanks, none of them is ever among the ``kbar + 1`` largest, so that a call on the
        items that exist and the blanks is a call on all. Blanks are left out of the list that it
        returns, which is a function of that list. The length of the list is therefore paid for, and
        however few items exist, one that a neighbor could not name is named with probability
        `failure` at most.

        Args:
            counts: ``[n]`` of the items that exist, n >= 0; items of count 0 are never chosen.
            generator: noise.

        Returns:
            Indices ``[m]``, m <= k, of the items in the order of choice.

        Raises:
            ValueError: on counts below 0, or that are not finite numbers ``[n]``.
        """
        scores = np.asarray(counts)
        # their contents are PRIVATE, and no message repeats them
        valid = (
            scores.ndim == 1
            and scores.dtype.kind in "iuf"
            and np.isfinite(scores).all()
            and (scores >= 0).all()
        )
        require(valid, "finite counts >= 0 of shape [n]")
        existing = np.flatnonzero(scores)
        blanks = np.zeros(self.kbar + 1, dtype=scores.dtype)
        items = self(np.concatenate((scores[existing], blanks)), generator=generator).items
        return existing[items[(items >= 0) & (items < existing.size)]]

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

    def _accuracy(self, gap: float, num_items: int) -> float:
        # others of the domain lose the gap at least, and so does the threshold, but for its lead
        # over the last of them
        k, kbar = self.k, self.kbar
        lead = self.window(self.relation) / self.scale + math.log(kbar / self.delta)
        log_others = np.logaddexp(lead, math.log(kbar - k) if kbar > k else -math.inf)
        log_others = float(log_others) - gap / self.scale
        return math.exp(-float(np.logaddexp(0.0, log_others - np.log(np.arange(1, k + 1))).sum()))

    @property
    def _unit(self) -> float:
        return self.scale

    def _failure(self, wider: float) -> float:
        return math.exp(min(math.log(self.delta) + wider / self.scale, 0.0))

    @property
    def _threshold_scale(self) -> float:
        return self.scale
