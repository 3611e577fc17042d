"""The ledger: it forgets nothing, overspends nothing, and stops where it is not what it was."""

import json
import math
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import FrozenInstanceError
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from pate._votes import Panel
from pate.accounting import _log as log
from pate.accounting._budget import Budget, RenyiFilter, affordable, make_filter
from pate.accounting._charges import Events, account, name_of, parse_events, plain_events
from pate.accounting._cost import DEFAULT_ORDERS
from pate.accounting._events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    PureDPEvent,
    RenyiCurveEvent,
    RepeatedEvent,
    StabilityTestEvent,
    total_cost,
)
from pate.accounting._history import Book
from pate.accounting._ledger import Ledger, read_ledger
from pate.accounting._log import Head
from pate.accounting._relation import NeighboringRelation
from pate.accounting._totals import Totals, _terms, as_cost, charge_values
from pate.accounting._verification import verify_ledger
from pate.aggregators._stable_topk import StableTopK
from tests.accounting import oracles

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
ONE_LINE = r"^Expected [^\n]*$"


def gaussian(noise_multiplier: float) -> Events:
    return {
        REPLACE: GaussianEvent(noise_multiplier=noise_multiplier / 2, neighboring_relation=REPLACE),
        TEACHER: GaussianEvent(noise_multiplier=noise_multiplier, neighboring_relation=TEACHER),
    }


def stable(scale_gap: float = 40.0, sigma: float = 60.0) -> Events:
    def event(relation: NeighboringRelation) -> Event:
        choice = BoundedRangeEvent(eta=2 * relation.count_window / scale_gap, neighboring_relation=relation)
        test = StabilityTestEvent(sigma=sigma, delta_test=1e-9, shift=2, num_teachers=50, neighboring_relation=relation)
        return ComposedEvent(events=(choice, test))

    return {relation: event(relation) for relation in NeighboringRelation}


def name(events: Events) -> str:
    return name_of(plain_events(events))


BUDGET = Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=REPLACE)
NO_TESTS = Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=REPLACE, max_delta0=0.0)


def reserve(ledger: Ledger, events: Events, count: int, budget: Budget | None = None) -> int:
    return ledger.reserve(events, count=count, run="run", description="test", seeded=False, budget=budget)


def refused(ledger: Ledger, events: Events, count: int, budget: Budget | None = None) -> str | None:
    """Reserve, and return why that was refused."""
    try:
        reserve(ledger, events, count, budget)
    except ValueError as error:
        return str(error)
    return None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "ledger.sqlite"


# what it remembers


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


def test_what_was_not_settled_counts_in_full(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(30), 5)
    spent = ledger.book().spent(REPLACE)
    ledger.settle(1)
    assert (ledger.book().spent(REPLACE).rdp == spent.rdp).all()
    assert spent.rdp == pytest.approx(5 * gaussian(30)[REPLACE].cost().rdp)


def test_realised_costs_replace_reserved_ones(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, stable(), 10)
    choice = {relation: event.events[0] for relation, event in stable().items()}  # type: ignore[attr-defined]
    ledger.settle(1, realised=[(stable(), 4), (choice, 6)])
    ledger.settle(1, realised=[(stable(), 4), (choice, 6)])
    (entry,) = verify_ledger(path).entries
    assert entry.count == 10 and entry.charges == ((stable(), 4), (choice, 6))
    expected = account([(stable(), 4), (choice, 6)], REPLACE)
    assert ledger.book().spent(REPLACE).delta0 == pytest.approx(expected.delta0)
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
    assert ledger.book().spent(REPLACE).rdp.max() == 0


def test_bad_input_writes_nothing(path: Path) -> None:
    ledger = Ledger(path)
    mixed = {REPLACE: gaussian(3)[TEACHER], TEACHER: gaussian(3)[TEACHER]}
    for events in (mixed, {REPLACE: gaussian(3)[REPLACE]}, {}, {REPLACE: "x", TEACHER: "y"}):
        with pytest.raises(ValueError, match=ONE_LINE):
            reserve(ledger, events, 1)  # type: ignore[arg-type]
    for count in (0, -1, 1.5):
        with pytest.raises(ValueError, match=ONE_LINE):
            reserve(ledger, gaussian(3), count)  # type: ignore[arg-type]
    for release in (0, 1, -1):
        with pytest.raises(ValueError, match="Expected a release among the 0"):
            ledger.settle(release)
    assert ledger.entries() == ()


# the budget


def test_the_first_query_that_cannot_be_paid_is_refused(path: Path) -> None:
    ledger = Ledger(path)
    answered = 0
    while (refusal := refused(ledger, gaussian(60), 1, NO_TESTS)) is None:
        answered += 1
    assert refusal.startswith("Expected epsilon <= 2 at delta = 1e-06 under replace_record")
    assert "; left are 0.00" in refusal and refusal.endswith("of delta0: 0 such queries can be paid")
    within = account([(gaussian(60), answered)], REPLACE).get_epsilon(delta=1e-6)
    beyond = account([(gaussian(60), answered + 1)], REPLACE).get_epsilon(delta=1e-6)
    assert within <= 2.0 < beyond
    assert len(ledger.entries()) == answered
    verify_ledger(path)


