"""Sets of k labels for a public k, drawn by peeling from all labels or from the most voted ones alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from scipy.special import expit

from pate._typing import IntArray
from pate._validation import require
from pate._votes import Counts, VoteShape
from pate.accounting._events import Event
from pate.accounting._relation import NeighboringRelation
from pate.aggregators._base import Release
from pate.aggregators._of_mechanism import MechanismAggregator
from pate.mechanisms._limited_domain import DomainMechanism, LimitedDomain, Listed
from pate.mechanisms._top_stable import TopStable

Lists = TypeVar("Lists", bound=DomainMechanism)


@dataclass(frozen=True, kw_only=True)
class _Listing(MechanismAggregator[Lists]):
    """Release at most k of the kbar most voted labels.

    A query whose list is full is answered for all its labels: those listed are given, all others
        denied. A shorter list
    says no more than what it names, and leaves the other labels open.
    """

    k: int
    kbar: int

    def mechanism(self, shape: VoteShape) -> Lists:
        require(
            self.kbar < shape.num_labels,
            f"kbar < {shape.num_labels} for {shape.num_labels} labels",
            kbar=self.kbar,
        )
        return super().mechanism(shape)

    def _answered(self, listing: Listed, num_labels: int, tiers: IntArray | None = None) -> Release:
        labels = np.zeros((len(listing.items), num_labels + 1), dtype=np.uint8)
        # places without an item name one label beyond the last
        np.put_along_axis(labels, np.where(listing.listed, listing.items, num_labels), 1, axis=1)
        labels = labels[:, :num_labels]
        full = np.asarray(listing.listed.all(axis=1, keepdims=True))
        return Release(labels, (labels > 0) | full, tiers=tiers)


@dataclass(frozen=True, kw_only=True)
class LimitedDomainTopK(_Listing[LimitedDomain]):
    """Release at most k of the kbar most voted labels, by peeling that ends at a noisy threshold.

    Choose it if the labels themselves are not public, such as words or places: those of rank beyond
        ``kbar + 1`` have
    no influence. A list that ends early answers a query for its own labels alone.

    Privacy: k ``eta``-bounded-range choices, ``eta = window / scale_domain`` with a window of 1
        vote under
    ADD_REMOVE_TEACHER and 2 under REPLACE_RECORD, except with probability ``delta_domain`` (Durfee
    & Rogers (2019), Algorithm 1).

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

    names: ClassVar[Mapping[str, str]] = {"scale_domain": "scale", "delta_domain": "delta"}

    scale_domain: float
    delta_domain: float

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        return self._answered(
            self.mechanism(votes.shape)(votes.counts, generator=generator), votes.num_labels
        )

    def most_answered(self, shape: VoteShape) -> float:
        """Return the probability that a label is listed if all teachers give kbar labels and no others."""
        ahead = (
            shape.num_teachers - self.mechanism(shape).window(self.neighboring_relation)
        ) / self.scale_domain
        return float(expit(ahead + math.log(self.delta_domain)))


@dataclass(frozen=True, kw_only=True)
class TopStableTopK(_Listing[TopStable]):
    """Release the labels above the first gap that passes a noisy threshold, cut down to k by peeling if they are more.

    Choose it to compare with the papers: `FixedStableTopK` finds a gap at less cost.

    Privacy: the sparse vector technique on gaps that move by 1 vote under ADD_REMOVE_TEACHER and 2
        under
    REPLACE_RECORD, k bounded-range choices of counts with the same window where labels are peeled,
    and the probability ``delta_stable``: a query costs the rounds that it took (Carvalho et al.
    (2020); `pate.mechanisms.TopStable`).

    Args:
        k: largest number of labels of a sample.
        kbar: last rank whose gap is tried, from k to one below the number of labels.
        scale_threshold_stable: scale of the Laplace noise of the threshold, in votes.
        scale_gap_stable: scale of the Laplace noise of the gaps, in votes.
        scale_peel_stable: scale of the Gumbel noise of the peeling, in votes.
        delta_stable: probability that an unstable set is released, paid by every query, below
            ``kbar / 2``.
        neighboring_relation: the relation that the threshold is set for.
        fallback: whether queries in which no gap passes are answered by peeling k labels from all,
            which then have to be public.

    Raises:
        ValueError: on noise that is not positive, ``k < 1``, ``k > kbar``, or ``delta_stable`` out
            of its range.
    """

    names: ClassVar[Mapping[str, str]] = {
        "scale_threshold_stable": "scale_threshold",
        "scale_gap_stable": "scale_gap",
        "scale_peel_stable": "scale_peel",
        "delta_stable": "delta",
    }

    scale_threshold_stable: float
    scale_gap_stable: float
    scale_peel_stable: float
    delta_stable: float
    fallback: bool = False

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of one query for which ``tier`` rounds of peeling were run, 0 or k; k if None."""
        return self.mechanism(shape).event(self.relation_of(relation), tier)

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        peeled = self.mechanism(votes.shape).peel(votes.counts, generator=generator)
        return self._answered(peeled.listed, votes.num_labels, peeled.rounds)

    def most_answered(self, shape: VoteShape) -> float:
        """Return a bound on the probability that one of kbar gaps passes, or 1 with a fallback."""
        widest = shape.num_teachers - self.neighboring_relation.score_range
        return 1.0 if self.fallback else min(1.0, self.mechanism(shape).chance_to_pass(widest))
