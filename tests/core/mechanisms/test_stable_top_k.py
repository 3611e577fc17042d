"""StableTopK: the choice of a gap, its test, and the set above it."""

import itertools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from pate import mechanisms as m
from pate._core.testing.laws import chi_square_p_value
from pate._core.testing.mechanisms import Grid
from pate.accounting import BoundedRangeEvent, Event, NeighboringRelation
from pate.testing import MechanismContract
from tests.core.mechanisms import oracles
from tests.core.mechanisms.scripted import Scripted

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD
PANEL: dict[str, Any] = {"num_teachers": 100, "num_labels": 4}
STABLE: dict[str, Any] = PANEL | {
    "scale_gap": 2.0,
    "sigma_test": 2.0,
    "delta_test": 1e-3,
    "shift": 2,
}
FIXED: dict[str, Any] = STABLE | {"k": 2, "rank_penalty": 1.0, "scale_peel": 2.0}
COUNTS = np.array([[90, 3, 80, 9], [50, 50, 50, 50], [0, 100, 0, 100]])


class TestStableTopK(MechanismContract):
    max_count = 4
    outlier = shift = 0
    grid: Grid = ((4, 2, 0), (4, 1, 1), (0, 1, 4), (4, 0, 1))
    loose_because = "a failed test hides which rank was chosen"

    @property
    def upper(self) -> float:
        """The largest possible score."""
        return self.max_count

    def settings(self, relation: NeighboringRelation) -> dict[str, Any]:
        noise = {
            "scale_gap": 2.0,
            "sigma_test": 1.5,
            "delta_test": 0.02,
            "shift": relation.score_range,
        }
        return {"num_teachers": self.max_count, "num_labels": self.num_items} | noise

    def make(self, relation: NeighboringRelation) -> m.Mechanism[Any]:
        return m.StableTopKMechanism(**self.settings(relation))

    def outcomes(self) -> list[tuple[int, ...]]:
        return list(itertools.product((0, 1), repeat=self.num_items + 1))

    def released_set(self, outcome: tuple[int, ...]) -> frozenset[int] | None:
        *members, released = outcome
        return frozenset(np.flatnonzero(members).tolist()) if released else None

    def law(self, mechanism: Any, scores: oracles.Array) -> oracles.Array:
        weight = 2 if mechanism.shift >= 2 * mechanism.sensitivity else 1
        q = oracles.majority_gaps(scores.tolist(), self.upper, weight)
        order = oracles.ranks(scores.tolist())
        law = dict.fromkeys(self.outcomes(), 0.0)
        for j, p in self.choices(mechanism, np.array(q, dtype=float)).items():
            passing = passing_chance(q[j], mechanism)
            members = tuple(int(i in order[:j]) for i in range(self.num_items))
            law[(*members, 1)] += p * passing
            law[(0,) * (self.num_items + 1)] += p * (1 - passing)
        return np.array(list(law.values()))

    def choices(self, mechanism: Any, q: oracles.Array) -> dict[int, float]:
        """Return the probability of each rank that may be chosen."""
        ranks = [j for j in range(len(q)) if j <= (mechanism.kbar or len(q))]
        utilities = (q + (mechanism.regularizer or 0))[ranks] / mechanism.scale_gap
        gumbel = mechanism.noise == "gumbel"
        law = oracles.softmax(utilities) if gumbel else oracles.max_law(utilities, mechanism.noise)
        return dict(zip(ranks, law.tolist(), strict=True))

    def select(self, mechanism: Any, scores: oracles.Array, generator: np.random.Generator) -> Any:
        members, released = mechanism(np.atleast_2d(scores), generator=generator)
        return np.column_stack((members, released)).astype(int)


def passing_chance(q: float, mechanism: Any) -> float:
    margin = (max(q, mechanism.shift) - mechanism.shift) / mechanism.sigma_test
    return float(ndtr(margin + ndtri(mechanism.delta_test)))


class TestStableTopKRegularized(TestStableTopK):
    """Public preferences, and counts beyond the third that have no influence."""

    def settings(self, relation: NeighboringRelation) -> dict[str, Any]:
        return super().settings(relation) | {"regularizer": (-2.0, 0.0, 1.0, 0.0), "kbar": 2}


