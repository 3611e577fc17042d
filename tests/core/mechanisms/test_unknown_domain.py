"""A limited domain of items that nobody knows beforehand: all data sets of few users and items,
enumerated."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from pate import mechanisms as m
from pate._core.testing.laws import ORDERS, assert_paid, chi_square_p_value, renyi_divergence
from pate.accounting import NeighboringRelation
from tests.core.mechanisms import oracles

ADD, REPLACE = NeighboringRelation.ADD_REMOVE_TEACHER, NeighboringRelation.REPLACE_RECORD
GIVEN: dict[str, Any] = {"k": 2, "kbar": 2, "scale": 0.4, "delta": 0.02}

Counts = tuple[int, ...]
Law = dict[Counts, float]
Rank = Callable[[list[int], int], float]


def padded_rank(counts: list[int], kbar: int) -> float:
    """The count of rank kbar + 1; what does not exist has the count 0."""
    return counts[kbar] if len(counts) > kbar else 0


def last_rank(counts: list[int], kbar: int) -> float:
    """A mistake: the smallest count that there is, where fewer exist."""
    return counts[min(kbar, len(counts) - 1)] if counts else 0


@cache
def law_of_list(mechanism: m.LimitedDomain, counts: Counts, rank: Rank = padded_rank) -> Law:
    """The law of the list of items, by the plain definition: blanks fill the domain up, and are
    left out."""
    existing = [i for i in oracles.ranks(counts) if counts[i] > 0]
    window = mechanism.sensitivity * mechanism.relation.score_range
    lead = window + mechanism.scale * math.log(mechanism.kbar / mechanism.delta)
    end = math.exp((rank([counts[i] for i in existing], mechanism.kbar) + lead) / mechanism.scale)
    masses = {i: math.exp(counts[i] / mechanism.scale) for i in existing[: mechanism.kbar]}
    law: Law = defaultdict(float)

    def go_on(listed: Counts, blanks: int, places: int, chance: float) -> None:
        left = {i: mass for i, mass in masses.items() if i not in listed}
        total = sum(left.values()) + blanks + end
        if not places:
            law[listed] += chance
            return
        law[listed] += chance * end / total
        for item, mass in left.items():
            go_on((*listed, item), blanks, places - 1, chance * mass / total)
        if blanks:
            go_on(listed, blanks - 1, places - 1, chance * blanks / total)

    go_on((), mechanism.kbar - len(masses), mechanism.k, 1.0)
    return dict(law)


@dataclass(frozen=True)
class World:
    """All data sets of so many users, who have each of the items up to ``max_each`` times or not at
    all."""

    users: int
    items: int
    max_each: int = 1
    max_items: int | None = None
    given: dict[str, Any] = field(default_factory=dict, hash=False)

    def mechanism(self, relation: NeighboringRelation) -> m.LimitedDomain:
        scale = GIVEN["scale"] * self.max_each
        return m.LimitedDomain(
            **GIVEN | {"scale": scale} | self.given,
            relation=relation,
            sensitivity=float(self.max_each),
        )

    def users_data(self) -> list[Counts]:
        """All that one user may have, nothing first."""
        return list(itertools.product(range(self.max_each + 1), repeat=self.items))

    def contributed(self, user: Counts) -> Law:
        """What of a user counts, and with which chance."""
        held = [i for i, times in enumerate(user) if times]
        if self.max_items is None or len(held) <= self.max_items:
            return {user: 1.0}
        drawn = list(itertools.combinations(held, self.max_items))
        return {
            tuple(n if i in kept else 0 for i, n in enumerate(user)): 1 / len(drawn)
            for kept in drawn
        }

    def law(
        self, mechanism: m.LimitedDomain, data: tuple[Counts, ...], rank: Rank = padded_rank
    ) -> Law:
        """The law of the list that is released of a data set."""
        found: Law = defaultdict(float)
        for drawn in itertools.product(*(self.contributed(user).items() for user in data)):
            counts = tuple(map(sum, zip(*(moves for moves, _ in drawn), strict=True)))
            for listed, chance in law_of_list(mechanism, counts, rank).items():
                found[listed] += chance * math.prod(p for _, p in drawn)
        return found

    def neighbors(
        self, relation: NeighboringRelation
    ) -> list[tuple[tuple[Counts, ...], tuple[Counts, ...]]]:
        """All ordered pairs: one user is there or not, or has anything else."""
        kinds, pairs = self.users_data(), []
        for others in itertools.combinations_with_replacement(kinds, self.users - 1):
            for first, second in itertools.permutations(kinds, 2):
                if relation is REPLACE or kinds[0] in (first, second):
                    pairs.append(
                        (tuple(sorted((*others, first))), tuple(sorted((*others, second))))
                    )
        return pairs

    def worst(
        self, mechanism: m.LimitedDomain, relation: NeighboringRelation, rank: Rank = padded_rank
    ) -> Any:
        """The largest divergences between neighbors, of the lists and of their lengths."""
        laws, pairs = laws_of(self, mechanism, rank), self.neighbors(relation)
        p, q = (np.array([laws[pair[side]] for pair in pairs]) for side in (0, 1))
        delta0 = mechanism.failure(relation)
        sizes = np.cumsum([0, *(math.perm(self.items, n) for n in range(mechanism.k + 1))])[:-1]
        lengths = [np.add.reduceat(law, sizes[sizes < law.shape[1]], axis=1) for law in (p, q)]
        return [renyi_divergence(a, b, delta0).max(axis=0) for a, b in ((p, q), lengths)]


@cache
def laws_of(
    world: World, mechanism: m.LimitedDomain, rank: Rank = padded_rank
) -> dict[tuple[Counts, ...], oracles.Array]:
    """The laws of all data sets over all lists, users in any order being one data set."""
    lists = [
        s for n in range(mechanism.k + 1) for s in itertools.permutations(range(world.items), n)
    ]
    return {
        data: np.array([law.get(listed, 0.0) for listed in lists])
        for data in itertools.combinations_with_replacement(world.users_data(), world.users)
        for law in [world.law(mechanism, data, rank)]
    }


CROWD = "six users, whose items are mostly named"
WORLDS = {
    "three users of two items": World(3, 2),
    "a domain of one": World(3, 2, given={"k": 1, "kbar": 1}),
    "more places than items": World(3, 2, given={"kbar": 5}),
    "two users of three items": World(2, 3, given={"scale": 0.3}),
    "items that count twice": World(3, 2, max_each=2),
    "two items of each user": World(2, 3, max_items=2),
    "one item of each user": World(3, 3, max_items=1),
    "one item of each user, twice": World(2, 2, max_each=2, max_items=1),
    "failures that are often met": World(3, 2, given={"delta": 0.3, "scale": 1.0}),
    CROWD: World(6, 2, given={"delta": 1e-3, "scale": 0.35}),
}


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize("name", WORLDS)
def test_no_neighbors_differ_more_than_is_paid(name: str, relation: NeighboringRelation) -> None:
    world = WORLDS[name]
    for set_for in NeighboringRelation:
        mechanism = world.mechanism(set_for)
        event = mechanism.event(relation)
        for worst in world.worst(mechanism, relation):
            assert_paid(worst, event.cost(ORDERS).rdp, event)


@pytest.mark.parametrize("name", WORLDS)
def test_what_one_user_alone_has_is_named_with_the_probability_of_failure(name: str) -> None:
    world = WORLDS[name]
    mechanism, worst = world.mechanism(ADD), 0.0
    for data in laws_of(world, mechanism):
        alone = {i for i in range(world.items) if sum(user[i] > 0 for user in data) == 1}
        held = {i for i in range(world.items) if any(user[i] for user in data)}
        law = world.law(mechanism, data)
        worst = max(
            worst, sum(chance for listed, chance in law.items() if alone.intersection(listed))
        )
        assert all(held.issuperset(listed) for listed in law)
    assert 0 < worst <= mechanism.delta


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_a_threshold_above_the_last_that_exists_is_refuted(relation: NeighboringRelation) -> None:
    """It rises with an item that is missing, and so tells that there are fewer."""
    world = WORLDS[CROWD]
    mechanism = world.mechanism(relation)
    event = mechanism.event(relation)
    with pytest.raises(AssertionError):
        assert_paid(world.worst(mechanism, relation, last_rank)[0], event.cost(ORDERS).rdp, event)


def test_a_domain_without_a_threshold_is_refuted() -> None:
    world = WORLDS["three users of two items"]
    mechanism = world.mechanism(ADD)
    event = replace(mechanism, delta=1e-9).event(ADD)
    with pytest.raises(AssertionError):
        assert_paid(
            world.worst(mechanism, ADD, lambda counts, kbar: -50)[0], event.cost(ORDERS).rdp, event
        )


@pytest.mark.parametrize(
    ("words", "bounds"),
    [
        (("aab", "ab", "a"), {}),
        (("aab", "aac", "abc"), {"max_each": 2, "max_items": 2}),
        (("", ""), {}),
    ],
)
def test_lists_follow_the_law(words: tuple[str, ...], bounds: dict[str, int]) -> None:
    """From the users to the names: what is drawn is what was enumerated."""
    world = World(len(words), 3, given={"scale": 1.5, "delta": 0.3, "kbar": 3}, **bounds)
    mechanism = world.mechanism(REPLACE)
    data = tuple(tuple(min(word.count(name), world.max_each) for name in "abc") for word in words)
    law = world.law(mechanism, data)
    generator, drawn = m.seeded_generator(0), []
    for _ in range(400):
        kept = [list(world.contributed(user)) for user in data]  # as likely as each other
        counts = np.sum([moves[generator.integers(len(moves))] for moves in kept], axis=0)
        named = np.flatnonzero(counts)
        blanks = np.zeros(mechanism.kbar + 1, dtype=np.int64)
        items = mechanism(np.concatenate([counts[named], blanks]), generator=generator).items
        drawn.append(tuple(named[items[(items >= 0) & (items < named.size)]].tolist()))
    lists = list(law)
    observed = np.bincount([lists.index(listed) for listed in drawn], minlength=len(lists))
    assert chi_square_p_value(observed, 400 * np.array(list(law.values()))) > 1e-4
