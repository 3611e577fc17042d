"""Sets by permute-and-flip, and lists from the most voted labels, keep the contract."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from pate import Outlook, Votes, VoteShape
from pate._core.testing.laws import ORDERS
from pate._labeling.testing.aggregators import Grid, Law
from pate.accounting import ComposedEvent, Event, FailureEvent, NeighboringRelation as Relation
from pate.aggregators import Aggregator, LimitedDomainTopK, TopStableTopK
from pate.mechanisms import TopStable
from pate.testing import AggregatorContract
from tests.core.mechanisms import oracles
from tests.core.mechanisms.test_top_stable import law_of_sizes
from tests.labeling.aggregators.oracles import answered, counts
from tests.labeling.aggregators.test_of_mechanism import Bound, Drawn

GRID = (
    ((1, 1, 0), (1, 1, 0), (1, 0, 0), (1, 1, 0)),
    ((0, 0, 1), (0, 0, 1), (0, 1, 1), (0, 1, 0)),
    ((0, 0, 0), (0, 0, 0), (1, 1, 1), (1, 0, 1)),
)


class _Listing(Drawn, AggregatorContract):
    num_labels = 3
    grid: Grid = GRID
    k = 1
    kbar = 2

    def outcome(self, listed: list[int], tier: int = 0) -> tuple[int, ...]:
        """A full list answers for all labels, a shorter one for its own alone."""
        labels = [int(label in listed) for label in range(self.num_labels)]
        if len(listed) == self.k:
            return answered(labels, tier)
        return (*labels, *labels, tier)

    def malformed(self) -> list[dict[str, Any]]:
        return [{"k": 0}, {"k": self.kbar + 1}, {"kbar": 0}, {"kbar": 2.0}]

    def test_a_domain_of_all_labels_is_refused(self) -> None:
        with pytest.raises(
            ValueError, match=rf"^Expected kbar <= 1 for 2 items, got kbar={self.kbar}$"
        ):
            self.make(Relation.REPLACE_RECORD).event(VoteShape(4, 2))
        outlook = Outlook(
            shape=VoteShape(60, 2),
            num_queries=9,
            delta=1e-5,
            relation=Relation.REPLACE_RECORD,
            labels_per_sample=2,
        )
        assert not self.make(Relation.REPLACE_RECORD).proposals(outlook)


class TestLimitedDomainTopK(Bound, _Listing):
    k = 2
    scale, delta = 0.7, 0.02
    loose_because = "the threshold ends most lists early, and the pair that is the worst of a round is not of the next"

    def make(self, relation: Relation) -> Aggregator:
        return LimitedDomainTopK(
            k=self.k,
            kbar=self.kbar,
            scale_domain=self.scale,
            delta_domain=self.delta,
            neighboring_relation=relation,
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        h = counts(votes)
        order = oracles.ranks(h)
        end = (
            h[order[self.kbar]]
            + relation.score_range
            + self.scale * math.log(self.kbar / self.delta)
        )
        law: dict[tuple[int, ...], float] = defaultdict(float)

        def peel(listed: list[int], chance: float) -> None:
            if len(listed) == self.k:
                law[self.outcome(listed)] += chance
                return
            left = [i for i in order[: self.kbar] if i not in listed]
            law_of_one = oracles.softmax(
                [*(h[i] / self.scale for i in left), end / self.scale]
            ).tolist()
            for i, p in zip(left, law_of_one, strict=False):
                peel([*listed, i], chance * p)
            law[self.outcome(listed)] += chance * law_of_one[-1]

        peel([], 1.0)
        return law

    def malformed(self) -> list[dict[str, Any]]:
        return [*super().malformed(), {"delta_domain": 0.0}, {"delta_domain": 1.0}]


class TestTopStableTopK(_Listing):
    scale_threshold, scale_gap, scale_peel, delta = 0.7, 1.1, 0.5, 0.05
    fallback = False
    draws = 10_000
    loose_because = "the analysis of the sparse vector technique is not tight, and lists seldom use all their rounds"

    def make(self, relation: Relation) -> Aggregator:
        return self.made(relation)

    def made(self, relation: Relation) -> TopStableTopK:
        return TopStableTopK(
            k=self.k,
            kbar=self.kbar,
            scale_threshold_stable=self.scale_threshold,
            scale_gap_stable=self.scale_gap,
            scale_peel_stable=self.scale_peel,
            delta_stable=self.delta,
            fallback=self.fallback,
            neighboring_relation=relation,
        )

    def law(self, votes: Votes, relation: Relation) -> Law:
        h = counts(votes)
        order = oracles.ranks(h)
        law: dict[tuple[int, ...], float] = defaultdict(float)
        for (ranks, tier), chance in tiered_law(
            self.made(relation).mechanism(votes.shape), tuple(h[i] for i in order)
        ).items():
            law[self.outcome([order[rank] for rank in ranks], tier)] += chance
        return law

    def malformed(self) -> list[dict[str, Any]]:
        return [*super().malformed(), {"delta_stable": 0.0}, {"delta_stable": 1.0}]

    def test_rounds_that_cannot_be_are_refused(self) -> None:
        with pytest.raises(ValueError, match=rf"^Expected 0 or {self.k} rounds, got rounds=7$"):
            self.make(Relation.REPLACE_RECORD).event(self.shape, tier=7)


class TestTopStableTopKWithFallback(TestTopStableTopK):
    fallback = True

    @pytest.mark.parametrize("relation", Relation)
    def test_rounds_cost_what_peeling_does(self, relation: Relation) -> None:
        stable: Any = self.make(relation)
        none, some = (
            stable.event(self.shape, relation, tier).cost(ORDERS).rdp for tier in (0, self.k)
        )
        more = replace(stable, scale_peel_stable=1e9).event(self.shape, relation).cost(ORDERS).rdp
        assert (some > none).all()
        np.testing.assert_allclose(more, none, rtol=1e-6)


@cache
def tiered_law(
    mechanism: TopStable, x: tuple[float, ...]
) -> dict[tuple[tuple[int, ...], int], float]:
    """Return the probability of every set of ranks and of the rounds that it took, from counts in
    descending order."""
    law: dict[tuple[tuple[int, ...], int], float] = defaultdict(float)
    k = mechanism.k
    for size, chance in law_of_sizes(mechanism, x).items():
        pool = size or mechanism.fallback * len(x)
        if (size and size <= k) or not pool:
            law[tuple(range(size)), 0] += chance
            continue
        peels = oracles.sequences(pool, k)
        parts = oracles.peel_law(
            tuple(v / mechanism.scale_peel for v in x[:pool]), peels, oracles.softmax
        )
        for peel, part in zip(peels, parts.tolist(), strict=True):
            law[tuple(sorted(peel)), k] += chance * part
    return law


@dataclass(frozen=True, kw_only=True)
class _SettlesNoFailure(TopStableTopK):
    """Settles the rounds that were run, and forgets with them that an unstable set may have passed.

    They are run where none passed: their outcomes are those that may be told in its place, and have
    to pay for it.
    """

    def event(
        self, shape: VoteShape, relation: Relation | None = None, tier: int | None = None
    ) -> Event:
        found = super().event(shape, relation, tier)
        assert isinstance(found, ComposedEvent)
        kept = tuple(
            part for part in found.events if not tier or not isinstance(part, FailureEvent)
        )
        return ComposedEvent(events=kept)


@pytest.mark.parametrize("relation", Relation)
def test_a_failure_that_is_reserved_and_not_settled_is_refuted(relation: Relation) -> None:
    class Forgetful(TestTopStableTopKWithFallback):
        def make(self, relation: Relation) -> Aggregator:
            return _SettlesNoFailure(**vars(self.made(relation)))

    contract = Forgetful()
    contract.test_realised_cost_is_at_most_what_is_reserved(relation)
    with pytest.raises(
        AssertionError,
        match=r"^Expected each tier to pay for all that it reveals, got inf too little",
    ):
        contract.test_realised_costs_hold_between_all_neighbors(relation, relation)
