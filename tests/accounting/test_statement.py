"""The statement: enough to compute epsilon by hand, in both of its forms."""

import json
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mpmath as mp
import pytest
from scipy.special import ndtr, ndtri

from pate.accounting.budget import Budget, make_filter
from pate.accounting.charges import account, expect_delta_beyond_tests
from pate.accounting.events import BoundedRangeEvent, ComposedEvent, Event, GaussianEvent, StabilityTestEvent
from pate.accounting.figures import epsilon_text, exact_text
from pate.accounting.ledger import Ledger, read_ledger
from pate.accounting.relation import NeighboringRelation
from pate.accounting.statement import Questions, continued, describe, make_statement, verify_statement
from pate.aggregators import ConfidentScreen, Peeling
from pate.votes import Panel
from tests.accounting import oracles

REPLACE, TEACHER = NeighboringRelation.REPLACE_RECORD, NeighboringRelation.ADD_REMOVE_TEACHER
SIGMA, SCALE, DELTA_TEST, TEACHERS = 25.0, 30.0, 1e-9, 100


def stable(relation: NeighboringRelation) -> Event:
    return ComposedEvent(
        events=(
            BoundedRangeEvent(eta=2 * relation.count_window / SCALE, neighboring_relation=relation),
            StabilityTestEvent(
                sigma=SIGMA, delta_test=DELTA_TEST, shift=2, num_teachers=TEACHERS, neighboring_relation=relation
            ),
        )
    )


EVENTS = {relation: stable(relation) for relation in NeighboringRelation}
GAUSSIAN = {relation: GaussianEvent(noise_multiplier=40.0, neighboring_relation=relation) for relation in EVENTS}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    book = Ledger(tmp_path / "ledger.sqlite")
    book.settle(book.reserve(EVENTS, count=50, run="one", description="StableTopK", seeded=False))
    book.reserve(GAUSSIAN, count=7, run="two", description="NoisyVotes", seeded=False)
    return book


def statement(ledger: Ledger, **changes: Any) -> dict[str, Any]:
    questions = Questions(
        num_queries=50,
        num_answered=31,
        num_teachers=TEACHERS,
        num_labels=9,
        aggregator={"class_path": "pate.aggregators.StableTopK", "init_args": {"scale_gap": SCALE}},
    )
    arguments: dict[str, Any] = {"delta": 1e-6, "relation": REPLACE, "unit": "record", "versions": {"pate": "0"}}
    made = make_statement(ledger.book(), questions, **(arguments | changes))
    again: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    assert again == made
    return again


def by_hand(statement: Mapping[str, Any], relation: NeighboringRelation) -> float:
    """Epsilon from ``releases`` in the JSON alone, at the order it names, by plain definitions."""
    guarantee = statement["guarantees"][relation.value]
    a, rdp, survival = guarantee["order"], mp.mpf(0), mp.mpf(1)
    for release in statement["releases"]:
        event = release["events"][relation.value]
        for part in event.get("events", [event]):
            if part["type"] == "GaussianEvent":
                rdp += release["count"] * oracles.gaussian(a, part["noise_multiplier"])
            elif part["type"] == "BoundedRangeEvent":
                rdp += release["count"] * oracles.bounded_range(a, part["eta"])
            else:
                assert part["type"] == "StabilityTestEvent"
                window = relation.count_window
                z = oracles.quantile(part["delta_test"], float(ndtri(part["delta_test"])))
                steps = range(2 * (part["num_teachers"] - part["shift"]) + 1)
                curve = max(
                    oracles.bernoulli_shift(a, z + g / part["sigma"], z + (g + window) / part["sigma"])
                    for g in (mp.mpf(step) / 2 for step in steps)
                )
                rdp += release["count"] * curve
                passes = oracles.phi(z + mp.mpf(max(0, window - part["shift"])) / part["sigma"])
                survival *= (1 - passes) ** release["count"]
    d = (guarantee["delta"] - (1 - survival)) / survival
    return float(rdp + mp.log(1 - 1 / mp.mpf(a)) - (mp.log(d) + mp.log(a)) / (a - 1))


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_epsilon_follows_from_the_json_by_hand(ledger: Ledger, relation: NeighboringRelation) -> None:
    made = statement(ledger)
    with mp.workdps(40):
        assert by_hand(made, relation) == pytest.approx(made["guarantees"][relation.value]["epsilon"], rel=1e-9)
    verify_statement(made)


