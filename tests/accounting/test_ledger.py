"""The ledger: it forgets nothing, overspends nothing, and stops where it is not what it was."""

import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pate.accounting.budget import Budget, RenyiFilter, affordable, make_filter
from pate.accounting.curves import cost
from pate.accounting.events import (
    BoundedRangeEvent,
    ComposedEvent,
    Event,
    FailureEvent,
    GaussianEvent,
    PureDPEvent,
    StabilityTestEvent,
)
from pate.accounting.ledger import Book, Events, Ledger, account, read_ledger, verify_ledger
from pate.accounting.relation import NeighboringRelation
from pate.aggregators.stable_topk import StableTopK

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


BUDGET = Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=REPLACE)


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
    assert spent.rdp == pytest.approx(5 * cost(gaussian(30)[REPLACE]).rdp)


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
    unknown = {relation: Event(neighboring_relation=relation) for relation in NeighboringRelation}
    for events in (mixed, {REPLACE: gaussian(3)[REPLACE]}, {}, {REPLACE: "x", TEACHER: "y"}):
        with pytest.raises(ValueError, match=ONE_LINE):
            reserve(ledger, events, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=ONE_LINE):
        reserve(ledger, unknown, 1)
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
    while (refusal := refused(ledger, gaussian(60), 1, BUDGET)) is None:
        answered += 1
    assert refusal.startswith("Expected epsilon <= 2 at delta = 1e-06 under replace_record")
    assert refusal.endswith("; 0 such queries can be paid")
    within = account([(gaussian(60), answered)], REPLACE).get_epsilon(delta=1e-6)
    beyond = account([(gaussian(60), answered + 1)], REPLACE).get_epsilon(delta=1e-6)
    assert within <= 2.0 < beyond
    assert len(ledger.entries()) == answered
    verify_ledger(path)


def test_a_refused_batch_leaves_no_trace_and_says_what_can_be_paid(path: Path) -> None:
    ledger = Ledger(path)
    with pytest.raises(ValueError, match=r"; (\d+) such queries can be paid") as refusal:
        reserve(ledger, stable(), 10_000, BUDGET)
    assert ledger.book().budget is None and ledger.entries() == ()
    payable = int(str(refusal.value).split("; ")[1].split()[0])
    with pytest.raises(ValueError, match="can be paid"):
        reserve(ledger, stable(), payable + 1, BUDGET)
    reserve(ledger, stable(), payable, BUDGET)
    assert account([(stable(), payable)], REPLACE).get_epsilon(delta=1e-6) <= 2.0
    # what a query costs at most at the border
    assert account([(stable(), payable + 1)], REPLACE).get_epsilon(delta=1e-6) > 2.0 * (1 - 1e-6)


def test_the_budget_of_a_ledger_is_final_and_binds_every_run(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 10, BUDGET)
    for other in (
        Budget(max_epsilon=3.0, delta=1e-6, neighboring_relation=REPLACE),
        Budget(max_epsilon=2.0, delta=1e-5, neighboring_relation=REPLACE),
        Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=TEACHER),
    ):
        with pytest.raises(ValueError, match="Expected the budget of the ledger, max_epsilon=2.0"):
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
    with pytest.raises(ValueError, match="Expected epsilon <= 2 before this release, got"):
        reserve(other, gaussian(60), 1, BUDGET)


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


def test_tests_need_a_part_of_delta_that_was_set_aside(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 10, BUDGET)  # needs none
    with pytest.raises(ValueError, match=r"delta0 <= 0\).*; 0 such queries"):
        reserve(ledger, stable(), 1)
    aside = Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=REPLACE, max_delta0=1e-7)
    other = Ledger(path.with_name("other"))
    reserve(other, gaussian(60), 10, aside)
    reserve(other, stable(), 30)
    with pytest.raises(ValueError, match="can be paid"):
        reserve(other, stable(), 71)  # 101 tests of 1e-9


