"""`pate account` prints what the accountant says."""

from pathlib import Path

import pytest

from pate.accounting.calibration import epsilon_of
from pate.accounting.figures import epsilon_text
from pate.accounting.relation import NeighboringRelation
from pate.aggregators import StableTopK
from pate.commands.account import account
from pate.votes import Panel

AGGREGATOR = StableTopK(scale_gap=39.0, sigma_test=60.0, delta_test=1e-9)
Printed = pytest.CaptureFixture[str]


def test_account_prints_both_relations_and_draws(tmp_path: Path, capsys: Printed) -> None:
    plot = tmp_path / "deep" / "epsilon.png"
    found = account(aggregator=AGGREGATOR, num_queries=600, delta=1e-6, panel=Panel(100, 9), plot=plot)
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