def test_epsilon_follows_from_the_text_by_hand(ledger: Ledger) -> None:
    text = describe(statement(ledger))
    order = float(re.search(r"Renyi order a = (\S+):", text)[1])  # type: ignore[index]
    delta = float(re.search(r"at delta = (\S+) under REPLACE_RECORD", text)[1])  # type: ignore[index]
    rdp, survival = 0.0, 1.0
    lines = re.findall(r"^ +(\d+) x (\w+)\((.*)\): rdp = (\S+), delta0 = (\S+) each$", text, flags=re.MULTILINE)
    assert [line[1] for line in lines] == ["BoundedRangeEvent", "StabilityTestEvent", "GaussianEvent"]
    for count, _, _, once, delta0 in lines:
        rdp, survival = rdp + int(count) * float(once), survival * (1 - float(delta0)) ** int(count)
    # the parameters are there too
    assert float(dict(pair.split("=") for pair in lines[2][2].split(", "))["noise_multiplier"]) == 40.0
    assert rdp == pytest.approx(float(re.search(r"sum: rdp = ([^,]+),", text)[1]), rel=1e-12)  # type: ignore[index]
    d = (delta - (1 - survival)) / survival
    epsilon = rdp + math.log(1 - 1 / order) - (math.log(d) + math.log(order)) / (order - 1)
    assert f"epsilon = {epsilon_text(epsilon)} at delta" in text


def test_epsilon_is_that_of_the_accountant(ledger: Ledger) -> None:
    made = statement(ledger)
    for relation in NeighboringRelation:
        total = account([(EVENTS, 50), (GAUSSIAN, 7)], relation)
        epsilon = total.get_epsilon(delta=1e-6)
        assert made["guarantees"][relation.value]["epsilon"] == pytest.approx(epsilon, rel=1e-12)


CHANGES: dict[str, Any] = {
    "a smaller epsilon": lambda made: made["guarantees"]["replace_record"].update(epsilon=1.0),
    "a smaller cost": lambda made: made["costs"]["add_remove_teacher"].update(epsilon=1.0),
    "an unbounded epsilon": lambda made: made["guarantees"]["replace_record"].update(epsilon=None),
    "another order": lambda made: made["guarantees"]["replace_record"].update(order=3.0),
    "a smaller curve": lambda made: made["guarantees"]["replace_record"].update(rdp=0.1),
    "a smaller delta0": lambda made: made["guarantees"]["replace_record"].update(delta0=0.0),
    "a smaller delta": lambda made: made["guarantees"]["replace_record"].update(delta=1e-9),
    "one more query": lambda made: made["releases"][0].update(count=51),
    "said to be seeded": lambda made: made.update(private=False),
    "seeded": lambda made: made["releases"][0].update(seeded=True),
    "another relation": lambda made: made.update(neighboring_relation="nobody"),
    "other neighbors": lambda made: made["guarantees"]["replace_record"].update(neighbors="none"),
    "another conversion": lambda made: made.update(conversion="by faith"),
    "a figure beside those that follow": lambda made: made["costs"]["replace_record"].update(mu=1e-9),
    "a relation beside the two": lambda made: made["costs"].update(nobody={"epsilon": 0.0}),
    "more answers than queries": lambda made: made.update(num_answered=51),
    "queries of another release": lambda made: made.update(release=2),
    "half a teacher": lambda made: made.update(num_teachers=0.5),
    "a ledger of no rows": lambda made: made["ledger"].update(rows=0, digest=""),
    "settled for more": lambda made: made["releases"][0].update(
        realised=[{"events": made["releases"][0]["events"], "count": 51}]
    ),
    "a budget without a filter": lambda made: made.update(
        budget={"max_epsilon": 1.0, "delta": 1e-6, "neighboring_relation": "replace_record"}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_figure_is_noticed(ledger: Ledger, change: str) -> None:
    made = statement(ledger)
    verify_statement(made, ledger.book())
    CHANGES[change](made)
    with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
        verify_statement(made)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 1e300, None])
def test_an_epsilon_that_is_unbounded_has_no_figure(tmp_path: Path, epsilon: float | None) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.reserve(EVENTS, count=50, run="one", description="StableTopK", seeded=False)
    made = statement(ledger, delta=1e-8)  # the tests cost more
    assert made["guarantees"]["replace_record"]["epsilon"] is None
    made["guarantees"]["replace_record"]["epsilon"] = made["costs"]["replace_record"]["epsilon"] = epsilon
    if epsilon is None:
        verify_statement(made)
    else:
        with pytest.raises(ValueError, match=r"^Expected epsilon=None in the guarantee"):
            verify_statement(made)


