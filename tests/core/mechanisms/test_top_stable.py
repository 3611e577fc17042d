"""Top Stable."""

import math
from collections import defaultdict
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom

from pate import mechanisms as m
from pate._core.mechanisms.limited_domain import _chance_to_exceed, _unstable_threshold
from pate._core.testing.mechanisms import Grid
from pate.accounting import Event, NeighboringRelation
from pate.mechanisms import TopStableOutcome
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD
GIVEN: dict[str, Any] = {
    "k": 2,
    "kbar": 3,
    "scale_threshold": 1.0,
    "scale_gap": 2.0,
    "scale_peel": 1.0,
    "delta": 0.05,
    "relation": ADD,
}


class TestTopStable(MechanismContract):
    num_items = 4
    max_count = 4
    k = 1
    kbar = 2
    grid: Grid = ((4, 4, 0, 0), (4, 0, 0, 0), (1, 1, 1, 1), (0, 4, 0, 4))
    delta = 0.1
    fallback = False
    tolerance = 1e-5
    loose_because = "the analysis of the sparse vector technique is not tight, and lists seldom use all their rounds"

    def make(self, relation: NeighboringRelation) -> m.TopStable:
        return m.TopStable(
            k=self.k,
            kbar=self.kbar,
            scale_threshold=0.7,
            scale_gap=1.1,
            scale_peel=1.0,
            delta=self.delta,
            relation=relation,
            fallback=self.fallback,
        )

    def outcomes(self) -> list[tuple[int, ...]]:
        listings = [s for n in range(self.k + 1) for s in oracles.sets(self.num_items, n)]
        return [(*s, *(-1,) * (self.k - len(s))) for s in listings]

    def law(self, mechanism: m.TopStable, scores: oracles.Array) -> oracles.Array:
        order = oracles.ranks(scores.tolist())
        law = dict.fromkeys(self.outcomes(), 0.0)
        for ranks, chance in law_of_ranks(mechanism, tuple(scores[order].tolist())).items():
            released = sorted(order[r] for r in ranks)
            law[(*released, *(-1,) * (mechanism.k - len(released)))] += chance
        return np.array(list(law.values()))

    def select(
        self, mechanism: m.TopStable, scores: oracles.Array, generator: np.random.Generator
    ) -> Any:
        return mechanism(scores, generator=generator).items


@cache
def law_of_sizes(mechanism: m.TopStable, x: tuple[float, ...]) -> dict[int, float]:
    """Return the probability of every rank to be the first that passes, from scores in descending
    order; 0 is none."""
    k, kbar, scale_gap = mechanism.k, mechanism.kbar, mechanism.scale_gap
    turns = [*range(k, kbar + 1), *range(k - 1, 0, -1)]
    threshold = _unstable_threshold(
        mechanism.delta / kbar, scale_threshold=mechanism.scale_threshold, scale_gap=scale_gap
    )
    window = mechanism.sensitivity * mechanism.relation.score_range
    q = {i: max(x[i - 1] - x[i] - window, 0) for i in turns}
    z, waiting = oracles.laplace_panels(
        mechanism.scale_threshold, [q[i] - threshold for i in turns]
    )
    law: dict[int, float] = {}
    for i in turns:
        passing = oracles.NOISES["laplace"][2]((threshold + z - q[i]) / scale_gap)
        law[i] = float(waiting @ passing)
        waiting = waiting * (1 - passing)
    return law | {0: float(waiting.sum())}


@cache
def law_of_ranks(mechanism: m.TopStable, x: tuple[float, ...]) -> dict[tuple[int, ...], float]:
    """Return the probability of every peel of ranks from scores in descending order; () is
    nothing."""
    law: dict[tuple[int, ...], float] = defaultdict(float)
    for size, stopped in law_of_sizes(mechanism, x).items():
        pool = size or mechanism.fallback * len(x)
        peels = oracles.sequences(pool, min(pool, mechanism.k))
        chances = oracles.peel_law(
            tuple(v / mechanism.scale_peel for v in x[:pool]), peels, oracles.softmax
        )
        for peel, chance in zip(peels, chances, strict=True):
            law[peel] += stopped * chance
    return law


@pytest.mark.slow
class TestTopStableTwo(TestTopStable):
    k = 2
    kbar = 3
    max_count = 3
    grid = ((3, 3, 0, 0), (3, 0, 0, 0), (1, 1, 1, 1), (0, 3, 0, 3))


class TestTopStableWithFallback(TestTopStable):
    fallback = True


@pytest.mark.slow
class TestTopStableTwoWithFallback(TestTopStableTwo):
    fallback = True


class TestTopStableForTheOther(TestTopStable):
    """A threshold that is set for the other relation."""

    delta = 0.02

    def make(self, relation: NeighboringRelation) -> m.TopStable:
        return super().make(ADD if relation is REPLACE else REPLACE)


