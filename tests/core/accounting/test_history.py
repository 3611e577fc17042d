"""What the rows of a ledger mean: releases, heads, and rows that no ledger writes."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from pate._core.accounting.history import History
from pate.accounting import (
    Ledger,
    LedgerEntry,
    LedgerHead,
    LedgerSnapshot,
    read_ledger,
    verify_ledger,
)
from tests.core.accounting.ledgers import (
    BUDGET,
    bodies,
    forge,
    gaussian,
    require_stop,
    reserve,
    stable,
)
from tests.statements import RECORDS


def test_a_row_holds_events_and_no_epsilon_that_another_theorem_would_change(path: Path) -> None:
    ledger = Ledger(path)
    for i in range(3):
        ledger.reserve(
            stable(),
            count=1,
            run="run",
            description="text",
            seeded=False,
            delta=10.0 ** -(3 + i),
            privacy_unit=RECORDS,
        )
    reserve(ledger, gaussian(60), 1, BUDGET)
    rows = bodies(path)
    assert [entry.delta for entry in verify_ledger(path).entries] == [
        1e-3,
        1e-4,
        1e-5,
        BUDGET.delta,
    ]
    reserved = {
        "kind",
        "at",
        "events",
        "count",
        "delta",
        "max_teachers_per_unit",
        "privacy_unit",
        "run",
        "description",
        "seeded",
    }
    assert all(row.keys() == reserved for row in rows if row["kind"] == "reserve")
    # of ledgers that have sums by curves in their rows, the events are read
    older = [
        row | {"stated": {"delta": 1e-6, "replace_record": 9.0, "add_remove_teacher": None}}
        for row in rows
    ]
    assert (
        verify_ledger(forge(path.with_name("older"), older)).charges()
        == ledger.snapshot().charges()
    )


def test_a_head_names_the_history(path: Path) -> None:
    ledger = Ledger(path)
    assert ledger.head == LedgerSnapshot().head == LedgerHead(0, "") and LedgerSnapshot().follows(
        LedgerHead()
    )
    heads = [ledger.head]
    for i in range(3):
        reserve(ledger, gaussian(60 + i), 1)
        heads.append(ledger.head)
    assert [head.rows for head in heads] == [0, 1, 2, 3] and len(
        {head.digest for head in heads}
    ) == 4
    old = path.read_bytes()
    ledger.settle(2)
    book = verify_ledger(path)
    assert book.head == ledger.head == Ledger(path).head and book.head.rows == 4
    assert all(book.follows(head) for head in [*heads, book.head])
    path.write_bytes(old)  # an older copy
    older = read_ledger(path)
    assert not older.follows(book.head) and older.follows(heads[3])
    other = Ledger(path.with_name("other"))
    reserve(other, gaussian(70), 1)
    assert not other.snapshot().follows(heads[1]) and not other.snapshot().follows(
        LedgerHead(-1, other.head.digest)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 10**400},
        {"count": 2**53 + 1},
        {"count": 0},
        {"count": True},
        {"delta": 2.0},
        {"delta": "1e-6"},
        {"events": {}},
        {"events": None},
        {"kind": "gift"},
        {"token": 3},
    ],
)
def test_a_malformed_row_stops(path: Path, changes: dict[str, Any]) -> None:
    row = {
        "kind": "reserve",
        "at": "",
        "run": "",
        "description": "",
        "count": 1,
        "seeded": False,
        "delta": None,
    }
    row |= {"events": {relation.value: event.to_dict() for relation, event in gaussian(60).items()}}
    verify_ledger(forge(path, [row]))
    require_stop(forge(path.with_name("malformed"), [row | changes]))


@pytest.mark.parametrize(
    "changes",
    [
        {"release": 0},
        {"release": -1},
        {"release": 2},
        {"release": True},
        {"realised": [(2, 60), (-1, 60)]},
        {"realised": [(-1, 60)]},
        {"realised": [(1.0, 60)]},
        {"realised": [(True, 60)]},
        {"realised": [(2**53 + 1, 1e12)]},
        {"realised": [(4, 60)]},
        {"realised": [(1, 30)]},
    ],
)
def test_a_malformed_settlement_stops(path: Path, changes: dict[str, Any]) -> None:
    """Above all one of negative counts, which would give a budget back that was never reserved."""

    def plain(noise_multiplier: float) -> dict[str, Any]:
        return {
            relation.value: event.to_dict()
            for relation, event in gaussian(noise_multiplier).items()
        }

    row = {
        "kind": "reserve",
        "at": "",
        "run": "",
        "description": "",
        "count": 3,
        "seeded": False,
        "delta": None,
    }
    row["events"] = plain(60)
    settled = {
        "kind": "settle",
        "at": "",
        "release": 1,
        "realised": [{"events": plain(60), "count": 1}],
    }
    (entry,) = verify_ledger(forge(path, [row, settled])).entries
    assert entry.settled and entry.charges == ((gaussian(60), 1),)
    if "realised" in changes:
        changes = {
            "realised": [
                {"events": plain(noise), "count": count} for count, noise in changes["realised"]
            ]
        }
    require_stop(forge(path.with_name("malformed"), [row, settled | changes]))
    require_stop(forge(path.with_name("twice"), [row, settled, settled]))


def test_what_was_published_can_be_stated_anew_once_a_release_is_settled(path: Path) -> None:
    row = {
        "kind": "reserve",
        "at": "",
        "run": "",
        "description": "",
        "count": 3,
        "seeded": False,
        "delta": None,
    }
    row["events"] = {relation.value: event.to_dict() for relation, event in gaussian(60).items()}
    settled = {
        "kind": "settle",
        "at": "",
        "release": 1,
        "realised": None,
        "published": {"kind": "one"},
    }
    state = {"kind": "state", "at": "", "release": 1, "published": {"kind": "two"}}
    (entry,) = verify_ledger(forge(path, [row, settled, state])).entries
    assert entry.published == {"kind": "two"}
    for number, rows in enumerate(([row, state], [row, settled, state | {"published": "two"}])):
        forged = forge(path.with_name(f"malformed{number}"), rows)
        require_stop(forged)
        with pytest.raises(
            ValueError, match=f", got row {len(rows)}: Expected published facts as an object"
        ):
            read_ledger(forged)


def test_a_settlement_ends_where_it_was_recorded(path: Path) -> None:
    ledger, heads = Ledger(path), []
    for number in (1, 2, 3):
        reserve(ledger, gaussian(60), 3)
        # all that was reserved, in two parts, whose sum may exceed it by rounding
        heads.append(
            ledger.settle(
                number, realised=[(gaussian(60), 1), (gaussian(60), 2), (gaussian(60), 0)]
            )
        )
    assert [head.rows for head in heads] == [2, 4, 6]
    again = [[(gaussian(60), 1), (gaussian(60), 2), (gaussian(60), 0)]] * 3
    assert [
        ledger.settle(number, realised=paid) for number, paid in zip((1, 2, 3), again, strict=True)
    ] == heads
    assert Ledger(path).settle(2, realised=again[1]) == heads[1]
    for entry in ledger.entries():
        assert LedgerEntry.from_dict(entry.to_dict()) == entry


def test_without_a_budget_none_was_declared(path: Path) -> None:
    ledger = Ledger(path)
    assert LedgerSnapshot() == History().snapshot() and LedgerSnapshot().declared_after == 0
    reserve(ledger, gaussian(60), 3)
    assert ledger.snapshot().declared_after == 0
    assert "digests" not in repr(ledger.snapshot())


@pytest.mark.parametrize(("excess", "within"), [(0.8e-12, True), (1.3e-12, False)])
def test_a_settlement_exceeds_what_was_reserved_by_rounding_alone(
    path: Path, excess: float, within: bool
) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 3)
    with (
        nullcontext()
        if within
        else pytest.raises(ValueError, match=r"^Expected at most what release 1 reserved")
    ):
        ledger.settle(1, realised=[(gaussian(60 * (1 - excess / 2)), 3)])
    assert ledger.entries()[0].settled is within
