"""The ledger: what is reserved and settled is remembered, and a malformed call writes nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pate._core.accounting.charges import account
from pate.accounting import (
    BoundedRangeEvent,
    FailureEvent,
    Ledger,
    NeighboringRelation,
    RenyiCurveEvent,
    RepeatedEvent,
    read_ledger,
    verify_ledger,
)
from tests.core.accounting.ledgers import (
    BUDGET,
    ONE_LINE,
    REPLACE,
    TEACHER,
    bodies,
    filled,
    gaussian,
    reserve,
    stable,
)
from tests.statements import RECORDS


def test_releases_are_numbered_and_kept(path: Path) -> None:
    ledger = Ledger(path)
    assert reserve(ledger, stable(), 5) == 1
    assert reserve(ledger, gaussian(30), 2) == 2
    ledger.settle(1)
    ledger.settle(1)
    first, second = Ledger(path).entries()
    assert (first.count, first.settled, first.events) == (5, True, stable())
    assert (second.count, second.settled, second.events) == (2, False, gaussian(30))
    assert read_ledger(path).entries == (first, second)
    assert verify_ledger(path).entries == (first, second)
    assert json.dumps(first.to_dict())


def test_realised_costs_replace_reserved_ones(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, stable(), 10)
    choice = {relation: event.events[0] for relation, event in stable().items()}  # type: ignore[attr-defined]
    ledger.settle(1, realised=[(stable(), 4), (choice, 6)])
    ledger.settle(1, realised=[(stable(), 4), (choice, 6)])
    (entry,) = verify_ledger(path).entries
    assert entry.count == 10 and entry.charges == ((stable(), 4), (choice, 6))
    expected = account([(stable(), 4), (choice, 6)], REPLACE)
    assert ledger.snapshot().spent(REPLACE).delta0 == pytest.approx(expected.delta0)
    with pytest.raises(ValueError, match="Expected release 1 settled once"):
        ledger.settle(1, realised=[(stable(), 3)])


def test_no_more_is_settled_than_was_reserved(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, stable(), 10)
    failure = {r: FailureEvent(delta=0.1, neighboring_relation=r) for r in NeighboringRelation}
    for dearer in ([(stable(), 11)], [(stable(scale_gap=20.0), 10)], [(failure, 1)]):
        with pytest.raises(ValueError, match="Expected at most what release 1 reserved under"):
            ledger.settle(1, realised=dearer)
    assert not ledger.entries()[0].settled
    ledger.settle(1, realised=[(stable(), 0)])
    assert ledger.snapshot().spent(REPLACE).rdp.max() == 0


def unchanged(path: Path, call: Callable[[], object]) -> None:
    before = path.read_bytes()
    with pytest.raises((ValueError, TypeError), match=ONE_LINE):
        call()
    assert path.read_bytes() == before
    verify_ledger(path)
    Ledger(path)


@pytest.mark.parametrize(
    "count", [2**53 + 1, 2**63, 10**400, np.uint64(2**63), True, 1.0, float("nan")]
)
def test_counts_that_overflow_write_nothing(path: Path, count: int) -> None:
    ledger = filled(path)
    unchanged(path, lambda: reserve(ledger, gaussian(60), count))
    ledger.settle(reserve(ledger, gaussian(1e10), 2**53))  # the largest one
    assert verify_ledger(path).entries[-1].count == 2**53


def test_a_settlement_with_swapped_relations_writes_nothing(path: Path) -> None:
    ledger = filled(path)
    release = reserve(ledger, gaussian(60), 2)
    events = gaussian(600)
    swapped = {REPLACE: events[TEACHER], TEACHER: events[REPLACE]}
    for realised in (
        [(swapped, 1)],
        [({REPLACE: events[REPLACE]}, 1)],
        [(events,)],
        [("x", 1)],
        [(None, 1)],
    ):
        unchanged(path, lambda realised=realised: ledger.settle(release, realised=realised))  # type: ignore[misc]
    unchanged(path, lambda: reserve(ledger, swapped, 1))


def test_other_malformed_calls_write_nothing(path: Path) -> None:
    ledger = filled(path)
    wide = {r: BoundedRangeEvent(eta=1.0, neighboring_relation=r) for r in NeighboringRelation}
    many = {r: RepeatedEvent(event=wide[r], count=10**400) for r in NeighboringRelation}
    unchanged(path, lambda: reserve(ledger, many, 1))
    named = {"count": 1, "run": "run", "description": "text", "seeded": False}
    named |= {"privacy_unit": RECORDS}
    for wrong in (
        {"run": 5},
        {"description": None},
        {"run": b"x"},
        {"delta": 0.0},
        {"delta": float("nan")},
    ):
        unchanged(path, lambda wrong=wrong: ledger.reserve(gaussian(600), **(named | wrong)))  # type: ignore[misc]
    for release in (0, -1, 41, 1.0, True, "1", None):
        unchanged(path, lambda release=release: ledger.settle(release))  # type: ignore[misc]
    odd = "\ud800 \0 \n Ä"
    ledger.reserve(gaussian(600), **(named | {"run": odd, "delta": np.float32(1e-6)}))  # type: ignore[arg-type]
    assert verify_ledger(path).entries[-1].run == odd


def test_a_settlement_may_not_trade_one_figure_for_another(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(30), 10)
    # a cheaper curve of which no Gaussian differential privacy is known
    orders, rdp = (2.0, 1e10), (1e-9, 1e-9)
    curve = {
        r: RenyiCurveEvent(orders=orders, rdp=rdp, neighboring_relation=r)
        for r in NeighboringRelation
    }
    with pytest.raises(
        ValueError, match="Expected at most what release 1 reserved under replace_record"
    ):
        ledger.settle(1, realised=[(curve, 1)])
    # under one relation alone
    dear = {REPLACE: gaussian(30)[REPLACE], TEACHER: gaussian(3)[TEACHER]}
    with pytest.raises(
        ValueError, match="Expected at most what release 1 reserved under add_remove_teacher"
    ):
        ledger.settle(1, realised=[(dear, 9)])
    ledger.settle(1, realised=[(gaussian(30), 9)])


def test_a_reservation_is_found_by_its_token(path: Path) -> None:
    """Whoever was killed before learning the number asks again, and pays once."""

    def ask(token: str | None, noise: float = 60, count: int = 10) -> int:
        return reserve(Ledger(path), gaussian(noise), count, BUDGET, token=token)

    assert [ask("a"), ask("b"), ask("a"), ask(None), ask(None), ask("b")] == [1, 2, 1, 3, 4, 2]
    assert [entry.token for entry in verify_ledger(path).entries] == ["a", "b", None, None]
    for noise, count in ((60, 11), (61, 10)):
        with pytest.raises(
            ValueError, match=r"^Expected the cost that release 1 reserved with this token"
        ):
            ask("a", noise, count)
    for token in ("", 3):
        with pytest.raises(ValueError, match=r"^Expected token as a text, got"):
            ask(token)  # type: ignore[arg-type]
    Ledger(path).settle(1)
    assert ask("a") == 1 and len(read_ledger(path).entries) == 4
    # what is paid already is never refused
    with pytest.raises(ValueError, match="can be paid"):
        ask("c", count=100_000)
    assert ask("b") == 2


def test_a_copy_of_a_ledger_is_refused_while_the_original_is_in_its_place(path: Path) -> None:
    copy, moved = path.with_name("copy.sqlite"), path.with_name("moved.sqlite")
    reserve(Ledger(path), gaussian(60), 1)
    Ledger(path, home=path)
    content = path.read_bytes()
    assert read_ledger(path).home == path and len(bodies(path)) == 2
    for home in (path, None):
        Ledger(path, home=home)
    assert path.read_bytes() == content
    copy.write_bytes(content)
    with pytest.raises(
        ValueError,
        match=f"^Expected one ledger [^\n]* `ledger` {path} names the original, got copy=",
    ):
        Ledger(copy, home=copy)
    assert copy.read_bytes() == content
    path.rename(moved)
    Ledger(moved, home=moved)
    assert read_ledger(moved).home == moved
    # where another ledger has taken its place, the original has been moved
    reserve(Ledger(path), gaussian(70), 1)
    Ledger(copy, home=copy)
    assert read_ledger(copy).home == copy
