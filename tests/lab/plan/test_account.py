"""`pate account` prints what the accountant says."""

from pathlib import Path

import pytest

from pate import VoteShape
from pate._core.accounting.cost import format_epsilon
from pate.accounting import NeighboringRelation, epsilon_of
from pate.aggregators import StableTopK
from pate.lab.plan.command import account

AGGREGATOR = StableTopK(scale_gap=39.0, sigma_test=60.0, delta_test=1e-9)
Printed = pytest.CaptureFixture[str]


def test_account_prints_both_relations_and_draws(tmp_path: Path, capsys: Printed) -> None:
    plot = tmp_path / "deep" / "epsilon.png"
    found = account(
        aggregator=AGGREGATOR, num_queries=600, delta=1e-6, shape=VoteShape(100, 9), plot=plot
    )
    text = capsys.readouterr().out
    for relation, row in found.items():
        expected = epsilon_of(
            AGGREGATOR.event(VoteShape(100, 9), NeighboringRelation(relation)),
            count=600,
            delta=1e-6,
        )
        assert row["optimal"] == expected and format_epsilon(expected, 4) in text
        assert row["classic"] is not None and row["classic"] > expected
        assert row["exact"] is row["dp_accounting"] is row["autodp"] is None
    assert found["replace_record"]["delta0"] == pytest.approx(6e-7, rel=1e-5)
    assert (
        "    autodp has no mechanism for StabilityTestEvent, and gives no second opinion.\n" in text
    )
    assert "through StableTopK:\n    neighboring_relation=REPLACE_RECORD, scale_gap=39.0," in text
    assert max(len(line) for line in text.replace(str(tmp_path), "").splitlines()) <= 100
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_settings_that_labelling_would_refuse_are_priced_and_named(capsys: Printed) -> None:
    account(aggregator=AGGREGATOR, num_queries=600, delta=1e-6, shape=VoteShape(100, 9))
    assert (
        "100 teachers who all agree are answered with probability 6.4e-06 at most:\n"
        "    `pate label` refuses this. Less noise (fewer queries, a larger delta) or more teachers\n    are needed.\n"
    ) in capsys.readouterr().out
    account(aggregator=AGGREGATOR, num_queries=600, delta=1e-6, shape=VoteShape(800, 9))
    assert "refuses" not in capsys.readouterr().out