def test_a_refused_batch_leaves_no_trace_and_says_what_can_be_paid(path: Path) -> None:
    ledger = Ledger(path)
    with pytest.raises(ValueError, match=r": (\d+) such queries can be paid") as refusal:
        reserve(ledger, stable(), 10_000, BUDGET)
    assert ledger.book().budget is None and ledger.entries() == ()
    payable = int(str(refusal.value).split(": ")[1].split()[0])
    with pytest.raises(ValueError, match="can be paid"):
        reserve(ledger, stable(), payable + 1, BUDGET)
    reserve(ledger, stable(), payable, BUDGET)
    assert account([(stable(), payable)], REPLACE).get_epsilon(delta=1e-6) <= 2.0
    # what a query costs at most at the border, with the tenth of delta that is left for other tests
    total = account([(stable(), payable + 1)], REPLACE)
    assert total.get_epsilon(delta=0.9e-6 + total.delta0) > 2.0 * (1 - 1e-6)


def test_the_budget_of_a_ledger_is_final_and_binds_every_run(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 10, BUDGET)
    for other in (
        Budget(max_epsilon=3.0, delta=1e-6, neighboring_relation=REPLACE),
        Budget(max_epsilon=2.0, delta=1e-5, neighboring_relation=REPLACE),
        Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=TEACHER),
    ):
        with pytest.raises(ValueError, match=r"Expected the budget of the ledger, max_epsilon=2.0"):
            reserve(Ledger(path), gaussian(60), 1, other)
    with pytest.raises(ValueError, match="can be paid"):
        reserve(Ledger(path), gaussian(1), 1)  # names no budget
    assert len(ledger.entries()) == 1


def test_a_budget_on_a_used_ledger_counts_what_was_spent(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 40)
    reserve(ledger, gaussian(60), 1, BUDGET)
    with pytest.raises(ValueError, match="can be paid"):
        reserve(ledger, gaussian(60), 170)
    other = Ledger(path.with_name("other"))
    reserve(other, gaussian(5), 40)
    with pytest.raises(ValueError, match=r"^Expected epsilon <= 2 at [^\n]* before this release, got"):
        reserve(other, gaussian(60), 1, BUDGET)


def test_a_later_budget_covers_earlier_reservations(path: Path) -> None:
    """Else a screen's refusal, whose exact delta at epsilon 0.3 is 15%, would fit into a budget of 0.3."""
    ledger = Ledger(path)
    reserve(ledger, gaussian(5), 40)
    ledger.settle(1, realised=[(gaussian(5), 0)])
    with pytest.raises(ValueError, match=r"^Expected epsilon <= 2 at [^\n]* before this release, got"):
        reserve(ledger, gaussian(60), 1, BUDGET)
    rows = bodies(path)
    other = Ledger(path.with_name("other"))
    reserve(other, gaussian(5), 1, BUDGET)
    declared, first = bodies(other.path)
    first["stated"] = None
    with pytest.raises(ValueError, match=r"Expected row 3 of .* to be within the budget"):
        verify_ledger(forge(path.with_name("forged"), [*rows, declared, first]))


def test_another_kind_of_release_is_held_to_the_order_that_was_fixed(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 100, BUDGET)
    bounds = ledger.book().filter
    assert bounds is not None
    pure = {r: PureDPEvent(epsilon=0.02, neighboring_relation=r) for r in NeighboringRelation}
    paid = 0
    while refused(ledger, pure, 10) is None:
        paid += 10
    book = verify_ledger(path)
    assert paid > 0 and book.filter == bounds
    assert bounds.admits(book.spent(REPLACE, bounds.orders))
    assert account([(gaussian(60), 100), (pure, paid)], REPLACE).get_epsilon(delta=1e-6) <= 2.0


def test_a_part_of_delta_is_set_aside_for_tests_from_the_first_release_on(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 10, BUDGET)
    bounds = ledger.book().filter
    assert bounds is not None and bounds.max_delta0 == 1e-7
    reserve(ledger, stable(), 30)
    message = r"^Expected delta0 <= 1e-07 with all earlier releases \(max_delta0, .*\), got delta0=1.01e-07; left are"
    fits = "70 such queries can be paid, and 71 with tests that fail with probability 9.8e-10 at most"
    with pytest.raises(ValueError, match=rf"{message} [^\n]* and 7e-08 of delta0: {fits}, if the rest suffices$"):
        reserve(ledger, stable(2e3, 3e3), 71)  # 101 tests of 1e-9
    verify_ledger(path)
    other = Ledger(path.with_name("other"))
    reserve(other, gaussian(60), 10, NO_TESTS)
    with pytest.raises(ValueError, match=r"^Expected delta0 <= 0 with [^\n]* and 0 of delta0: 0 such queries"):
        reserve(other, stable(), 1)


def test_the_filter_may_be_named(path: Path) -> None:
    """So that releases of another kind than the first get on better; nothing else is found in its place."""
    kinds = {None: "gaussian", "gaussian": "gaussian", "renyi": "renyi"}
    numbers = {"orders": (2.0, 100.0), "rdp": (1e-6, 1e-4)}
    curve = {r: RenyiCurveEvent(**numbers, neighboring_relation=r) for r in NeighboringRelation}
    for named, kept in kinds.items():
        budget = Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=REPLACE, filter=named)  # type: ignore[arg-type]
        ledger = Ledger(path.with_name(str(named)))
        reserve(ledger, gaussian(60), 10, budget)
        book = verify_ledger(ledger.path)
        assert book.filter is not None and book.filter.name == kept and book.budget == budget
        curve = {
            r: RenyiCurveEvent(orders=(2.0, 100.0), rdp=(1e-6, 1e-4), neighboring_relation=r)
            for r in NeighboringRelation
        }
        refusal = refused(ledger, curve, 1)
        assert (refusal is None) == (kept == "renyi") and "dominates" in (refusal or "dominates")
    rows = bodies(path.with_name("None"))
    rows[0]["budget"]["filter"] = "renyi"
    with pytest.raises(ValueError, match=r"Expected the filter of .*, got filter='gaussian'"):
        read_ledger(forge(path.with_name("forged"), rows))
    with pytest.raises(ValueError, match=r"^Expected a filter among renyi, gaussian, got filter='best'$"):
        Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=REPLACE, filter="best")  # type: ignore[arg-type]


