"""For whom releases add up: every sum is compared with the truth on small neighbors."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pate._core.accounting.history import EACH, RECORD
from pate.accounting import (
    Budget,
    GaussianEvent,
    Ledger,
    NeighboringRelation,
    PrivacyUnit,
    Statement,
    gaussian_epsilon,
    read_ledger,
    verify_ledger,
)
from tests.core.accounting.ledgers import ONE_LINE, REPLACE, TEACHER, gaussian
from tests.statements import PUBLISHED

VOTERS = PrivacyUnit(unit="record", partition=EACH)
GROUPS = PrivacyUnit(unit="group", grouping="a", partition=EACH)
BOUNDED = PrivacyUnit(unit="record", grouping="a", partition="p", max_teachers_per_group=3)
TEACHERS = PrivacyUnit(unit="record", partition="q")
UNITS = [
    VOTERS,
    GROUPS,
    BOUNDED,
    TEACHERS,
    PrivacyUnit(unit="group", grouping="b", partition=EACH),
    PrivacyUnit(unit="group", grouping="a", partition="t"),
    PrivacyUnit(unit="record", partition="r"),
    PrivacyUnit(unit="user", partition=EACH),
    PrivacyUnit(unit="patient", partition="s"),
]


def reserved(folder: Path, *units: PrivacyUnit, budget: Budget | None = None) -> Ledger:
    ledger = Ledger(folder / "ledger.sqlite")
    for number, unit in enumerate(units):
        release = ledger.reserve(
            gaussian(4.0),
            count=1,
            run=f"run{number}",
            description="NoisyVotes",
            seeded=False,
            budget=budget,
            privacy_unit=unit,
        )
        ledger.settle(release, published=PUBLISHED | {"unit": unit.unit})
    return ledger


def moves(row: PrivacyUnit, change: PrivacyUnit, relation: NeighboringRelation) -> set[int]:
    """The ballots that may move, and how, by brute force on a world of six records.

    Records are numbered; record i belongs to group i // 3 of grouping a, and i % 2 of grouping b.
    Returns the numbers of ballots that one change moves, or an infinite one where a ballot changes
    that under ADD_REMOVE_TEACHER must only come or go.
    """
    far, records = 10**6, range(6)
    group: dict[str, Callable[[int], int]] = {"a": lambda i: i // 3, "b": lambda i: i % 2}
    cut: dict[str, Callable[[int], int]] = {
        "p": lambda i: i,
        "q": lambda i: i % 4,
        "r": lambda i: i % 5,
        "t": lambda i: i // 3,
    }

    def voter(unit: PrivacyUnit, i: int) -> object:
        if unit.partition not in (EACH, None):
            return unit.partition, cut[unit.partition](i)
        return (unit.unit, i if unit.unit != "group" else group[unit.grouping or "a"](i))

    def members(unit: PrivacyUnit) -> list[set[int]]:
        if relation is TEACHER:  # a teacher takes part or does not, with all of its records
            names = [voter(unit, i) for i in records]
            return [{i for i in records if names[i] == name} for name in set(names)]
        if unit.unit != "group":
            return [{i} for i in records]
        of = [group[unit.grouping or "a"](i) for i in records]
        return [{i for i in records if of[i] == name} for name in set(of)]

    found = set()
    for gone in members(change):
        touched = {voter(row, i) for i in gone}
        left = {voter(row, i) for i in records if i not in gone}
        found.add(far if relation is TEACHER and touched & left else len(touched))
    return found


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_a_unit_holds_as_many_as_one_change_moves(relation: NeighboringRelation) -> None:
    known = [unit for unit in UNITS if unit.unit in ("record", "group")]
    for row, other in product(known, repeat=2):
        held = row.held_by(other, relation)
        if held is not None:
            assert max(moves(row, other, relation)) <= held, (row, other)
    # not everything is refused
    sums = [row.held_by(other, relation) for row, other in product(known, repeat=2)]
    assert sum(held is not None for held in sums) >= len(known)


def test_a_record_is_in_its_group_and_a_group_not_in_a_record() -> None:
    assert GROUPS.held_by(RECORD, REPLACE) == 1
    assert VOTERS.held_by(GROUPS, REPLACE) is None
    assert BOUNDED.held_by(GROUPS, REPLACE) == 3
    # brute force would refute the sums that were stated without the unit
    assert max(moves(VOTERS, GROUPS, REPLACE)) == 3
    assert max(moves(TEACHERS, VOTERS, TEACHER)) > 3


def test_units_are_written_and_read() -> None:
    for unit in UNITS:
        assert PrivacyUnit.from_dict(unit.to_dict()) == unit
    with pytest.raises(ValueError, match=ONE_LINE):
        PrivacyUnit.from_dict({"units": "record"})
    with pytest.raises(ValueError, match=ONE_LINE):
        PrivacyUnit(unit="record", max_teachers_per_group=2)


def stated(ledger: Ledger, relation: NeighboringRelation) -> tuple[str | None, Any]:
    statement = Statement.of(ledger.snapshot(), len(ledger.entries()))
    statement.verify(ledger=ledger.path)
    statement.verify()
    guarantee = statement["guarantees"][relation.value]
    return guarantee["unit"], guarantee["epsilon"]


def epsilon(number: float, relation: NeighboringRelation) -> float:
    event = gaussian(4.0)[relation]
    assert isinstance(event, GaussianEvent)
    return gaussian_epsilon(1e-6, number**0.5 / event.noise_multiplier)


def test_records_and_groups_have_a_total_for_a_record(tmp_path: Path) -> None:
    ledger = reserved(tmp_path, VOTERS, GROUPS)
    assert stated(ledger, REPLACE) == ("record", pytest.approx(epsilon(2, REPLACE)))
    assert stated(ledger, TEACHER) == (None, None)
    text = Statement.of(ledger.snapshot(), 2).text
    assert (
        "There is no total for one group by `a` under REPLACE_RECORD: release 1 is priced for one record."
        in text
    )
    assert "release 1 is of teachers not known to be the same." in text
    assert "keeps its id and its group" in text


def test_groups_of_one_grouping_have_a_total(tmp_path: Path) -> None:
    ledger = reserved(tmp_path, GROUPS, GROUPS)
    assert stated(ledger, REPLACE) == ("group", pytest.approx(epsilon(2, REPLACE)))
    assert stated(ledger, TEACHER) == ("group", pytest.approx(epsilon(2, TEACHER)))
    other = reserved(tmp_path, PrivacyUnit(unit="group", grouping="b", partition=EACH))
    assert stated(other, REPLACE) == ("record", pytest.approx(epsilon(3, REPLACE)))


def test_a_bound_makes_a_record_release_payable_for_a_group(tmp_path: Path) -> None:
    ledger = reserved(tmp_path, BOUNDED, GROUPS)
    # three records move three ballots: mu is 3 times as large
    assert stated(ledger, REPLACE) == ("group", pytest.approx(epsilon(9 + 1, REPLACE)))
    assert "keeps its id, as its records do, where it is altered" in (
        Statement.of(ledger.snapshot(), 2).text
    )


def test_teachers_of_two_partitions_have_no_total(tmp_path: Path) -> None:
    ledger = reserved(tmp_path, VOTERS, TEACHERS)
    assert stated(ledger, REPLACE) == ("record", pytest.approx(epsilon(2, REPLACE)))
    assert stated(ledger, TEACHER) == (None, None)
    same = reserved(tmp_path / "same", TEACHERS, TEACHERS)
    assert stated(same, TEACHER) == ("record", pytest.approx(epsilon(2, TEACHER)))


def budget(relation: NeighboringRelation) -> Budget:
    return Budget(max_epsilon=9.0, delta=1e-6, neighboring_relation=relation)


@pytest.mark.parametrize(
    ("relation", "first", "then", "accepted"),
    [
        (REPLACE, VOTERS, GROUPS, True),
        (REPLACE, GROUPS, VOTERS, False),
        (REPLACE, GROUPS, BOUNDED, True),
        (REPLACE, VOTERS, TEACHERS, True),
        (TEACHER, VOTERS, TEACHERS, False),
        (TEACHER, TEACHERS, TEACHERS, True),
    ],
)
def test_a_budget_keeps_to_the_unit_that_it_was_declared_for(
    tmp_path: Path,
    relation: NeighboringRelation,
    first: PrivacyUnit,
    then: PrivacyUnit,
    accepted: bool,
) -> None:
    ledger = reserved(tmp_path, first, budget=budget(relation))
    if not accepted:
        with pytest.raises(ValueError, match=r"^Expected release [12] priced for [^\n]*$"):
            reserved(tmp_path, then)
        assert len(read_ledger(ledger.path).entries) == 1
        return
    reserved(tmp_path, then)
    book = verify_ledger(ledger.path)
    # the budget pays what the release costs the unit of the budget
    held = then.held_by(first, relation)
    assert held is not None
    once = gaussian(4.0)[relation]
    assert isinstance(once, GaussianEvent)
    assert book.spent(relation).mu_squared == pytest.approx(
        (1 + held**2) / once.noise_multiplier**2
    )


def test_a_budget_refuses_earlier_releases_for_others(tmp_path: Path) -> None:
    reserved(tmp_path, VOTERS)
    with pytest.raises(ValueError, match=r"release 1 priced for one group by `a`, for whom"):
        reserved(tmp_path, GROUPS, budget=budget(REPLACE))
    # one that can be priced is, also where it came before the budget
    other = reserved(tmp_path / "other", BOUNDED)
    reserved(tmp_path / "other", GROUPS, budget=budget(REPLACE))
    assert verify_ledger(other.path).spent(REPLACE).mu_squared == pytest.approx(10 / 4)


def test_a_budget_for_records_promises_groups_nothing(tmp_path: Path) -> None:
    ledger = reserved(tmp_path, VOTERS, budget=budget(REPLACE))
    reserved(tmp_path, GROUPS)
    statement = Statement.of(ledger.snapshot(), 2)
    guarantee = statement["guarantees"]["replace_record"]
    assert (guarantee["unit"], guarantee["fixed_by"]) == ("record", "budget")
    assert "There is no total for one group by `a` under REPLACE_RECORD" in statement.text