def test_a_statement_is_on_the_whole_ledger(ledger: Ledger, tmp_path: Path) -> None:
    first = statement(ledger)
    older = tmp_path / "older.sqlite"
    shutil.copy(ledger.path, older)
    ledger.reserve(GAUSSIAN, count=1, run="three", description="NoisyVotes", seeded=False)
    with pytest.raises(ValueError, match=r"^Expected a statement on all 3 releases of the ledger, got releases=2"):
        verify_statement(first, ledger.book())
    latest = statement(ledger)
    verify_statement(latest, ledger.book())
    # a ledger that was put back to an older copy
    with pytest.raises(ValueError, match="it may be an older copy"):
        verify_statement(latest, read_ledger(older))
    # or made anew with the same releases
    other = Ledger(tmp_path / "other.sqlite")
    for entry in ledger.entries():
        other.reserve(entry.events, count=entry.count, run="x", description=entry.description, seeded=False)
    with pytest.raises(ValueError, match="it may be an older copy"):
        verify_statement(latest, other.book())


def test_what_was_reserved_is_the_guarantee_and_what_was_settled_a_cost(ledger: Ledger) -> None:
    before = statement(ledger)
    ledger.settle(2, realised=[(GAUSSIAN, 3)])
    after = statement(ledger)
    assert after["guarantees"] == before["guarantees"] and before["costs"]["replace_record"].items() <= (
        before["guarantees"]["replace_record"].items()
    )
    paid = account([(EVENTS, 50), (GAUSSIAN, 3)], REPLACE).get_epsilon(delta=1e-6)
    assert after["costs"]["replace_record"]["epsilon"] == paid < after["guarantees"]["replace_record"]["epsilon"]
    text = describe(after)
    reserved = epsilon_text(after["guarantees"]["replace_record"]["epsilon"])
    assert text.startswith(f"epsilon = {reserved} at delta = 1e-06 under REPLACE_RECORD:")
    assert f"What happened cost epsilon = {epsilon_text(paid)} under REPLACE_RECORD and" in text
    assert "no guarantee, because" in text and "no guarantee" not in describe(before)
    assert "3 x GaussianEvent" in text and "7 x GaussianEvent" in text
    assert "this holds if no release was chosen by what an earlier one showed" in text
    verify_statement(after)


def test_no_epsilon_chosen_after_the_draw_is_printed_as_a_guarantee(tmp_path: Path) -> None:
    """What a refused query cost is far below what an attacker learns from whether it was refused."""
    aggregator = ConfidentScreen(
        answers=Peeling(k=1, scale_peel=1.0), sigma_confident=20.0, threshold_confident=0.0, over="mean"
    )
    panel = Panel(40, 2)
    events = aggregator.events(panel)
    refused = aggregator.events(panel, tier=0)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.settle(
        ledger.reserve(events, count=1, run="one", description="ConfidentScreen", seeded=False), realised=[(refused, 1)]
    )
    made = statement(ledger, delta=1e-5)
    promised = made["guarantees"]["replace_record"]["epsilon"]
    assert promised == account([(events, 1)], REPLACE).get_epsilon(delta=1e-5) > 1.5
    assert made["costs"]["replace_record"]["epsilon"] < 0.3
    # the exact delta at what the refusal cost, where the votes are nearly a tie: 15%, not 1e-5
    p, q = choices(aggregator, [21, 20]), choices(aggregator, [20, 21])
    at_cost = math.exp(made["costs"]["replace_record"]["epsilon"])
    assert sum(max(0.0, p[each] - at_cost * q[each]) for each in p) > 0.1
    at_promise = math.exp(promised)
    assert sum(max(0.0, p[each] - at_promise * q[each]) for each in p) <= 1e-5


def choices(aggregator: ConfidentScreen, counts: list[int]) -> dict[str, float]:
    """Law of what one query releases: nothing, or one of two labels."""
    asked = float(ndtr(sum(abs(count - 20) for count in counts) / 2 / aggregator.sigma_confident))
    first = 1 / (1 + math.exp(counts[1] - counts[0]))
    return {"refused": 1 - asked, "first": asked * first, "second": asked * (1 - first)}


