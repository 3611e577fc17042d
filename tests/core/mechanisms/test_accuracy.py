"""The gaps that a planner asks for: against the laws of the mechanisms, and against the bounds of
the papers."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pate import mechanisms as m
from pate.accounting import NeighboringRelation
from pate.mechanisms import TopKMechanism
from tests.core.mechanisms import oracles, test_limited_domain

ITEMS, K, SCALE = 5, 2, 1.3


def canonical(k: int, **settings: object) -> m.CanonicalMechanism:
    return m.CanonicalMechanism(k=k, scale=SCALE, **settings)  # type: ignore[arg-type]


MAKERS: dict[str, Callable[[int], TopKMechanism]] = {
    "canonical": lambda k: canonical(k),
    "canonical, gamma 0.3": lambda k: canonical(k, gamma=0.3),
    "canonical, published": lambda k: canonical(k, gamma=0.4, loss="published"),
    "canonical, exponential": lambda k: canonical(k, noise="exponential"),
    "canonical, published, exponential": lambda k: canonical(
        k, noise="exponential", loss="published"
    ),
    "joint": lambda k: m.JointMechanism(k=k, scale=SCALE),
    "joint, exponential": lambda k: m.JointMechanism(k=k, scale=SCALE, noise="exponential"),
    "peeling": lambda k: m.GumbelPeeling(k=k, scale=SCALE),
    "permute-and-flip": lambda k: m.PermuteAndFlipPeeling(k=k, scale=SCALE),
    "one-shot Laplace": lambda k: m.OneShotLaplace(k=k, scale=SCALE),
    "one-shot Gumbel": lambda k: m.NoisyTopK(k=k, scale=SCALE),
    "one-shot exponential": lambda k: m.NoisyTopK(k=k, scale=SCALE, noise="exponential"),
    "one-shot logistic": lambda k: m.NoisyTopK(k=k, scale=SCALE, noise="logistic"),
    "one-shot half-logistic": lambda k: m.NoisyTopK(k=k, scale=SCALE, noise="half_logistic"),
}
EXACT = [name for name in MAKERS if not name.startswith("joint")]


def top_chance(mechanism: TopKMechanism, scores: tuple[float, ...]) -> float:
    """The probability of the top-k as a set, by enumeration."""
    k, d = mechanism.k, len(scores)
    top = set(oracles.ranks(scores)[:k])
    if isinstance(mechanism, m.CanonicalMechanism):
        choice = oracles.softmax if mechanism.noise == "gumbel" else oracles.flip_law
        utilities = oracles.subset_utilities(scores, k, mechanism.gamma, mechanism.loss)
        return float(
            choice(utilities / mechanism.scale)[oracles.sets(d, k).index(tuple(sorted(top)))]
        )
    scaled = tuple(score / mechanism.scale for score in scores)
    if isinstance(mechanism, m.NoisyTopK):
        law = oracles.one_shot_set_law(scaled, k, mechanism.noise)
        return float(law[oracles.sets(d, k).index(tuple(sorted(top)))])
    listing = oracles.sequences(d, k)
    if isinstance(mechanism, m.JointMechanism):
        choice = oracles.softmax if mechanism.noise == "gumbel" else oracles.flip_law
        law = choice(-oracles.sequence_losses(scores, k) / mechanism.scale)
    elif isinstance(mechanism, m.OneShotLaplace):
        law = oracles.one_shot_order_law(scaled, k, "laplace")
    else:
        choice = oracles.softmax if isinstance(mechanism, m.GumbelPeeling) else oracles.flip_law
        law = oracles.peel_law(scaled, listing, choice)
    return float(
        sum(chance for chosen, chance in zip(listing, law, strict=True) if set(chosen) == top)
    )


@pytest.mark.parametrize("name", EXACT)
def test_a_step_profile_finds_the_top_so_often(name: str) -> None:
    for k, gap in ((1, 1.0), (2, 3.0), (4, 2.0)):
        mechanism = MAKERS[name](k)
        scores = (gap,) * k + (0.0,) * (ITEMS - k)
        found = mechanism.accuracy(gap=gap, num_items=ITEMS)
        assert found == pytest.approx(
            top_chance(mechanism, scores), abs=2e-4 if "Laplace" in name else 2e-5
        )


@pytest.mark.parametrize(("k", "kbar"), [(1, 3), (2, 2), (2, 4)])
def test_how_often_a_limited_domain_lists_the_top(k: int, kbar: int) -> None:
    """A step profile is the worst for it, too."""
    relation = NeighboringRelation.REPLACE_RECORD
    mechanism = m.LimitedDomain(
        k=k, kbar=kbar, scale=SCALE, delta=0.2, relation=relation, sensitivity=0.5
    )
    contract = test_limited_domain.TestLimitedDomain()
    contract.num_items, contract.k = ITEMS, k

    def whole(scores: tuple[float, ...]) -> float:
        law = contract.law(mechanism, np.array(scores))
        return float(
            sum(
                law[i]
                for i, listed in enumerate(contract.outcomes())
                if set(listed) == set(range(k))
            )
        )

    for gap in (0.0, 2.0, 6.0):
        found = mechanism.accuracy(gap=gap, num_items=ITEMS)
        assert found == pytest.approx(whole((gap,) * k + (0.0,) * (ITEMS - k)))
        for more in itertools.product((0.0, 1.0), repeat=ITEMS):
            scores = tuple(gap + v if i < k else -v for i, v in enumerate(more))
            assert whole(scores) >= found * (1 - 1e-9)
    gap = mechanism.gap_to_answer(probability=0.9, num_items=ITEMS)
    assert mechanism.accuracy(gap=gap, num_items=ITEMS) == pytest.approx(0.9)
    quiet = replace(mechanism, scale=1e-9)
    assert quiet.gap_to_answer(probability=0.9, num_items=10**6) == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"^Expected kbar <= 0 for 1 items, got kbar="):
        mechanism.accuracy(gap=1.0, num_items=1)


@pytest.mark.parametrize("name", list(MAKERS))
def test_gaps_are_the_smallest_that_succeed(name: str) -> None:
    for k, d, probability in ((1, 2, 0.9), (2, 5, 0.99), (3, 400, 0.5), (60, 400, 0.999)):
        mechanism = MAKERS[name](k)
        gap = mechanism.gap_to_answer(probability=probability, num_items=d)
        assert mechanism.accuracy(gap=gap, num_items=d) >= probability
        if gap > 0:
            assert mechanism.accuracy(gap=0.999 * gap, num_items=d) < probability
