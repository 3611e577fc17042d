"""The statement: enough to compute epsilon by hand, in both of its forms."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mpmath as mp
import pytest
from scipy.special import ndtri

from pate.accounting.budget import Budget
from pate.accounting.events import BoundedRangeEvent, ComposedEvent, Event, GaussianEvent, StabilityTestEvent
from pate.accounting.ledger import Ledger, account
from pate.accounting.relation import NeighboringRelation
from pate.accounting.statement import check_budget, describe, make_statement, recompute, verify_statement
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
    arguments: dict[str, Any] = {
        "delta": 1e-6,
        "relation": REPLACE,
        "unit": "record",
        "aggregator": {"class_path": "pate.aggregators.StableTopK", "init_args": {"scale_gap": SCALE}},
        "num_queries": 50,
        "num_answered": 31,
        "num_teachers": TEACHERS,
        "num_labels": 9,
        "versions": {"pate": "0"},
    }
    made = make_statement(ledger.entries(), **(arguments | changes))
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
    assert f"epsilon = {epsilon:.3f} at delta" in text


def test_epsilon_is_that_of_the_accountant_at_any_delta(ledger: Ledger) -> None:
    made = statement(ledger)
    for relation in NeighboringRelation:
        total = account([(EVENTS, 50), (GAUSSIAN, 7)], relation)
        assert recompute(made, relation) == total.get_epsilon(delta=1e-6)
        assert recompute(made, relation, delta=1e-4) == total.get_epsilon(delta=1e-4)


def test_a_changed_figure_is_noticed(ledger: Ledger) -> None:
    made = statement(ledger)
    made["guarantees"]["replace_record"]["epsilon"] *= 0.999
    with pytest.raises(ValueError, match="under replace_record, computed from the events"):
        verify_statement(made)
    made = statement(ledger)
    made["releases"][0]["count"] += 1
    with pytest.raises(ValueError, match="computed from the events"):
        verify_statement(made)


def test_realised_costs_are_what_counts(ledger: Ledger) -> None:
    before = statement(ledger)
    ledger.settle(2, realised=[(GAUSSIAN, 3)])
    after = statement(ledger)
    assert after["guarantees"]["replace_record"]["epsilon"] < before["guarantees"]["replace_record"]["epsilon"]
    assert after["guarantees"]["replace_record"]["epsilon"] == account(
        [(EVENTS, 50), (GAUSSIAN, 3)], REPLACE
    ).get_epsilon(delta=1e-6)
    assert "3 x GaussianEvent" in describe(after) and "7 x GaussianEvent" in describe(before)
    verify_statement(after)


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


def test_the_budget_is_in_the_statement(ledger: Ledger) -> None:
    budget = Budget(max_epsilon=4.0, delta=1e-6, neighboring_relation=REPLACE)
    assert "No release is made beyond epsilon = 4 at delta = 1e-06" in describe(statement(ledger, budget=budget))


def test_check_budget_counts_all_that_was_charged(ledger: Ledger) -> None:
    epsilon = check_budget(ledger.entries(), EVENTS, count=10, relation=REPLACE, delta=1e-6)
    assert epsilon == pytest.approx(account([(EVENTS, 60), (GAUSSIAN, 7)], REPLACE).get_epsilon(delta=1e-6), rel=1e-12)
    with pytest.raises(ValueError, match="Expected delta > 6e-08, what the stability tests"):
        check_budget(ledger.entries(), EVENTS, count=10, relation=REPLACE, delta=5e-8)