def test_the_budget_is_the_guarantee(tmp_path: Path) -> None:
    for events, kind in ((EVENTS, "RenyiFilter"), (GAUSSIAN, "GaussianFilter")):
        ledger = Ledger(tmp_path / f"{kind}.sqlite")
        budget = Budget(max_epsilon=4.0, delta=1e-6, neighboring_relation=REPLACE)
        ledger.settle(ledger.reserve(events, count=5, run="x", description="y", seeded=False, budget=budget))
        made = statement(ledger, delta=1e-5)
        guarantee = made["guarantees"]["replace_record"]
        assert (guarantee["epsilon"], guarantee["delta"], guarantee["fixed_by"]) == (4.0, 1e-6, "budget")
        assert made["guarantees"]["add_remove_teacher"]["fixed_by"] == "reservation"
        assert made["costs"]["replace_record"]["epsilon"] < 4.0
        text = describe(made)
        assert text.startswith("epsilon = 4.000 at delta = 1e-06 under REPLACE_RECORD:")
        assert "no release is made beyond it" in text and f"is kept by {kind}" in text
        assert "What was reserved so far cost epsilon = " in text and "no guarantee" not in text
        verify_statement(made, ledger.book())
        once = events[REPLACE].cost()
        other = json.loads(json.dumps(made))
        tighter = Budget(max_epsilon=4.0, delta=1e-6, neighboring_relation=REPLACE, max_delta0=6e-7)
        other["filter"] = make_filter(tighter, once).to_dict()
        other["guarantees"]["replace_record"]["delta0"] = 6e-7
        with pytest.raises(ValueError, match="Expected the filter of the ledger"):
            verify_statement(other, ledger.book())
        (bound,) = {"max_rdp", "max_mu_squared"} & set(made["filter"])
        for change in ({"max_delta0": 1e-6}, {bound: 1e6}):
            with pytest.raises(ValueError, match=r"^Expected max_[^\n]*$"):
                verify_statement(made | {"filter": made["filter"] | change})
        # releases beyond what the filter admits
        made["releases"][0]["count"] = 10**6
        with pytest.raises(ValueError, match=r"^Expected releases within the budget"):
            verify_statement(made)


def test_a_budget_declared_after_a_release_says_so(ledger: Ledger) -> None:
    budget = Budget(max_epsilon=9.0, delta=1e-6, neighboring_relation=REPLACE)
    ledger.reserve(GAUSSIAN, count=1, run="x", description="y", seeded=False, budget=budget)
    made = statement(ledger)
    condition = "it holds if neither that nor its figures followed from what releases 1 .. 2 showed."
    assert f"whatever earlier ones showed. It was declared after release 2: {condition}\n" in describe(made)
    verify_statement(made, ledger.book())
    with pytest.raises(ValueError, match=r"^Expected the releases before the budget of the ledger, 2, got"):
        verify_statement(made | {"declared_after": 0}, ledger.book())
    for after in (3, -1, None):
        with pytest.raises(ValueError, match=r"^Expected declared_after in 0 .. 2, got"):
            verify_statement(made | {"declared_after": after})
    # a filter that another release would have had
    other = make_filter(budget, GAUSSIAN[REPLACE].cost()).to_dict()
    with pytest.raises(ValueError, match=r"^Expected the filter that follows from the budget and the first release"):
        verify_statement(made | {"filter": other})


def test_gaussian_releases_are_stated_by_their_exact_trade_off(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.settle(ledger.reserve(GAUSSIAN, count=600, run="x", description="NoisyVotes", seeded=False))
    made = statement(ledger)
    guarantee = made["guarantees"]["replace_record"]
    mu = guarantee["mu"]
    assert mu == pytest.approx(math.sqrt(600) / 40, rel=1e-9) and "order" not in guarantee
    epsilon = mp.mpf(guarantee["epsilon"])
    with mp.workdps(40):
        delta = mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)
        assert float(delta) == pytest.approx(1e-6, rel=1e-6)
    by_curve = account([(GAUSSIAN, 600)], REPLACE).get_epsilon(delta=1e-6, conversion="optimal")
    assert guarantee["epsilon"] < 0.96 * by_curve
    text = describe(made)
    assert "in Gaussian differential privacy:" in text and "d = Phi(mu/2 - epsilon/mu)" in text
    squares = [int(n) * float(each) for n, each in re.findall(r"^ +(\d+) x .*: mu\^2 = (\S+),", text, re.MULTILINE)]
    assert math.sqrt(sum(squares)) == pytest.approx(mu, rel=1e-12)
    verify_statement(made, ledger.book())