class TestStableTopKByLaplace(TestStableTopK):
    def settings(self, relation: NeighboringRelation) -> dict[str, Any]:
        return super().settings(relation) | {"noise": "laplace"}


class TestStableTopKRunForAddRemove(TestStableTopK):
    """Run with a shift of 1 and accounted under both relations."""

    def make(self, relation: NeighboringRelation) -> m.Mechanism[Any]:
        return m.StableTopKMechanism(**self.settings(ADD))


class TestFixedTopK(TestStableTopK):
    k = 2
    num_items = 4
    max_count = 3
    grid: Grid = ((3, 3, 0, 0), (3, 1, 1, 0), (0, 3, 3, 3), (1, 2, 0, 3))
    loose_because = "the worst case of k rounds of peeling is not what most ranks lead to"
    extra: Mapping[str, Any] = MappingProxyType({})

    def make(self, relation: NeighboringRelation) -> m.Mechanism[Any]:
        return m.FixedTopKMechanism(
            k=self.k, rank_penalty=1.0, scale_peel=1.2, **self.settings(relation), **self.extra
        )

    def released_set(self, outcome: tuple[int, ...]) -> frozenset[int] | None:
        """Return the set; a fallback releases one too."""
        return frozenset(i for i in range(self.num_items) if outcome[i]) or None

    def law(self, mechanism: m.FixedTopKMechanism, scores: oracles.Array) -> oracles.Array:
        q = np.array(oracles.gaps(scores.tolist(), self.upper), dtype=float)
        order, k = oracles.ranks(scores.tolist()), mechanism.k
        law = dict.fromkeys(self.outcomes(), 0.0)
        pulled = q - mechanism.rank_penalty * np.abs(np.arange(len(q)) - k)
        for j, chance in enumerate(oracles.softmax(pulled / mechanism.scale_gap)):
            passing = passing_chance(q[j], mechanism)
            if mechanism.fallback:
                peels = oracles.sequences(self.num_items, k)
                utilities = tuple(scores / mechanism.scale_peel)
                for peel, p in zip(
                    peels, oracles.peel_law(utilities, peels, oracles.softmax), strict=True
                ):
                    members = tuple(int(i in peel) for i in range(self.num_items))
                    law[(*members, 0)] += chance * (1 - passing) * p
            else:
                law[(0,) * (self.num_items + 1)] += chance * (1 - passing)
            inside, outside = order[:j], order[j:]
            if j <= k:
                pool, rounds, sign = outside, k - j, 1
            elif j - k <= k:
                pool, rounds, sign = inside, j - k, -1
            else:
                pool, rounds, sign = inside, k, 1
            peels = oracles.sequences(len(pool), rounds)
            scale = mechanism.scale_peel * (
                math.sqrt(rounds / k) if mechanism.scale_noise_with_rounds else 1.0
            )
            utilities = tuple(sign * scores[i] / scale for i in pool) if rounds else ()
            for peel, p in zip(
                peels, oracles.peel_law(utilities, peels, oracles.softmax), strict=True
            ):
                picked = {pool[i] for i in peel}
                chosen = (
                    set(inside) | picked
                    if j <= k
                    else (set(inside) - picked if sign < 0 else picked)
                )
                members = tuple(int(i in chosen) for i in range(self.num_items))
                law[(*members, 1)] += chance * passing * p
        return np.array(list(law.values()))

    def select(
        self, mechanism: m.FixedTopKMechanism, scores: oracles.Array, generator: np.random.Generator
    ) -> Any:
        members, released, rounds = mechanism(np.atleast_2d(scores), generator=generator)
        answered = released | mechanism.fallback
        assert (members.sum(axis=1) == self.k * answered).all()
        assert (rounds <= self.k * answered).all() and (
            rounds[answered & ~released] == self.k
        ).all()
        return np.column_stack((members, released)).astype(int)


class TestFixedTopKWithFallback(TestFixedTopK):
    extra = MappingProxyType({"fallback": True})


