"""The budget of a ledger: what it admits, what it refuses, and the filter that keeps it."""

from pathlib import Path

import pytest

from pate._core.accounting.charges import account, affordable
from pate.accounting import (
    Budget,
    Ledger,
    NeighboringRelation,
    RenyiCurveEvent,
    read_ledger,
    verify_ledger,
)
from tests.core.accounting.ledgers import (
    BUDGET,
    NO_TESTS,
    REPLACE,
    TEACHER,
    bodies,
    forge,
    gaussian,
    refused,
    reserve,
    stable,
)


def test_the_first_query_that_cannot_be_paid_is_refused(path: Path) -> None:
    ledger = Ledger(path)
    answered = 0
    while (refusal := refused(ledger, gaussian(60), 1, NO_TESTS)) is None:
        answered += 1
    assert refusal.startswith("Expected epsilon <= 2 at delta = 1e-06 under replace_record")
    assert "; left are 0.00" in refusal and refusal.endswith(
        "of delta0: 0 such queries can be paid"
    )
    within = account([(gaussian(60), answered)], REPLACE).get_epsilon(delta=1e-6)
    beyond = account([(gaussian(60), answered + 1)], REPLACE).get_epsilon(delta=1e-6)
    assert within <= 2.0 < beyond
    assert len(ledger.entries()) == answered
    verify_ledger(path)


def test_a_refused_batch_leaves_no_trace_and_says_what_can_be_paid(path: Path) -> None:
    ledger = Ledger(path)
    with pytest.raises(ValueError, match=r": (\d+) such queries can be paid") as refusal:
        reserve(ledger, stable(), 10_000, BUDGET)
    assert ledger.snapshot().budget is None and ledger.entries() == ()
    payable = int(str(refusal.value).split(": ")[1].split()[0])
    with pytest.raises(ValueError, match="can be paid"):
        reserve(ledger, stable(), payable + 1, BUDGET)
    reserve(ledger, stable(), payable, BUDGET)
    assert account([(stable(), payable)], REPLACE).get_epsilon(delta=1e-6) <= 2.0
    # what a query costs at most at the border, with the tenth of delta that is left for other tests
    total = account([(stable(), payable + 1)], REPLACE, in_order=False)
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


def test_a_later_budget_covers_earlier_reservations(path: Path) -> None:
    """Else a screen's refusal, whose exact delta at epsilon 0.3 is 15%, would fit into a budget of
    0.3."""
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 1)
    reserve(ledger, gaussian(5), 40)
    ledger.settle(2, realised=[(gaussian(5), 0)])
    with pytest.raises(
        ValueError, match=r"^Expected epsilon <= 2 at [^\n]* before this release, got"
    ):
        reserve(ledger, gaussian(60), 1, BUDGET)
    rows = bodies(path)
    other = Ledger(path.with_name("other"))
    reserve(other, gaussian(60), 1, BUDGET)
    declared, first = bodies(other.path)
    with pytest.raises(ValueError, match=r"got row 4: Expected epsilon <= 2"):
        verify_ledger(forge(path.with_name("forged"), [*rows, declared, first]))


def test_a_part_of_delta_is_set_aside_for_tests_from_the_first_release_on(path: Path) -> None:
    ledger = Ledger(path)
    reserve(ledger, gaussian(60), 10, BUDGET)
    bounds = ledger.snapshot().filter
    assert bounds is not None and bounds.max_delta0 == 1e-7
    reserve(ledger, stable(), 30)
    message = r"^Expected delta0 <= 1e-07 with all earlier releases \(max_delta0, .*\), got delta0=1.01e-07; left are"
    with pytest.raises(
        ValueError, match=rf"{message} [^\n]* and 7e-08 of delta0: 70 such queries can be paid$"
    ):
        reserve(ledger, stable(2e3, 3e3), 71)  # 101 tests of 1e-9
    verify_ledger(path)
    other = Ledger(path.with_name("other"))
    reserve(other, gaussian(60), 10, NO_TESTS)
    with pytest.raises(
        ValueError,
        match=r"^Expected delta0 <= 0 with [^\n]* and 0 of delta0: 0 such queries can be paid$",
    ):
        reserve(other, stable(), 1)


def test_the_filter_may_be_named(path: Path) -> None:
    """So that releases of another kind than the first get on better; nothing else is found in its
    place."""
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
    with pytest.raises(
        ValueError, match=r"^Expected a filter among renyi, gaussian, got filter='best'$"
    ):
        Budget(max_epsilon=2.0, delta=1e-6, neighboring_relation=REPLACE, filter="best")  # type: ignore[arg-type]


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