def test_an_epsilon_that_nothing_keeps_says_so(tmp_path: Path) -> None:
    """A budget under one relation lets releases be chosen by earlier ones, which epsilon under the other does not."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    budget = Budget(max_epsilon=4.0, delta=1.00000049e-6, neighboring_relation=REPLACE)
    ledger.reserve(EVENTS, count=5, run="x", description="y", seeded=False, budget=budget)
    said = "under ADD_REMOVE_TEACHER: that epsilon holds if no release was chosen by what an earlier one showed"
    assert said not in describe(statement(ledger))
    ledger.reserve(EVENTS, count=5, run="x", description="y", seeded=False)
    text = describe(statement(ledger))
    assert said in text and text.startswith("epsilon = 4.000 at delta = 1.00000049e-06 under REPLACE_RECORD:")


def test_figures_are_rounded_up() -> None:
    assert float(epsilon_text(1e300)) == 1e300 and epsilon_text(1e-300) == "0.001"
    assert exact_text(1.0000004e-6) == "1.0000004e-06"
    for epsilon, text in ((8.02042, "8.021"), (0.0004, "0.001"), (8.0, "8.000"), (0.1, "0.100"), (1e-9, "0.001")):
        assert epsilon_text(epsilon) == text and float(text) >= epsilon
    assert epsilon_text(0.0) == "0.000" and epsilon_text(math.inf) == epsilon_text(None) == "unbounded"


def test_a_relation_whose_delta_is_spent_says_unbounded(tmp_path: Path) -> None:
    # run for ADD_REMOVE_TEACHER with little noise: under the other relation the tests cost more than delta
    ran = {
        relation: StabilityTestEvent(
            sigma=1.0, delta_test=1e-9, shift=1, num_teachers=50, neighboring_relation=relation
        )
        for relation in NeighboringRelation
    }
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.reserve(ran, count=100, run="one", description="x", seeded=True)
    made = statement(ledger, relation=TEACHER)
    assert made["guarantees"]["replace_record"]["epsilon"] is None
    text = describe(made)
    assert "epsilon = unbounded" in text and text.startswith("NOT PRIVATE")
    verify_statement(made)


def test_what_was_broken_off_is_said_to_count(ledger: Ledger) -> None:
    assert "7 of them were reserved by runs that were broken off" in describe(statement(ledger))


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_the_relation_that_was_asked_for_comes_first(ledger: Ledger, relation: NeighboringRelation) -> None:
    (other,) = set(NeighboringRelation) - {relation}
    ledger.settle(2, realised=[(GAUSSIAN, 1)])
    text = describe(statement(ledger, relation=relation))
    headline, cost = (next(line for line in text.splitlines() if word in line) for word in ("epsilon =", "happened"))
    assert relation.value.upper() in headline and other.value.upper() not in headline
    assert 0 < cost.index(relation.value.upper()) < cost.index(other.value.upper())


def test_a_ledger_of_one_run_says_so(ledger: Ledger) -> None:
    assert "The ledger of the private data holds 2 release(s)" in describe(statement(ledger))
    alone = describe(statement(ledger, of_this_run_alone=True))
    assert "The ledger of this run alone holds 2 release(s)" in alone and "adds up" in alone


def test_delta_must_leave_something_beside_the_tests_of_all_queries(ledger: Ledger) -> None:
    charges = [*ledger.book().charges(), (EVENTS, 10)]
    expect_delta_beyond_tests(charges, REPLACE, 6.1e-8)
    with pytest.raises(ValueError, match=r"^Expected delta > 6e-08, what the stability tests of all queries cost, got"):
        expect_delta_beyond_tests(charges, REPLACE, 5e-8)


@pytest.mark.parametrize("limit", [None, 40.0])
def test_a_statement_is_continued(tmp_path: Path, limit: float | None) -> None:
    """It says what a statement would that is made now."""
    book = Ledger(tmp_path / "ledger.sqlite")
    budget = None if limit is None else Budget(max_epsilon=limit, delta=1e-5, neighboring_relation=REPLACE)
    book.settle(book.reserve(GAUSSIAN, count=5, run="one", description="", seeded=False, budget=budget))
    before = statement(book, unit="patient")
    assert continued(before, book.book()) == before
    book.reserve(GAUSSIAN, count=7, run="two", description="", seeded=True)
    after = continued(before, book.book())
    assert after == statement(book, unit="patient")
    assert after["costs"][REPLACE.value]["epsilon"] > before["costs"][REPLACE.value]["epsilon"]
    assert not after["private"]
    verify_statement(after, book.book())


def test_another_ledger_continues_no_statement(ledger: Ledger, tmp_path: Path) -> None:
    made = statement(ledger)
    other = Ledger(tmp_path / "other.sqlite")
    for _ in range(4):
        other.reserve(GAUSSIAN, count=7, run="two", description="", seeded=False)
    with pytest.raises(ValueError, match="all rows that it held"):
        continued(made, other.book())