@pytest.mark.slow
class TestFixedTopKByPeelingAlone(TestFixedTopK):
    """Next to nothing passes the test, so that the fallback is all that is told."""

    num_items = 3
    grid: Grid = ((3, 3, 0), (3, 1, 0), (0, 3, 3))
    loose_because = ""
    extra = MappingProxyType({"fallback": True})

    def settings(self, relation: NeighboringRelation) -> dict[str, Any]:
        return super().settings(relation) | {
            "scale_gap": 100.0,
            "sigma_test": 100.0,
            "delta_test": 1e-9,
        }


@pytest.mark.parametrize(("k", "by_root"), [(2, False), (3, True)])
def test_every_rank_is_peeled_by_its_law(k: int, by_root: bool) -> None:
    """One wide gap after another is chosen, of five labels; noise of the peeling reaches across
    it."""

    class Five(TestFixedTopK):
        num_items = 5
        max_count = 1210

    draws, levels = 3000, np.array([210, 0, 10, 5, 200])
    noise = {"scale_gap": 10.0, "sigma_test": 10.0, "scale_peel": 150.0}
    shape = {
        "num_teachers": 1210,
        "num_labels": 5,
        "k": k,
        "rank_penalty": 0.0,
        "scale_noise_with_rounds": by_root,
    }
    mechanism = m.FixedTopKMechanism(**FIXED | shape | noise)
    rows = np.array([levels + 800 * (np.arange(5) < j) for j in range(6)])
    drawn = mechanism(np.repeat(rows, draws, axis=0), generator=m.seeded_generator(0))
    assert drawn.released.all()
    numbers = drawn.members @ 2 ** np.arange(4, -1, -1) * 2 + 1
    for j, row in enumerate(rows):
        observed = np.bincount(numbers[j * draws :][:draws], minlength=64)
        assert chi_square_p_value(observed, draws * Five().law(mechanism, row)) > 1e-4
        assert (drawn.rounds[j * draws :][:draws] == min(k, abs(j - k))).all()


class _FallbackForNothing(m.FixedTopKMechanism):
    def event(self, relation: NeighboringRelation, rounds: int | None = None) -> Event:
        return super().event(relation, 0)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_a_fallback_that_is_not_paid_is_refuted(relation: NeighboringRelation) -> None:
    class Unpaid(TestFixedTopKByPeelingAlone):
        def make(self, relation: NeighboringRelation) -> m.Mechanism[Any]:
            given = {**self.settings(relation), **self.extra}
            return _FallbackForNothing(k=self.k, rank_penalty=1.0, scale_peel=1.2, **given)

    with pytest.raises(AssertionError):
        Unpaid().test_divergence_between_all_neighbors_is_within_the_curve(relation)


def stable(counts: Any, **others: Any) -> Any:
    return m.StableTopKMechanism(**STABLE | others)(counts, generator=m.seeded_generator(0))


