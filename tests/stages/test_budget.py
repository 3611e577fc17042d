"""The commands on budgets: what they print is what the accountant says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pate.accounting.budget import Budget
from pate.accounting.calibration import epsilon_of
from pate.accounting.events import GaussianEvent
from pate.accounting.figures import epsilon_text
from pate.accounting.ledger import Ledger
from pate.accounting.relation import NeighboringRelation
from pate.accounting.statement import make_statement
from pate.aggregators import NoisyVotes, Powerset, StableTopK
from pate.stages.budget import account, calibrate, ledger_show, ledger_verify
from pate.votes import Panel

REPLACE = NeighboringRelation.REPLACE_RECORD
AGGREGATOR = StableTopK(scale_gap=39.0, sigma_test=60.0, delta_test=1e-9)
Printed = pytest.CaptureFixture[str]


def test_account_prints_both_relations_and_draws(tmp_path: Path, capsys: Printed) -> None:
    plot = tmp_path / "deep" / "epsilon.png"
    found = account(aggregator=AGGREGATOR, num_queries=600, delta=1e-6, num_teachers=100, num_labels=9, plot=plot)
    text = capsys.readouterr().out
    for relation, row in found.items():
        expected = epsilon_of(
            AGGREGATOR.event(Panel(100, 9), NeighboringRelation(relation)),
            count=600,
            delta=1e-6,
        )
        assert row["optimal"] == expected and epsilon_text(expected, 4) in text
        assert row["autodp"] == pytest.approx(expected, rel=1e-3)
        assert row["classic"] is not None and row["classic"] > expected
        assert row["exact"] is row["dp_accounting"] is None
    assert found["replace_record"]["delta0"] == pytest.approx(6e-7, rel=1e-5)
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_calibration_of_the_stage_meets_its_target(capsys: Printed) -> None:
    found = calibrate(target_epsilon=5.0, delta=1e-6, num_queries=100, num_teachers=60, num_labels=6)
    text = capsys.readouterr().out
    aggregator = StableTopK(
        scale_gap=found["scale_gap"], sigma_test=found["sigma_test"], delta_test=found["delta_test"]
    )
    event = aggregator.event(Panel(60, 6))
    assert epsilon_of(event, count=100, delta=1e-6) == found["epsilon"] <= 5.0
    assert f"gap of {found['gap']:.1f} votes" in text
    assert "60 teachers cannot have it" in text  # and this budget is too small for them


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_calibration_of_other_mechanisms(relation: NeighboringRelation, capsys: Printed) -> None:
    """The noise that is told is that at which the aggregator costs what was asked, under the relation that was."""
    common: dict[str, Any] = {"target_epsilon": 2.0, "delta": 1e-6, "num_queries": 50, "num_teachers": 200}
    common |= {"num_labels": 4, "neighboring_relation": relation}
    votes = calibrate(mechanism="noisy_votes", **common)
    sets = calibrate(mechanism="powerset", **common)
    for aggregator in (
        NoisyVotes(sigma_votes=votes["sigma_votes"], neighboring_relation=relation),
        Powerset(scale_powerset=sets["scale_votes"], neighboring_relation=relation),
    ):
        event = aggregator.event(Panel(200, 4))
        assert 1.99999 < epsilon_of(event, count=50, delta=1e-6) <= 2.0
    assert "sigma_votes" in capsys.readouterr().out
    with pytest.raises(ValueError, match="Expected no delta_test where nothing is tested"):
        calibrate(
            target_epsilon=2.0,
            delta=1e-6,
            num_queries=50,
            num_teachers=200,
            num_labels=4,
            mechanism="powerset",
            delta_test=1e-9,
        )


def test_ledger_commands_say_what_the_ledger_holds(tmp_path: Path, capsys: Printed) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    events = {r: AGGREGATOR.event(Panel(80, 5), r) for r in NeighboringRelation}
    budget = Budget(max_epsilon=8.0, delta=1e-6, neighboring_relation=REPLACE)
    ledger.settle(ledger.reserve(events, count=40, run="a", description="StableTopK", seeded=False, budget=budget))
    ledger.reserve(events, count=9, run="b", description="StableTopK", seeded=True)
    ledger_show(ledger=ledger.path)
    text = capsys.readouterr().out
    assert "2 release(s) of 49 queries" in text
    assert "40 x StableTopK (settled)" in text and "9 x StableTopK (reserved, counts in full, SEEDED" in text
    expected = epsilon_of(events[REPLACE], count=49, delta=1e-6)
    assert f"epsilon = {epsilon_text(expected, 4)} at delta = 1e-06 (delta0 = 4.9e-08) under REPLACE_RECORD" in text
    assert "budget: epsilon <= 8 at delta = 1e-06" in text

    statement = make_statement(
        ledger.book(),
        delta=1e-6,
        relation=REPLACE,
        unit="record",
        aggregator={"class_path": "x", "init_args": {}},
        num_queries=49,
        num_answered=3,
        num_teachers=80,
        num_labels=5,
        versions={},
    )
    file = tmp_path / "privacy.json"
    file.write_text(json.dumps(statement))
    ledger_verify(ledger=ledger.path, statement=file)
    assert len(re.findall("every epsilon follows from the events", capsys.readouterr().out)) == 2

    statement["guarantees"]["replace_record"]["epsilon"] = 0.1
    file.write_text(json.dumps(statement))
    with pytest.raises(ValueError, match=r"^Expected epsilon=[^\n]*, got epsilon=0.1$"):
        ledger_verify(ledger=ledger.path, statement=file)
    file.write_text("{")
    with pytest.raises(ValueError, match=r"^Expected a readable statement[^\n]*$"):
        ledger_verify(ledger=ledger.path, statement=file)


def test_the_ledger_shows_what_was_reserved_first(tmp_path: Path, capsys: Printed) -> None:
    """What a refusal cost is no epsilon of what was released."""
    ledger = Ledger(tmp_path / "ledger.sqlite")
    events = {r: AGGREGATOR.event(Panel(80, 5), r) for r in NeighboringRelation}
    ledger.reserve(events, count=40, run="a", description="StableTopK", seeded=False, delta=1.00000049e-6)
    ledger.settle(1, realised=[(events, 3)])
    delta = 1.00000049e-6
    texts = {n: epsilon_text(epsilon_of(events[REPLACE], count=n, delta=delta), 4) for n in (40, 3)}
    for command in (ledger_show, ledger_verify):
        command(ledger=ledger.path)
        lines = capsys.readouterr().out.splitlines()
        shown = [i for i, line in enumerate(lines) if "under REPLACE_RECORD" in line]
        assert [lines[i].split(" (")[0].strip() for i in shown] == [
            f"epsilon = {texts[n]} at delta = 1.00000049e-06" for n in (40, 3)
        ]
        assert "no guarantee" in lines[shown[1] - 1]


def test_calibrated_noise_keeps_its_target_as_printed(capsys: Printed) -> None:
    for target in (0.5, 1.0, 2.0, 4.0):
        calibrate(
            target_epsilon=target, delta=1e-6, num_queries=50, num_teachers=200, num_labels=4, mechanism="noisy_votes"
        )
        sigma = float(re.search(r"sigma_votes = (\S+)", capsys.readouterr().out)[1])  # type: ignore[index]
        event = GaussianEvent(noise_multiplier=sigma / 2, neighboring_relation=REPLACE)
        assert epsilon_of(event, count=50, delta=1e-6) <= target


def test_a_damaged_ledger_stops_the_commands(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"damaged")
    for command in (ledger_show, ledger_verify):
        with pytest.raises(ValueError, match=r"^Expected [^\n]*$"):
            command(ledger=path)
