"""An aggregator of one mechanism is that mechanism on votes; the contract of the mechanism is its proof."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

import numpy as np
import pytest

from pate import Partial, Votes, VoteShape, mechanisms as m
from pate._labeling.aggregators import top_k
from pate.accounting import NeighboringRelation as Relation
from pate.aggregators import (
    Canonical,
    FixedStableTopK,
    Joint,
    LimitedDomainTopK,
    MechanismAggregator,
    Peeling,
    PermuteAndFlip,
    StableTopK,
    TopStableTopK,
)

SHAPE = VoteShape(20, 5)
STABLE: dict[str, Any] = {"scale_gap": 3.0, "sigma_test": 2.0, "delta_test": 1e-2}
FIXED: dict[str, Any] = STABLE | {"scale_peel": 2.0}
LISTED: dict[str, Any] = {
    "scale_threshold": 1.0,
    "scale_gap": 2.0,
    "scale_peel": 1.5,
    "delta": 1e-2,
}
PREFERS: dict[str, Any] = {"regularizer": (-2.0, 0.0, 1.0, 0.0, 0.0, 3.0), "allow_empty": False}
FACTS: dict[str, Any] = {"num_teachers": 20, "num_labels": 5}


def window(relation: Relation) -> int:
    return 1 if relation is Relation.ADD_REMOVE_TEACHER else 2


class Drawn:
    """A contract without the draws that `PAIRS` and the mechanism's contract prove: that queries are
    independent, and answered alone as in a batch. Inherit it first."""

    test_one_query_at_a_time_follows_the_law: Any = None
    test_queries_of_a_batch_are_independent: Any = None


class Bound(Drawn):
    """A contract without the laws and costs that `PAIRS` and the mechanism's contract prove.

    An aggregator with tiers of price does not inherit it: their prices, outcome by outcome, are in
    the contract of aggregators alone.
    """

    test_release_follows_the_law_on_all_ballots: Any = None
    test_a_fifth_less_noise_is_caught: Any = None
    test_divergence_between_all_neighbors_is_within_the_curve: Any = None
    test_two_teachers_of_one_unit_are_within_its_curve: Any = None
    test_curve_is_tight_unless_explained: Any = None
    test_realised_cost_is_at_most_what_is_reserved: Any = None
    test_what_happens_is_part_of_what_is_reserved: Any = None
    test_realised_costs_hold_between_all_neighbors: Any = None
    test_realised_gaussians_cover_all_neighbors: Any = None


PAIRS: dict[str, tuple[MechanismAggregator[Any], Callable[[Relation], Any]]] = {
    "canonical": (
        Canonical(k=2, scale_canonical=3.0, gamma=0.7, noise_law="exponential", loss="published"),
        lambda _: m.CanonicalMechanism(
            k=2, scale=3.0, gamma=0.7, noise="exponential", loss="published"
        ),
    ),
    "peeling": (
        Peeling(k=3, scale_peel=2.0, noise_law="laplace"),
        lambda _: m.NoisyTopK(k=3, scale=2.0, noise="laplace"),
    ),
    "joint": (Joint(k=2, scale_joint=3.0), lambda _: m.JointMechanism(k=2, scale=3.0)),
    "flips": (
        PermuteAndFlip(k=2, scale_flip=3.0),
        lambda _: m.PermuteAndFlipPeeling(k=2, scale=3.0),
    ),
    "domain": (
        LimitedDomainTopK(k=2, kbar=3, scale_domain=2.0, delta_domain=1e-2),
        lambda r: m.LimitedDomain(k=2, kbar=3, scale=2.0, delta=1e-2, relation=r),
    ),
    "top stable": (
        TopStableTopK(k=2, kbar=3, **{f"{name}_stable": LISTED[name] for name in LISTED}),
        lambda r: m.TopStable(k=2, kbar=3, relation=r, **LISTED),
    ),
    "stable": (
        StableTopK(**STABLE, noise_law="logistic", kbar=4),
        lambda r: m.StableTopKMechanism(
            **STABLE, **FACTS, shift=window(r), noise="logistic", kbar=4
        ),
    ),
    "stable with preferences": (
        StableTopK(**STABLE, **PREFERS),
        lambda r: m.StableTopKMechanism(**STABLE, **FACTS, shift=window(r), **PREFERS),
    ),
    "fixed": (
        FixedStableTopK(k=2, rank_penalty=1.0, **{f"{name}_fixed": FIXED[name] for name in FIXED}),
        lambda r: m.FixedTopKMechanism(**FIXED, **FACTS, shift=window(r), k=2, rank_penalty=1.0),
    ),
}


def is_its_mechanism(cls: type[Any]) -> bool:
    """Whether an aggregator does nothing that its mechanism, which has a contract, does not do."""
    return issubclass(cls, MechanismAggregator) and all(
        getattr(cls, name) is getattr(MechanismAggregator, name)
        for name in ("aggregate", "event", "law", "mechanism")
    )


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("name", PAIRS)
def test_an_aggregator_is_its_mechanism_on_votes(name: str, relation: Relation) -> None:
    plain, make = PAIRS[name]
    aggregator, mechanism = replace(plain, neighboring_relation=relation), make(relation)
    assert aggregator.mechanism(SHAPE) == mechanism
    counts = np.random.default_rng(1).integers(0, 21, (300, 5))
    release = aggregator.aggregate(Votes.from_counts(counts, 20), generator=m.seeded_generator(2))
    expected = mechanism.answer(counts, generator=m.seeded_generator(2))
    np.testing.assert_array_equal(release.labels, expected.labels)
    np.testing.assert_array_equal(release.mask, expected.mask)
    tiers = [None] if release.tiers is None else sorted({None, *release.tiers.tolist()}, key=str)
    assert (release.tiers is None) == (expected.tiers is None)
    for stated in Relation:
        for tier in tiers:
            own = mechanism.event(stated) if tier is None else mechanism.tier_event(stated, tier)
            assert aggregator.event(SHAPE, stated, tier) == own
    assert aggregator.max_answer_probability(SHAPE) == mechanism.max_answer_probability(20)


@pytest.mark.parametrize("name", PAIRS)
def test_a_call_of_the_mechanism_draws_what_is_answered(name: str) -> None:
    """`answer` draws no other noise than a call, and makes labels of nothing else."""
    mechanism = PAIRS[name][1](Relation.REPLACE_RECORD)
    counts = np.random.default_rng(3).integers(0, 21, (50, 5))
    answered, called = m.seeded_generator(4), m.seeded_generator(4)
    mechanism.answer(counts, generator=answered)
    mechanism(counts, generator=called)
    assert answered.random() == called.random()


def test_noise_and_failures_have_names_of_their_own() -> None:
    """So that none is carried over silently where the class in a configuration changes."""
    names = [
        set(kind.names) & set(Partial(kind).missing)
        for kind in {type(plain) for plain, _ in PAIRS.values()}
    ]
    tagged = [name for each in names for name in each if name not in ("k", "kbar", "rank_penalty")]
    assert len(tagged) == len(set(tagged)) > 15


SHIPPED = [
    kind
    for kind in vars(top_k).values()
    if isinstance(kind, type)
    and issubclass(kind, MechanismAggregator)
    and kind is not MechanismAggregator
]


@pytest.mark.parametrize("kind", SHIPPED, ids=lambda kind: kind.__name__)
def test_fields_are_declared_as_the_mechanism_has_them(
    kind: type[MechanismAggregator[Any]],
) -> None:
    own, their = get_type_hints(kind), get_type_hints(kind.kind)
    defaults, made = (
        {each.name: each.default for each in fields(cls)} for cls in (kind, kind.kind)
    )
    for name, field in kind.names.items():
        assert own[name] == their[field] and defaults[name] == made[field]


def test_a_class_without_its_fields_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Mine(MechanismAggregator[m.CanonicalMechanism], tag="mine"):
        k: int

    with pytest.raises(ValueError, match=r"^Expected fields of the dataclass Mine, got missing="):
        Mine(k=1)