class _Claimed(m.TopStable):
    def event(self, relation: NeighboringRelation, rounds: int | None = None) -> Event:
        return super().event(relation, 0)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_a_fallback_that_is_not_paid_is_refuted(relation: NeighboringRelation) -> None:
    """So much noise that no gap passes: the fallback is all that is told."""

    class Unpaid(TestTopStableTwo):
        def make(self, relation: NeighboringRelation) -> m.TopStable:
            noise = {"scale_threshold": 100.0, "scale_gap": 100.0, "scale_peel": 1.0}
            return _Claimed(
                k=self.k, kbar=self.kbar, delta=1e-6, relation=relation, fallback=True, **noise
            )

    with pytest.raises(AssertionError):
        Unpaid().test_divergence_between_all_neighbors_is_within_the_curve(relation)


def peel(scores: Any, **others: Any) -> TopStableOutcome:
    return m.TopStable(**GIVEN | others).peel(scores, generator=m.seeded_generator(0))


def test_rounds_are_settled() -> None:
    mechanism = m.TopStable(**GIVEN | {"fallback": True})
    for relation in NeighboringRelation:
        none, all_of_them = (mechanism.event(relation, rounds).cost() for rounds in (0, 2))
        choices = m.GumbelPeeling(k=2, scale=1.0).event(relation).cost().rdp
        np.testing.assert_allclose(all_of_them.rdp, none.rdp + choices)
        assert mechanism.event(relation) == mechanism.event(relation, 2)
    with pytest.raises(ValueError, match=r"^Expected 0 or 2 rounds, got rounds=1$"):
        mechanism.event(ADD, 1)


def test_a_threshold_for_adding_fails_more_often_under_replacing() -> None:
    quiet, loud = (
        m.TopStable(**GIVEN | {"scale_gap": scale, "scale_threshold": scale})
        for scale in (0.1, 50.0)
    )
    assert quiet.failure(ADD) == loud.failure(ADD) == 0.05
    assert quiet.failure(REPLACE) == pytest.approx(1.0) and 0.05 < loud.failure(REPLACE) < 0.052
    other = m.TopStable(**GIVEN | {"relation": REPLACE})
    assert other.failure(ADD) == other.failure(REPLACE) == 0.05


@pytest.mark.parametrize("gap", [0, 2, 5])
def test_gaps_pass_as_often_as_is_said(gap: int) -> None:
    """The bound adds kbar equal gaps up: one of them alone passes at least a third of it, and all
    at most the bound."""
    draws, mechanism = 6000, m.TopStable(**GIVEN)
    bound = mechanism.chance_to_pass(gap)
    assert (bound == pytest.approx(mechanism.delta)) == (gap == 0)
    scores = np.arange(5, 0, -1) * (gap + int(mechanism.window(ADD)))
    passed = mechanism.peel(
        np.tile(scores, (draws, 1)), generator=m.seeded_generator(0)
    ).passed.sum()
    least, most = (
        binom.ppf(chance, draws, share)
        for chance, share in ((1e-6, bound / 3), (1 - 1e-6, min(1, bound)))
    )
    assert least <= passed <= most


@pytest.mark.parametrize("ratio", [1.0, 0.999, 1e-3])
@pytest.mark.parametrize("probability", [0.49, 1e-12])
def test_threshold_is_exceeded_with_its_probability(ratio: float, probability: float) -> None:
    wide = 3.0
    for scale_threshold, scale_gap in ((wide, ratio * wide), (ratio * wide, wide)):
        t = _unstable_threshold(probability, scale_threshold=scale_threshold, scale_gap=scale_gap)
        exceeded = integrated_tail(t, scale_threshold, scale_gap)
        assert exceeded <= probability * (1 + 1e-7)
        assert exceeded == pytest.approx(probability, rel=1e-3)
        for votes in (t, -t, t - 1):
            found = _chance_to_exceed(votes, scale_threshold=scale_threshold, scale_gap=scale_gap)
            assert found == pytest.approx(
                integrated_tail(votes, scale_threshold, scale_gap), rel=1e-3
            )


def integrated_tail(t: float, scale_threshold: float, scale_gap: float) -> float:
    def density(z: float) -> float:
        return math.exp(-abs(z) / scale_threshold) / (2 * scale_threshold)

    def beyond(z: float) -> float:
        return 0.5 * math.exp(-z / scale_gap) if z > 0 else 1 - 0.5 * math.exp(z / scale_gap)

    far = 40 * min(scale_threshold, scale_gap)
    ends = sorted({-math.inf, -t - far, -t, -t + far, -far, 0.0, far, math.inf})
    return float(
        sum(
            quad(lambda z: density(z) * beyond(t + z), *piece, epsabs=0)[0]
            for piece in pairwise(ends)
        )
    )