def test_a_budget_declared_without_max_delta0_stays_valid(path: Path) -> None:
    """As ledgers have it whose budget names no filter and was fixed by what the first release needed."""
    reserve(Ledger(path), gaussian(60), 10, NO_TESTS)
    rows = bodies(path)
    del rows[0]["budget"]["filter"]
    rows[0]["budget"]["max_delta0"] = None
    ledger = Ledger(forge(path.with_name("older"), rows))
    reserve(ledger, gaussian(60), 10, BUDGET)
    assert verify_ledger(ledger.path).budget == BUDGET
    with pytest.raises(ValueError, match=r"^Expected delta0 <= 0 with all earlier releases"):
        reserve(ledger, stable(), 1)


def test_a_first_query_that_is_too_dear_is_refused_with_what_is_left(path: Path) -> None:
    for budget in (BUDGET, NO_TESTS):
        with pytest.raises(
            ValueError, match=r"^Expected epsilon <= 2 at [^\n]*, got epsilon=[^\n]*: 0 such queries can be"
        ):
            reserve(Ledger(path), gaussian(1), 1, budget)
    failing = {r: FailureEvent(delta=2e-6, neighboring_relation=r) for r in NeighboringRelation}
    for budget, most in ((BUDGET, "< 1e-06, the delta of"), (NO_TESTS, "<= 0 with all")):
        with pytest.raises(ValueError, match=rf"^Expected delta0 {most} [^\n]*, got delta0=2e-06"):
            reserve(Ledger(path), failing, 1, budget)
    assert not Ledger(path).entries()


def test_what_is_settled_for_less_can_be_spent_again(path: Path) -> None:
    ledger = Ledger(path)
    most = affordable(BUDGET, gaussian(60)[REPLACE].cost())
    reserve(ledger, gaussian(60), most, BUDGET)
    with pytest.raises(ValueError, match="can be paid"):
        reserve(ledger, gaussian(60), 1)
    ledger.settle(1, realised=[(gaussian(60), most - 5)])
    reserve(ledger, gaussian(60), 5)
    with pytest.raises(ValueError, match="can be paid"):
        reserve(ledger, gaussian(60), 1)
    verify_ledger(path)


def test_the_filter_admits_as_much_as_the_accountant(path: Path) -> None:
    for events, epsilon in ((gaussian(100), 0.5), (gaussian(3), 20.0), (stable(), 3.0), (stable(400.0, 300.0), 1.0)):
        budget = Budget(max_epsilon=epsilon, delta=1e-6, neighboring_relation=REPLACE)
        bounds = make_filter(budget, events[REPLACE].cost())
        payable = affordable(budget, events[REPLACE].cost())
        at_order = events[REPLACE].cost(bounds.orders)
        assert bounds.admits(at_order.times(payable))
        assert not bounds.admits(at_order.times(payable + 1))
        # with the part of delta that is set aside, the accountant would pay at most one more
        total = account([(events, payable + 2)], REPLACE)
        assert total.get_epsilon(delta=1e-6 - max(0.0, bounds.max_delta0 - total.delta0)) > epsilon


def test_malformed_budgets_raise() -> None:
    for wrong in ({"max_epsilon": 0.0}, {"delta": 1.0}, {"max_delta0": 1e-6}, {"max_delta0": -1.0}):
        with pytest.raises(ValueError, match=ONE_LINE):
            Budget(**({"max_epsilon": 1.0, "delta": 1e-6, "neighboring_relation": REPLACE} | wrong))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=ONE_LINE):
        RenyiFilter(order=1.0, max_rdp=1.0, max_delta0=0.0)


# a file that is not what it was


@cache
def _filled() -> bytes:
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger.sqlite")
        for i in range(40):
            ledger.settle(reserve(ledger, gaussian(200 + i), 1 + i, BUDGET))
        return ledger.path.read_bytes()


def filled(path: Path) -> Ledger:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_filled())
    return Ledger(path)