def test_what_is_settled_for_less_can_be_spent_again(path: Path) -> None:
    ledger = Ledger(path)
    most = affordable(BUDGET, ledger.book().spent(REPLACE), cost(gaussian(60)[REPLACE]))
    reserve(ledger, gaussian(60), most, BUDGET)
    with pytest.raises(ValueError, match="can be paid"):
        reserve(ledger, gaussian(60), 1)
    ledger.settle(1, realised=[(gaussian(60), most - 5)])
    reserve(ledger, gaussian(60), 5)
    with pytest.raises(ValueError, match="can be paid"):
        reserve(ledger, gaussian(60), 1)
    verify_ledger(path)


def test_filter_goes_as_far_as_the_accountant(path: Path) -> None:
    nothing = Ledger(path).book().spent(REPLACE)
    for events, epsilon in ((gaussian(100), 0.5), (gaussian(3), 20.0), (stable(), 3.0), (stable(400.0, 300.0), 1.0)):
        budget = Budget(max_epsilon=epsilon, delta=1e-6, neighboring_relation=REPLACE)
        bounds = make_filter(budget, nothing, cost(events[REPLACE]))
        payable = affordable(budget, nothing, cost(events[REPLACE]))
        at_order = cost(events[REPLACE], bounds.orders)
        assert bounds.admits(at_order.times(payable))
        assert not bounds.admits(at_order.times(payable + 1))
        # the accountant would pay at most one more
        assert account([(events, payable + 2)], REPLACE).get_epsilon(delta=1e-6) > epsilon


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


def test_a_ledger_that_vanishes_is_not_made_anew(path: Path) -> None:
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
    ],
)
def test_a_row_that_was_changed_is_noticed(path: Path, statement: str) -> None:
    filled(path)
    tamper(path, statement)
    expect_stop(path)


@pytest.mark.parametrize("field", ["epsilon", "count", "extra budget"])
def test_figures_that_do_not_follow_from_the_events_are_noticed(path: Path, field: str) -> None:
    """A forger who knows the digests still has to make the figures fit."""
    from pate.accounting.ledger import _append

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
        for body in rows:
            _append(connection, body)
    with pytest.raises(ValueError, match=ONE_LINE):
        verify_ledger(forged)
    assert len(verify_ledger(path).entries) == len(ledger.entries())


# processes

_RELEASER = """
import json, os, sys
from pathlib import Path
import numpy as np
from pate.accounting.budget import Budget
from pate.accounting.ledger import Ledger
from pate.aggregators.stable_topk import StableTopK
from pate.accounting.relation import NeighboringRelation
from pate.mechanisms.noise import private_generator
from pate.votes import Votes

folder, name, rounds, batch, max_epsilon = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:5]), float(sys.argv[5])
aggregator = StableTopK(scale_gap=20.0, sigma_test=10.0, delta_test=1e-9)
votes = Votes.from_counts(np.tile([50, 48, 1, 0], (batch, 1)), 50)
events = {
    relation: aggregator.event(num_teachers=50, num_labels=4, neighboring_relation=relation)
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
            time.sleep(chance.uniform(0, 0.06))
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


def test_a_kill_hides_nothing(tmp_path: Path) -> None:
    assert kill_at_random_moments(tmp_path, 3) >= 1


@pytest.mark.slow
def test_fifty_kills_hide_nothing(tmp_path: Path) -> None:
    assert kill_at_random_moments(tmp_path, 50) >= 50


def test_two_processes_never_overspend_one_budget(tmp_path: Path) -> None:
    aggregator = StableTopK(scale_gap=20.0, sigma_test=10.0, delta_test=1e-9)
    query = aggregator.event(num_teachers=50, num_labels=4)
    budget = Budget(max_epsilon=6.0, delta=1e-6, neighboring_relation=REPLACE)
    batches = affordable(budget, Book().spent(REPLACE), cost(query)) // 2
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
    most = affordable(BUDGET, first.book().spent(REPLACE), cost(gaussian(60)[REPLACE]))
    assert affordable(BUDGET, second.book().spent(REPLACE), cost(gaussian(60)[REPLACE])) == most
    reserve(first, gaussian(60), most, BUDGET)
    with pytest.raises(ValueError, match="; 0 such queries can be paid"):
        reserve(second, gaussian(60), most, BUDGET)