@pytest.mark.parametrize(("shift", "weight"), [(1, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("num_teachers", [99, 100])
def test_none_and_all_are_answered_by_majority(shift: int, weight: int, num_teachers: int) -> None:
    """Their gaps are compared with those between labels: a label is given from a quarter or a third
    of T on."""
    quiet = {"scale_gap": 1e-3, "sigma_test": 1e-3, "num_teachers": num_teachers, "shift": shift}
    alone = math.ceil(num_teachers * (weight / (2 + 2 * weight)) + 0.1)
    rows = [[alone, 0, 0, 0], [alone - 2, 0, 0, 0], [num_teachers] * 4, [0] * 4]
    members, released = stable(rows, **quiet)
    assert released.all()
    assert members.sum(axis=1).tolist() == [1, 0, 4, 0]
    gaps = m.sort_counts([alone, 0, 0, 0], upper=num_teachers, majority_weight=weight).gaps.tolist()
    half = num_teachers / 2
    assert gaps == [weight * (half - alone), alone, 0, 0, -weight * half]


def test_a_doubled_majority_has_its_window_under_both_relations() -> None:
    """What is run for REPLACE_RECORD costs as much under ADD_REMOVE_TEACHER, unless none and all
    are left out."""
    doubled, single = (
        m.StableTopKMechanism(**STABLE),
        m.StableTopKMechanism(**STABLE | {"shift": 1}),
    )
    np.testing.assert_array_equal(doubled.event(ADD).cost().rdp, doubled.event(REPLACE).cost().rdp)
    assert doubled.choice.event(ADD) == BoundedRangeEvent(neighboring_relation=ADD, eta=2.0)
    assert single.choice.event(ADD) == BoundedRangeEvent(neighboring_relation=ADD, eta=1.0)
    without = m.StableTopKMechanism(**STABLE | {"allow_empty": False})
    assert without.choice.event(ADD) == BoundedRangeEvent(neighboring_relation=ADD, eta=1.0)
    assert (without.event(ADD).cost().rdp < doubled.event(ADD).cost().rdp).all()


def test_fixed_k_reserves_k_rounds_and_settles_what_was_run() -> None:
    mechanism = m.FixedTopKMechanism(**FIXED | {"k": 3, "scale_peel": 4.0})
    without = m.StableTopKMechanism(**STABLE).event(REPLACE)
    none, one, all_of_them = (mechanism.event(REPLACE, rounds=rounds) for rounds in (0, 1, None))
    peel = BoundedRangeEvent(neighboring_relation=REPLACE, eta=0.5).cost().rdp
    assert none == without
    np.testing.assert_allclose(one.cost().rdp, without.cost().rdp + peel)
    np.testing.assert_allclose(all_of_them.cost().rdp, without.cost().rdp + 3 * peel)
    with pytest.raises(ValueError, match=r"^Expected rounds <= k = 3, got rounds=4$"):
        mechanism.event(REPLACE, rounds=4)


@pytest.mark.parametrize(("by_root", "fallback"), [(False, False), (True, True)])
@pytest.mark.parametrize("zeros", [[2], [0, 1, 2, 3]])
def test_no_uniform_number_exchanges_labels_that_passed(
    by_root: bool, fallback: bool, zeros: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The set that passed has k labels: none is peeled, whatever the numbers for it are, 0 among
    them."""
    peel = np.full((1, 4), 0.5)
    peel[0, zeros] = 0.0
    monkeypatch.setattr("pate._core.mechanisms.peeling.exceeds", lambda *_, **__: np.array([True]))
    generator = Scripted(np.full((1, 5), 0.5), peel)
    options: dict[str, Any] = {"scale_noise_with_rounds": by_root, "fallback": fallback}
    mechanism = m.FixedTopKMechanism(**FIXED | {"sigma_test": 0.1} | options)
    members, released, rounds = mechanism(COUNTS[:1], generator=generator)
    assert released and rounds == 0 and members.tolist() == [[True, False, True, False]]


@pytest.mark.parametrize("scale", [0.02, 1.0, 1e4])
def test_fewer_rounds_with_less_noise_never_cost_more_than_k(scale: float) -> None:
    mechanism = m.FixedTopKMechanism(
        **FIXED | {"k": 4, "scale_peel": scale, "scale_noise_with_rounds": True}
    )
    for relation in NeighboringRelation:
        stable, *peeled = (mechanism.event(relation, rounds).cost() for rounds in range(5))
        reserved = mechanism.event(relation).cost()
        np.testing.assert_allclose(reserved.rdp, peeled[-1].rdp, rtol=1e-12)
        assert reserved.mu_squared == pytest.approx(peeled[-1].mu_squared, rel=1e-12)
        # fewer are wider, and no width holds them all
        assert all(
            (fewer.narrow_weights <= reserved.narrow_weights * (1 + 1e-12)).all()
            for fewer in peeled
        )
        for less, more in itertools.pairwise(peeled):
            assert (
                less.rdp <= more.rdp * (1 + 1e-12)
            ).all() and less.mu_squared <= more.mu_squared * (1 + 1e-12)
        if scale == 1e4:
            first, last = (each.rdp[:128] - stable.rdp[:128] for each in (peeled[0], peeled[-1]))
            np.testing.assert_allclose(first, last, rtol=1e-4)