def expect_stop(path: Path) -> None:
    before = path.read_bytes() if path.is_file() else None
    for use in (Ledger, read_ledger, verify_ledger):
        with pytest.raises(ValueError, match=ONE_LINE):
            use(path)
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_ledger_stops(path: Path, keep: float) -> None:
    filled(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    expect_stop(path)


@pytest.mark.parametrize("seed", range(12))
def test_a_corrupted_ledger_stops_or_says_the_same(path: Path, seed: int) -> None:
    book = filled(path).book()
    content = bytearray(path.read_bytes())
    chance = random.Random(seed)
    start = chance.randrange(len(content) - 64)
    content[start : start + 64] = chance.randbytes(64)
    path.write_bytes(content)
    try:
        found = verify_ledger(path)
    except ValueError as error:
        stopped = str(error)
    else:
        stopped = ""
        assert found == book  # unused space, or the file's own statistics
    assert not stopped or re.match(ONE_LINE, stopped)


@pytest.mark.parametrize("content", [b"", b"not a database" * 100, b"SQLite format 3\0"])
def test_another_file_stops(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    expect_stop(path)


def test_another_database_stops(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE log (row INTEGER, body TEXT, digest TEXT)")
    expect_stop(path)


def test_a_folder_or_a_missing_file_stops(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(ValueError, match=ONE_LINE):
        Ledger(path)
    with pytest.raises(ValueError, match="Expected a ledger, got path="):
        read_ledger(path.parent / "missing")
    assert not (path.parent / "missing").exists()


def test_a_deleted_ledger_is_not_created_again(path: Path) -> None:
    ledger = filled(path)
    path.unlink()
    with pytest.raises(ValueError, match=ONE_LINE):
        reserve(ledger, gaussian(60), 1)
    assert not path.exists()


def test_a_read_only_ledger_can_be_read_and_no_more(path: Path) -> None:
    ledger = filled(path)
    path.chmod(0o444)
    with pytest.raises(ValueError, match="Expected a writable ledger"):
        Ledger(path)
    with pytest.raises(ValueError, match=ONE_LINE):
        reserve(ledger, gaussian(60), 1)
    assert len(verify_ledger(path).entries) == 40


def tamper(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for change in ("UPDATE", "DELETE"):
            connection.execute(f"DROP TRIGGER log_{change}")
        connection.execute(statement, values)
        for change in ("UPDATE", "DELETE"):
            connection.execute(f"CREATE TRIGGER log_{change} BEFORE {change} ON log BEGIN SELECT 1; END")
        connection.commit()


def test_rows_are_final(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        for change in ("UPDATE log SET body = '{}'", "DELETE FROM log", "DELETE FROM log WHERE row = 3"):
            with pytest.raises(sqlite3.IntegrityError, match="a ledger is final"):
                connection.execute(change)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE log SET body = replace(body, '\"count\": 3', '\"count\": 2')",
        "DELETE FROM log WHERE row = 3",
        "UPDATE log SET digest = 'ff' WHERE row = 5",
        "INSERT INTO log (body, digest) VALUES ('{}', 'ff')",
        # numbers that the digests do not depend on
        "UPDATE log SET row = row + 1 WHERE row = (SELECT max(row) FROM log)",
        "UPDATE log SET row = 0 WHERE row = 1",
        "UPDATE log SET row = -1 WHERE row = 1",
    ],
)
def test_a_row_that_was_changed_is_noticed(path: Path, statement: str) -> None:
    filled(path)
    tamper(path, statement)
    expect_stop(path)


@pytest.mark.parametrize("field", ["epsilon", "count", "extra budget"])
def test_figures_that_do_not_follow_from_the_events_are_noticed(path: Path, field: str) -> None:
    """A forger who knows the digests still has to make the figures fit."""

    ledger = filled(path)
    with closing(sqlite3.connect(path)) as connection:
        rows = [json.loads(body) for (body,) in connection.execute("SELECT body FROM log ORDER BY row")]
    if field == "epsilon":
        rows[-2]["stated"]["replace_record"] *= 0.99
    elif field == "count":
        rows[-2]["count"] = 10**6  # beyond the budget
    else:
        rows.append(rows[0])
    forged = path.with_name("forged.sqlite")
    Ledger(forged)
    with closing(sqlite3.connect(forged, isolation_level=None)) as connection:
        head = log.Head()
        for body in rows:
            head = log.append(connection, head, json.dumps(body))
    with pytest.raises(ValueError, match=ONE_LINE):
        verify_ledger(forged)
    assert len(verify_ledger(path).entries) == len(ledger.entries())


# what a malformed call must not write


def unchanged(path: Path, call: Callable[[], object]) -> None:
    before = path.read_bytes()
    with pytest.raises((ValueError, TypeError), match=ONE_LINE):
        call()
    assert path.read_bytes() == before
    verify_ledger(path)
    Ledger(path)


@pytest.mark.parametrize("count", [2**53 + 1, 2**63, 10**400, np.uint64(2**63), True, 1.0, float("nan")])
def test_counts_that_overflow_write_nothing(path: Path, count: int) -> None:
    ledger = filled(path)
    unchanged(path, lambda: reserve(ledger, gaussian(60), count))
    ledger.settle(reserve(ledger, gaussian(1e10), 2**53))  # the largest one
    assert verify_ledger(path).entries[-1].count == 2**53


@pytest.mark.parametrize("count", [-1, 1.5, 2**53 + 1, 10**400, True])
def test_a_settlement_of_a_malformed_count_writes_nothing(path: Path, count: int) -> None:
    ledger = filled(path)
    release = reserve(ledger, gaussian(60), 2)
    unchanged(path, lambda: ledger.settle(release, realised=[(gaussian(60), 1), (gaussian(600), count)]))
    ledger.settle(release, realised=[(gaussian(60), 1), (gaussian(600), 1)])


def test_a_settlement_that_can_be_read_but_once_writes_nothing(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 2)
    charges: Any = ((gaussian(60), 1) for _ in range(2))
    with pytest.raises(ValueError, match="Expected a list of charges or None, got realised="):
        ledger.settle(1, realised=charges)
    assert not ledger.entries()[0].settled


def test_a_settlement_with_swapped_relations_writes_nothing(path: Path) -> None:
    ledger = filled(path)
    release = reserve(ledger, gaussian(60), 2)
    events = gaussian(600)
    swapped = {REPLACE: events[TEACHER], TEACHER: events[REPLACE]}
    for realised in ([(swapped, 1)], [({REPLACE: events[REPLACE]}, 1)], [(events,)], [("x", 1)], [(None, 1)]):
        unchanged(path, lambda realised=realised: ledger.settle(release, realised=realised))  # type: ignore[misc]
    unchanged(path, lambda: reserve(ledger, swapped, 1))


def test_other_malformed_calls_write_nothing(path: Path) -> None:
    ledger = filled(path)
    wide = {r: BoundedRangeEvent(eta=1.0, neighboring_relation=r) for r in NeighboringRelation}
    many = {r: RepeatedEvent(event=wide[r], count=10**400) for r in NeighboringRelation}
    unchanged(path, lambda: reserve(ledger, many, 1))
    named = {"count": 1, "run": "run", "description": "text", "seeded": False}
    for wrong in ({"run": 5}, {"description": None}, {"run": b"x"}, {"delta": 0.0}, {"delta": float("nan")}):
        unchanged(path, lambda wrong=wrong: ledger.reserve(gaussian(600), **(named | wrong)))  # type: ignore[misc]
    for release in (0, -1, 41, 1.0, True, "1", None):
        unchanged(path, lambda release=release: ledger.settle(release))  # type: ignore[misc]
    odd = "\ud800 \0 \n Ä"
    ledger.reserve(gaussian(600), **(named | {"run": odd, "delta": np.float32(1e-6)}))  # type: ignore[arg-type]
    assert verify_ledger(path).entries[-1].run == odd


def test_what_no_reader_could_read_is_refused_by_the_reader_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = filled(path)
    release = reserve(ledger, gaussian(60), 2)
    for check in ("expect_events", "expect_charged_count"):
        monkeypatch.setattr(f"pate.accounting._ledger.{check}", lambda *_: None)
    events = gaussian(600)
    swapped = {REPLACE: events[TEACHER], TEACHER: events[REPLACE]}
    before = path.read_bytes()
    for call in (lambda: ledger.settle(release, realised=[(swapped, 1)]), lambda: reserve(ledger, swapped, 1)):
        with pytest.raises(ValueError, match=ONE_LINE):
            call()
    assert path.read_bytes() == before and len(ledger.entries()) == 41


# what it counts


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


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_no_digits_are_lost_to_what_was_taken_back(relation: NeighboringRelation) -> None:
    """Giant reservations come and go; what stays is what an exact sum says."""
    chance = random.Random(0)
    totals, left = Totals(DEFAULT_ORDERS), []
    small, giant = [name(gaussian(10.0**k)) for k in range(3, 9)], [name(gaussian(10.0**-k)) for k in range(2, 120, 20)]
    for _ in range(300):
        charge = (chance.choice(small), chance.choice([1, 3, 2**30 + 1, 2**53 - 1]))
        large = (chance.choice(giant), chance.choice([1, 2**53]))
        totals.add(*large)
        totals.add(*charge)
        left.append(charge)
        if chance.random() < 0.5:
            totals.values()
        totals.add(large[0], -large[1])
    values = totals.values()
    found = as_cost(values, relation)
    for order in (0, 100, 256):
        once = {each: Fraction(float(parse_events(each)[relation].cost().rdp[order])) for each in small}
        exact = sum(once[each] * count for each, count in left)
        assert abs(Fraction(float(found.rdp[order])) / exact - 1) < Fraction(1, 10**15)
    for charge in left:
        totals.add(charge[0], -charge[1])
    assert not totals.values().any()


def test_infinite_costs_come_and_go(path: Path) -> None:
    wide = {r: RenyiCurveEvent(orders=(1.5, 2.5), rdp=(0.1, 0.2), neighboring_relation=r) for r in gaussian(1)}
    ledger = Ledger(path)
    reserve(ledger, gaussian(30), 3)
    alone = ledger.book().spent(REPLACE)
    first, second = reserve(ledger, wide, 2), reserve(ledger, wide, 1)
    for release in (first, second):
        sums = ledger._history._totals.values()  # what is kept is what is summed anew
        for relation in NeighboringRelation:
            kept, anew = as_cost(sums, relation), ledger.book().spent(relation)
            np.testing.assert_allclose(kept.rdp, anew.rdp, rtol=1e-12)
            assert np.isinf(kept.rdp).any() and np.isinf(kept.mu_squared)
        ledger.settle(release, realised=[])
    ledger.entries()
    kept = as_cost(ledger._history._totals.values(), REPLACE)
    np.testing.assert_allclose(kept.rdp, alone.rdp, rtol=1e-14)
    assert kept.mu_squared == pytest.approx(alone.mu_squared)
    verify_ledger(path)


def test_sums_in_blocks_are_sums_one_by_one() -> None:
    chance = random.Random(1)
    names = [name(events) for events in (gaussian(30.0), gaussian(1e-30), stable())]
    for kinds in (1, 2, 3):
        changes = [(names[chance.randrange(kinds)], chance.randrange(1, 9)) for _ in range(60)]
        changes += [(each, -count) for each, count in chance.sample(changes, 40)]
        block, single = Totals(DEFAULT_ORDERS), Totals(DEFAULT_ORDERS)
        expected = []
        for change in changes:
            single.add(*change)
            expected.append(single.values())
        np.testing.assert_allclose(block.add_each(changes), np.stack(expected), rtol=1e-12)
        np.testing.assert_allclose(block.values(), single.values(), rtol=1e-15)


def test_no_digits_are_lost_within_a_block() -> None:
    """A sum of about 1 that is left where one of 1e13 was taken back."""
    large, small = name(gaussian(1e-6)), name(gaussian(1.0))
    sums = Totals(DEFAULT_ORDERS).add_each([(small, 1), (large, 1), (large, -1), (small, 2)])
    once = charge_values(small, 1, DEFAULT_ORDERS)
    for total, count in ((sums[0], 1), (sums[2], 1), (sums[3], 3)):
        np.testing.assert_allclose(total, count * once, rtol=1e-12)


def test_a_settlement_may_not_trade_one_figure_for_another(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(30), 10)
    # a cheaper curve of which no Gaussian differential privacy is known
    orders, rdp = (2.0, 1e10), (1e-9, 1e-9)
    curve = {r: RenyiCurveEvent(orders=orders, rdp=rdp, neighboring_relation=r) for r in NeighboringRelation}
    with pytest.raises(ValueError, match="Expected at most what release 1 reserved under replace_record"):
        ledger.settle(1, realised=[(curve, 1)])
    # under one relation alone
    dear = {REPLACE: gaussian(30)[REPLACE], TEACHER: gaussian(3)[TEACHER]}
    with pytest.raises(ValueError, match="Expected at most what release 1 reserved under add_remove_teacher"):
        ledger.settle(1, realised=[(dear, 9)])
    ledger.settle(1, realised=[(gaussian(30), 9)])


# whose history it is


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


@pytest.mark.slow
def test_a_ledger_that_was_put_back_or_exchanged_is_noticed_by_who_had_it_open(path: Path) -> None:
    ledger = filled(path)
    old = path.read_bytes()
    reserve(ledger, gaussian(600), 1)
    path.write_bytes(old)
    other = Ledger(path.with_name("other"))
    for i in range(90):
        reserve(other, gaussian(600 + i), 1)
    for content in (old, other.path.read_bytes()):
        path.write_bytes(content)
        for use in (lambda: reserve(ledger, gaussian(600), 1), lambda: ledger.settle(1), ledger.entries, ledger.book):
            with pytest.raises(ValueError, match=r"^Expected a ledger at [^\n]* that continues row 82, got history="):
                use()
        assert path.read_bytes() == content


def test_rows_of_others_are_seen(path: Path) -> None:
    first, second = Ledger(path), Ledger(path)
    reserve(first, gaussian(60), 40, BUDGET)
    with pytest.raises(ValueError, match="can be paid"):
        reserve(second, gaussian(60), 10**6)
    assert reserve(second, gaussian(70), 2) == 2
    first.settle(2, realised=[(gaussian(70), 1)])
    second.settle(1)
    assert first.book() == second.book() == verify_ledger(path)


def test_rows_that_never_reached_the_file_are_forgotten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = filled(path)
    with monkeypatch.context() as patch:

        def full(*_: object) -> Head:
            raise sqlite3.OperationalError("database or disk is full")

        patch.setattr("pate.accounting._log.append", full)
        with pytest.raises(ValueError, match="disk is full"):
            reserve(ledger, gaussian(600), 1)
    assert len(ledger.entries()) == 40
    assert reserve(ledger, gaussian(600), 1) == 41
    verify_ledger(path)


# damage


@pytest.mark.parametrize("keep", [0, 1, 80])
def test_rows_missing_at_the_end_are_noticed(path: Path, keep: int) -> None:
    filled(path)
    tamper(path, "DELETE FROM log WHERE row > ?", keep)
    expect_stop(path)


@pytest.mark.parametrize("journal", ["WAL", "PERSISTENT WAL"])
def test_another_journal_stops(path: Path, journal: str) -> None:
    ledger = filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        if journal != "WAL":
            expect_stop(path)  # while somebody has it open
    expect_stop(path)
    with pytest.raises(ValueError, match="Expected a ledger with PRAGMA journal_mode = delete"):
        reserve(ledger, gaussian(60), 1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    reserve(ledger, gaussian(6000), 1)


def test_rows_that_may_be_changed_are_noticed(path: Path) -> None:
    filled(path)
    tamper(path, "UPDATE log SET body = body")
    with pytest.raises(ValueError, match="Expected a ledger whose rows are final"):
        verify_ledger(path)


def test_a_ledger_that_drops_what_is_added_is_noticed(path: Path) -> None:
    filled(path)
    rows = len(bodies(path))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TRIGGER gone BEFORE INSERT ON log BEGIN SELECT RAISE(IGNORE); END")
        connection.commit()
    with pytest.raises(ValueError, match="Expected a ledger to which rows can be added"):
        reserve(Ledger(path), gaussian(600), 1)
    assert len(bodies(path)) == rows
    with pytest.raises(ValueError, match="Expected a ledger whose rows are final"):
        verify_ledger(path)


def forge(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows with digests that fit."""
    Ledger(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        head = log.Head()
        for body in rows:
            head = log.append(connection, head, json.dumps(body))
    return path


def bodies(path: Path) -> list[dict[str, Any]]:
    """Return what the rows say."""
    with closing(sqlite3.connect(path)) as connection:
        return [json.loads(body) for (body,) in connection.execute("SELECT body FROM log ORDER BY row")]


def scaled(factor: float) -> Callable[[float], float]:
    return lambda value: value * factor


@pytest.mark.parametrize(
    ("events", "part", "changes"),
    [
        (stable(), "filter", {"max_rdp": 1e6}),
        (stable(), "filter", {"max_rdp": scaled(1 + 1e-9)}),
        (stable(), "filter", {"order": scaled(2)}),
        (gaussian(60), "filter", {"max_mu_squared": 1e6}),
        (gaussian(60), "filter", {"max_mu_squared": scaled(1 + 1e-9)}),
        *(
            (events, part, changes)
            for events in (stable(), gaussian(60))
            for part, changes in (
                ("filter", {"max_delta0": 1.1e-7}),
                ("filter", {"max_delta0": 1e-6}),
                ("filter", {"max_delta0": 1.0}),
                ("budget", {"max_epsilon": 8.0}),
                ("budget", {"delta": 1e-5}),
                ("budget", {"max_delta0": 1e-8}),
                ("budget", {"neighboring_relation": "nobody"}),
            )
        ),
    ],
)
def test_a_filter_that_does_not_follow_from_its_budget_stops(
    path: Path, events: Events, part: str, changes: dict[str, Any]
) -> None:
    reserve(Ledger(path), events, 1, BUDGET)
    rows = bodies(path)
    verify_ledger(forge(path.with_name("same"), rows))
    for field, value in changes.items():
        rows[0][part][field] = value(rows[0][part][field]) if callable(value) else value
    expect_stop(forge(path.with_name("forged"), rows))


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


def test_a_reservation_is_found_by_its_token(path: Path) -> None:
    """Whoever was killed before learning the number asks again, and pays once."""

    def ask(token: str | None, noise: float = 60, count: int = 10) -> int:
        options = {"run": "run", "description": "", "seeded": False, "budget": BUDGET}
        return Ledger(path).reserve(gaussian(noise), count=count, token=token, **options)  # type: ignore[arg-type]

    assert [ask("a"), ask("b"), ask("a"), ask(None), ask(None), ask("b")] == [1, 2, 1, 3, 4, 2]
    assert [entry.token for entry in verify_ledger(path).entries] == ["a", "b", None, None]
    assert "token" not in bodies(path)[3]  # a row without one is what it was
    for noise, count in ((60, 11), (61, 10)):
        with pytest.raises(ValueError, match=r"^Expected the cost that release 1 reserved with this token, got"):
            ask("a", noise, count)
    for token in ("", 3):
        with pytest.raises(ValueError, match=r"^Expected a token as a text, got"):
            ask(token)  # type: ignore[arg-type]
    Ledger(path).settle(1)
    assert ask("a") == 1 and len(read_ledger(path).entries) == 4
    # what is paid already is never refused
    with pytest.raises(ValueError, match="can be paid"):
        ask("c", count=100_000)
    assert ask("b") == 2


def test_any_number_holds_a_budget(path: Path) -> None:
    numbers: dict[str, Any] = {"max_epsilon": np.float32(2), "delta": np.float64(1e-6), "max_delta0": np.float32(0)}
    budget = Budget(neighboring_relation=REPLACE, **numbers)
    assert [type(value) for value in budget.to_dict().values()] == [float, float, str, float, type(None)]
    reserve(Ledger(path), gaussian(60), 1, budget)
    assert verify_ledger(path).budget == budget


def test_what_is_remembered_of_a_curve_cannot_be_changed(path: Path) -> None:
    for events in (gaussian(60), stable()):
        for relation in NeighboringRelation:
            once = events[relation].cost()
            expected = once.rdp.copy()
            if once.rdp.flags.writeable:
                once.rdp[:] = 0.0
            np.testing.assert_array_equal(events[relation].cost().rdp, expected)
    test = stable()[REPLACE].events[1]  # type: ignore[attr-defined]
    total = total_cost((test,))
    if total.rdp.flags.writeable:
        total.rdp[:] = 0.0
    assert test.cost().rdp.min() > 0
    kept = [DEFAULT_ORDERS, *_terms(name(stable()), DEFAULT_ORDERS.tobytes())[:4]]
    assert not any(array.flags.writeable for array in kept)
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 1)
    with pytest.raises(TypeError):
        ledger.entries()[0].events[REPLACE] = gaussian(6e9)[REPLACE]  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        ledger.entries()[0].count = 0  # type: ignore[misc]
    charge_values(name(gaussian(60)), 1, DEFAULT_ORDERS)[:] = 0
    assert charge_values(name(gaussian(60)), 1, DEFAULT_ORDERS)[0, 0] > 0
    with pytest.raises(ValueError, match="read-only"):
        test.cost().rdp[:] = 0.0


# at scale


def test_a_reserve_reads_only_what_is_new(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, other = filled(path), Ledger(path)
    reserve(other, gaussian(6000), 1)
    read: list[str] = []
    real = log.chained

    def spy(previous: str, text: str) -> str:
        read.append(text)
        return real(previous, text)

    monkeypatch.setattr("pate.accounting._log.chained", spy)
    reserve(ledger, gaussian(6000), 1)
    # the row of the other process, and twice its own: folded, and written
    assert len(read) == 3


def test_reading_holds_no_lock(path: Path) -> None:
    ledger = filled(path)
    with log.opened(path, writable=False) as connection:
        rows = log.rows_after(connection, Head(), path)
        next(rows)
        reserve(ledger, gaussian(6000), 1)  # while the others are not read yet
        assert len(list(rows)) == 80
    assert len(verify_ledger(path).entries) == 41


# processes

_RELEASER = """
import json, os, sys
from pathlib import Path
import numpy as np
from pate.accounting._budget import Budget
from pate.accounting._ledger import Ledger
from pate.aggregators._stable_topk import StableTopK
from pate.accounting._relation import NeighboringRelation
from pate.mechanisms._noise import private_generator
from pate._votes import Panel, Votes

folder, name, rounds, batch, max_epsilon = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:5]), float(sys.argv[5])
aggregator = StableTopK(scale_gap=20.0, sigma_test=10.0, delta_test=1e-9)
votes = Votes.from_counts(np.tile([50, 48, 1, 0], (batch, 1)), 50)
events = {
    relation: aggregator.event(Panel(50, 4), relation)
    for relation in NeighboringRelation
}
budget = Budget(max_epsilon=max_epsilon, delta=1e-6, neighboring_relation="replace_record") if max_epsilon else None
print("ready", flush=True)
sys.stdin.readline()
for _ in range(rounds):
    ledger = Ledger(folder / "ledger.sqlite")
    try:
        release = ledger.reserve(events, count=batch, run=name, description="", seeded=False, budget=budget)
    except ValueError as error:
        print(error)
        break
    generator = private_generator()
    noise = generator.bit_generator.state["state"]["counter"].tolist()
    labels = aggregator.aggregate(votes, generator=generator).labels
    beside = folder / f".{release}"
    beside.write_text(json.dumps({"release": release, "noise": noise, "count": batch, "labels": labels.tolist()}))
    beside.replace(folder / f"{release}.json")  # from here on it is public
    ledger.settle(release)
"""


def start(folder: Path, name: str, *, rounds: int, batch: int, max_epsilon: float = 0.0) -> "subprocess.Popen[str]":
    arguments = [str(folder), name, str(rounds), str(batch), str(max_epsilon)]
    command = [sys.executable, "-c", _RELEASER, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def expect_nothing_hidden(folder: Path) -> int:
    """Check that all that is public is in the ledger, with noise of its own; return how many releases are public."""
    entries = {entry.release: entry for entry in verify_ledger(folder / "ledger.sqlite").entries}
    public = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    for release in public:
        assert release["count"] <= entries[release["release"]].count
    settled = {number for number, entry in entries.items() if entry.settled}
    assert settled <= {release["release"] for release in public}
    assert len({tuple(release["noise"]) for release in public}) == len(public)
    assert sum(entry.count for entry in entries.values()) >= sum(release["count"] for release in public)
    return len(public)


def kill_at_random_moments(folder: Path, times: int) -> int:
    chance = random.Random(times)
    for i in range(times):
        process = start(folder, f"run{i}", rounds=10_000, batch=1 + i % 3)
        try:
            go(process)
            time.sleep(chance.uniform(0, 0.4))  # the first curve takes longer than all reservations that follow
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        if (folder / "ledger.sqlite").exists():
            expect_nothing_hidden(folder)
    process = start(folder, "last", rounds=1, batch=1)
    process.communicate("go\n")
    assert process.returncode == 0
    return expect_nothing_hidden(folder)


@pytest.mark.slow
def test_a_kill_hides_nothing(tmp_path: Path) -> None:
    assert kill_at_random_moments(tmp_path, 2) >= 1


@pytest.mark.slow
def test_fifty_kills_hide_nothing(tmp_path: Path) -> None:
    assert kill_at_random_moments(tmp_path, 50) >= 50


@pytest.mark.slow
def test_two_processes_never_overspend_one_budget(tmp_path: Path) -> None:
    aggregator = StableTopK(scale_gap=20.0, sigma_test=10.0, delta_test=1e-9)
    query = aggregator.event(Panel(50, 4))
    budget = Budget(max_epsilon=6.0, delta=1e-6, neighboring_relation=REPLACE)
    batches = affordable(budget, query.cost()) // 2
    # either alone asks for three quarters of the budget, both for more than all
    rounds = batches * 3 // 4
    pair = [start(tmp_path, name, rounds=rounds, batch=2, max_epsilon=6.0) for name in ("first", "second")]
    for process in pair:
        go(process)
    outputs = [process.communicate()[0] for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    assert any("Expected epsilon <= 6 at delta = 1e-06" in output for output in outputs)
    book = verify_ledger(tmp_path / "ledger.sqlite")
    assert {entry.run for entry in book.entries} == {"first", "second"}
    assert len(book.entries) == batches
    spent = account(book.charges(), REPLACE)
    assert spent.get_epsilon(delta=1e-6) <= 6.0 < spent.compose(query, 3).get_epsilon(delta=1e-6)
    expect_nothing_hidden(tmp_path)


def test_a_check_outside_the_transaction_would_overspend(tmp_path: Path) -> None:
    """What the lock is for: two that read before either writes both find the budget unspent."""
    path = tmp_path / "ledger.sqlite"
    first, second = Ledger(path), Ledger(path)
    most = affordable(BUDGET, gaussian(60)[REPLACE].cost())
    reserve(first, gaussian(60), most, BUDGET)
    with pytest.raises(ValueError, match=": 0 such queries can be paid"):
        reserve(second, gaussian(60), most, BUDGET)
