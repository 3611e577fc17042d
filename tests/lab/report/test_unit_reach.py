"""What is disclosed of units that reach several teachers."""

from pathlib import Path

import pytest
import yaml

from pate import cli
from pate._core.accounting.charges import for_group_size
from tests.labeling.release.test_unit_reach import TWO, epsilon, label, once, place as place, stated


def test_what_is_disclosed_is_for_them_too() -> None:
    """Today's figures, where the release that reaches more teachers came after the labels that are
    disclosed."""
    assert label("one") == 0 and label("two", TWO) == 0
    before = stated("one")["guarantees"]["replace_record"]["epsilon"]
    assert cli.main(["report", "one", "--disclosure"]) == 0
    entry = yaml.safe_load(Path("one/public/disclosure/registry.yaml").read_text())
    disclosed = entry["deployment"]["privacy_loss"]
    total = epsilon(for_group_size([once()] * 2, 2))
    assert disclosed["privacy_parameters"]["epsilon"] == pytest.approx(total) and total > 2 * before
    assert "which reaches 2 teachers at most" in disclosed["privacy_unit_details"]
    page = Path("one/public/report.html")
    assert (
        cli.main(["report", "one"]) == 0
        and "for a unit that reaches 2 teachers at most" in page.read_text()
    )
