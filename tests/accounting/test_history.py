"""What the rows of a ledger mean: stated epsilons, heads, and rows that no ledger writes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.accounting._charges import Events
from pate.accounting._cost import DEFAULT_ORDERS
from pate.accounting._history import Book
from pate.accounting._ledger import Ledger, read_ledger
from pate.accounting._log import Head
from pate.accounting._relation import NeighboringRelation
from pate.accounting._verification import verify_ledger
from tests.accounting import oracles
from tests.accounting.ledgers import expect_stop, forge, gaussian, reserve, stable


def test_stated_epsilons_are_those_of_all_releases_so_far(path: Path) -> None:
    ledger = Ledger(path)
    charges: list[tuple[Events, int]] = []
    for i in range(6):
        events = stable() if i % 2 else gaussian(20 + i)
        ledger.reserve(events, count=1 + i, run="run", description="text", seeded=False, delta=10.0 ** -(3 + i))
        charges.append((events, 1 + i))
        if i == 3:
            ledger.settle(4, realised=[(stable(), 1)])
    for i, entry in enumerate(verify_ledger(path).entries):
        assert entry.stated is not None and entry.stated["delta"] == 10.0 ** -(3 + i)
        so_far = charges[: i + 1]
        if i > 3:
            so_far[3] = (stable(), 1)
        for relation in NeighboringRelation:
            total = [events[relation].cost() for events, _ in so_far]
            rdp = sum(n * each.rdp for (_, n), each in zip(so_far, total, strict=True))
            delta0 = -math.expm1(sum(n * math.log1p(-each.delta0) for (_, n), each in zip(so_far, total, strict=True)))
            rest = (entry.stated["delta"] - delta0) / (1 - delta0)
            epsilon = oracles.epsilon_of_curve(np.asarray(rdp).tolist(), DEFAULT_ORDERS.tolist(), rest)
            assert entry.stated[relation.value] == pytest.approx(epsilon, rel=1e-9)
    assert ledger.entries()[-1].stated is not None


def test_an_epsilon_without_bound_is_stated_as_null(path: Path) -> None:
    ledger = Ledger(path)
    ledger.reserve(stable(), count=10, run="run", description="text", seeded=False, delta=1e-9)
    (entry,) = verify_ledger(path).entries
    assert entry.stated == {"delta": 1e-9, "replace_record": None, "add_remove_teacher": None}


def test_a_head_names_the_history(path: Path) -> None:
    ledger = Ledger(path)
    assert ledger.head == Book().head == Head(0, "") and Book().follows(Head())
    heads = [ledger.head]
    for i in range(3):
        reserve(ledger, gaussian(60 + i), 1)
        heads.append(ledger.head)
    assert [head.rows for head in heads] == [0, 1, 2, 3] and len({head.digest for head in heads}) == 4
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
    assert not other.book().follows(heads[1]) and not other.book().follows(Head(-1, other.head.digest))


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 10**400},
        {"count": 2**53 + 1},
        {"count": 0},
        {"count": True},
        {"stated": {"delta": 1e-6}},
        {"stated": {"delta": 2.0, "replace_record": 1.0, "add_remove_teacher": 1.0}},
        {"stated": {"delta": 1e-6, "replace_record": "1", "add_remove_teacher": 1.0}},
        {"events": {}},
        {"events": None},
        {"kind": "gift"},
        {"token": 3},
    ],
)
def test_a_malformed_row_stops(path: Path, changes: dict[str, Any]) -> None:
    row = {"kind": "reserve", "at": "", "run": "", "description": "", "count": 1, "seeded": False, "stated": None}
    row |= {"events": {relation.value: event.to_dict() for relation, event in gaussian(60).items()}}
    verify_ledger(forge(path, [row]))
    expect_stop(forge(path.with_name("malformed"), [row | changes]))


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
        return {relation.value: event.to_dict() for relation, event in gaussian(noise_multiplier).items()}

    row = {"kind": "reserve", "at": "", "run": "", "description": "", "count": 3, "seeded": False, "stated": None}
    row["events"] = plain(60)
    settled = {"kind": "settle", "at": "", "release": 1, "realised": [{"events": plain(60), "count": 1}]}
    (entry,) = verify_ledger(forge(path, [row, settled])).entries
    assert entry.settled and entry.charges == ((gaussian(60), 1),)
    if "realised" in changes:
        changes = {"realised": [{"events": plain(noise), "count": count} for count, noise in changes["realised"]]}
    expect_stop(forge(path.with_name("malformed"), [row, settled | changes]))
    expect_stop(forge(path.with_name("twice"), [row, settled, settled]))
