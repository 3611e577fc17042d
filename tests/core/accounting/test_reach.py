"""The reach of a unit belongs to the ledger: each release declares a number of teachers, sums are
for the largest."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from pate._core.accounting.charges import Charge, Events, account, for_group_size
from pate._core.validation import FloatArray
from pate.accounting import (
    Budget,
    Ledger,
    NeighboringRelation,
    Statement,
    read_ledger,
    verify_ledger,
)
from pate.mechanisms import GumbelPeeling
from tests.core.accounting.ledgers import REPLACE, TEACHER, gaussian
from tests.statements import PUBLISHED, RECORDS

SHARED = Budget(max_epsilon=1.5, delta=1e-5, neighboring_relation=REPLACE, max_teachers_per_unit=2)
NO_PRESET = Budget(max_epsilon=1.5, delta=1e-5, neighboring_relation=REPLACE)


def reserve(
    path: Path, events: Events, count: int, *, teachers: int = 1, budget: Budget | None = None
) -> int:
    ledger = Ledger(path, max_teachers_per_unit=teachers)
    named = {"run": "run", "description": "test", "delta": 1e-5, "privacy_unit": RECORDS}
    release = ledger.reserve(events, count=count, seeded=False, budget=budget, **named)  # type: ignore[arg-type]
    ledger.settle(release, published=PUBLISHED | {"delta": 1e-5, "max_teachers_per_unit": teachers})
    return release


def epsilon(charges: list[Charge], relation: NeighboringRelation = REPLACE) -> float:
    return account(charges, relation).get_epsilon(delta=1e-5)


def test_sums_are_for_the_units_that_reach_most(path: Path) -> None:
    """Whichever came first; the same in the ledger, and in every statement on it."""
    once: Charge = (gaussian(40), 3)
    for order in ((2, 1), (1, 2), (1, 3, 2)):
        path.unlink(missing_ok=True)
        for teachers in order:
            reserve(path, *once, teachers=teachers)
        book, most = verify_ledger(path), max(order)
        assert [entry.max_teachers_per_unit for entry in book.entries] == list(order)
        wide = for_group_size([once] * len(order), most)
        assert book.max_teachers_per_unit == most and book.reserved() == book.charges() == wide
        for release in range(1, len(order) + 1):
            stated = Statement.of(book, release)
            assert stated["max_teachers_per_unit"] == most
            for relation in NeighboringRelation:
                assert stated["guarantees"][relation.value]["epsilon"] == pytest.approx(
                    epsilon(wide, relation)
                )
                assert stated["costs"][relation.value]["epsilon"] == pytest.approx(
                    epsilon(wide, relation)
                )
                alone = epsilon(for_group_size([once], most), relation)
                assert stated["this_release"][relation.value]["epsilon"] == pytest.approx(alone)
            assert f"which reaches {most} teachers at most" in stated.text
            stated.verify(ledger=path)
            stated.verify()


OTHERS = 12  # teachers besides those that a unit reaches


def neighbors(
    relation: NeighboringRelation, reached: int, scale: float
) -> tuple[FloatArray, FloatArray]:
    """Return the laws ``[N, 2]`` of a choice of one label of two for all neighbors, by all ballots
    that can be cast."""
    ballots = list(product(range(reached + 1), repeat=2))
    pairs = product(
        range(-OTHERS, OTHERS + 1), ballots, [(0, 0)] if relation is TEACHER else ballots
    )
    leads = {
        (others + before[0] - before[1], others + after[0] - after[1])
        for others, before, after in pairs
    }
    both = np.array([*leads, *((after, before) for before, after in leads)])
    first = expit(both / scale)
    return np.stack([first[:, 0], 1 - first[:, 0]], axis=1), np.stack(
        [first[:, 1], 1 - first[:, 1]], axis=1
    )


def exact_delta(relation: NeighboringRelation, reached: tuple[int, int], epsilon: float) -> float:
    """Return the least delta at ``epsilon`` of two releases to a unit that reaches so many teachers
    of each."""
    (p, q), (r, s) = (neighbors(relation, m, 1.0) for m in reached)
    here, there = (np.einsum("ia,jb->ijab", one, other) for one, other in ((p, r), (q, s)))
    return float(np.maximum(0.0, here - np.exp(epsilon) * there).sum(axis=(2, 3)).max())


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_two_releases_of_two_teachers_and_one_by_enumeration(
    relation: NeighboringRelation, path: Path
) -> None:
    """All neighbors of a choice of one label of two, where a unit reaches two teachers of one release, one of another.

    The sum for units that reach one teacher, which statements gave, is refuted.
    """
    events = GumbelPeeling(k=1, scale=1.0).events()
    for teachers in (2, 1):
        reserve(path, events, 1, teachers=teachers)
    book = read_ledger(path)
    stated, narrow = account(book.reserved(), relation), account(book.reserved(1), relation)
    refuted = []
    for level in (0.5, 1.0, 2.0, 3.0):
        exact = exact_delta(relation, (2, 1), level)
        assert exact <= stated.get_delta(level) * (1 + 1e-9)
        refuted.append(exact > narrow.get_delta(level))
    assert any(refuted)


def exact_delta_of_rounds(reached: int, rounds: int, epsilon: float) -> float:
    """Return the least delta of many rounds of one pair of neighbors, the worst of all."""
    laws = (
        binom.pmf(np.arange(rounds + 1), rounds, law[:, :1])
        for law in neighbors(REPLACE, reached, 4.0)
    )
    here, there = laws
    return float(np.maximum(0.0, here - np.exp(epsilon) * there).sum(axis=1).max())


@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
def test_a_budget_for_units_of_two_teachers_by_enumeration(kind: str, path: Path) -> None:
    """What the filter admits keeps the budget for units that reach two; one for units of one
    teacher would not."""
    events = GumbelPeeling(k=1, scale=4.0).events()
    limits = {"max_epsilon": 4.0, "delta": 1e-3, "neighboring_relation": REPLACE, "filter": kind}
    counts = {}
    for teachers in (1, 2):
        place = path.with_name(f"{teachers}.sqlite")
        budget = Budget(**limits, max_teachers_per_unit=teachers)  # type: ignore[arg-type]
        reserve(place, events, 1, teachers=teachers, budget=budget)
        with pytest.raises(
            ValueError, match=r"^Expected epsilon <= 4 at [^\n]*: \d+ such queries can be paid$"
        ) as raised:
            reserve(place, events, 1000, teachers=teachers)
        left = int(str(raised.value).split()[-6])
        reserve(place, events, left, teachers=teachers)
        counts[teachers] = sum(entry.count for entry in verify_ledger(place).entries)
    assert 1 < counts[2] < counts[1]
    assert (
        exact_delta_of_rounds(2, counts[2], 4.0) <= 1e-3 < exact_delta_of_rounds(2, counts[1], 4.0)
    )


def test_a_budget_is_for_units_that_it_names(path: Path) -> None:
    """For others it is refused; a statement's headline is the budget, and so is what it says that
    it is for."""
    once = gaussian(40)
    reserve(path, once, 3, teachers=2, budget=SHARED)
    with pytest.raises(
        ValueError, match=r"^Expected max_teachers_per_unit <= 2, the units [^\n]*, got [^\n]*=3$"
    ):
        reserve(path, once, 1, teachers=3)
    with pytest.raises(
        ValueError, match=r"^Expected the budget of the ledger, [^\n]*max_teachers_per_unit=2, got"
    ):
        reserve(path, once, 1, budget=NO_PRESET)
    reserve(path, once, 3)  # one teacher at most is two at most
    book = verify_ledger(path)
    for release in (1, 2):
        stated = Statement.of(book, release)
        stated.verify(ledger=path)
        stated.verify()
        guarantee = stated["guarantees"]["replace_record"]
        assert (guarantee["epsilon"], guarantee["fixed_by"]) == (1.5, "budget")
        assert (
            "which reaches 2 teachers at most" in guarantee["neighbors"]
            and stated["budget"] == SHARED.to_dict()
        )
        assert (
            stated["costs"]["replace_record"]["epsilon"]
            == epsilon(for_group_size([(once, 6)], 2))
            < 1.5
        )
    with pytest.raises(
        ValueError,
        match=r"^Expected epsilon <= 1.5 at delta = 1e-05[^\n]*: \d such queries can be paid$",
    ):
        reserve(path, once, 10)
    # for units of one teacher they fit
    reserve(path.with_name("alone.sqlite"), once, 10, budget=NO_PRESET)
