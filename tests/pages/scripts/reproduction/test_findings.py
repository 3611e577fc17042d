"""Findings, the files that keep them and the page made of these."""

import json
import re
from pathlib import Path

import pytest

import pate
from scripts.reproduction import Claim, Effort, Finding, Reason
from scripts.reproduction.__main__ import MAKERS
from scripts.reproduction.findings import keep, kept, page, section
from scripts.results.__main__ import differences, findings

pytestmark = pytest.mark.slow

ROOT = Path(pate.__file__).parents[1]
CLAIM = Claim(
    where="Table 1",
    published="0.3",
    ours="0.4",
    reason=Reason.REFUTED,
    why="three of ten are not four",
)


def finding(**changes: object) -> Finding:
    given = {
        "title": "A table",
        "paper": "Someone (2020)",
        "method": "Counted.",
        "claims": (CLAIM,),
    }
    rows = [{"k": 1, "error": 1 / 3}, {"k": 2, "error": 2e-7}]
    return Finding(**(given | {"rows": rows} | changes))  # type: ignore[arg-type]


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    keep(tmp_path, "a_table", finding(), Effort(full=True, seed=3), 12.34)
    (again,) = kept(tmp_path)
    assert (again.claims, again.full, again.seed, again.seconds) == (
        (CLAIM,),
        True,
        3,
        {"full": 12.3},
    )
    assert (tmp_path / "a_table.csv").read_text() == "k,error\n1,0.333333\n2,2e-07\n"
    assert again.run is not None and again.run["processor_seconds"] == 12
    run = f"{again.ran} | not run | 12 |"
    text = page([again], "found")
    assert f"| [a_table](found/a_table.md) | Someone (2020) | {run}" in text
    assert "Verdicts on all claims: 1 refuted." in text
    text = section(again)
    assert "| Table 1 | 0.3 | 0.4 | **refuted** | three of ten are not four |" in text
    assert "full form, seed 3, run at" in text


def test_a_finding_is_a_result_that_runs_again(tmp_path: Path) -> None:
    keep(tmp_path, "a_table", finding(), Effort(), 1.0, {"Table 1/here": 0.1})
    keep(tmp_path, "gillenwater_times", finding(), Effort(), 1.0)
    ((name, result),) = findings(tmp_path).items()
    assert name == "a_table" and result.command.startswith("python -m scripts.reproduction a_table")
    assert differences(result, [["Table 1", "0.48"]]) == []
    assert differences(result, [["Table 1", "0.52"]]) != []
    kept_rows = json.loads((tmp_path / "a_table.json").read_text())
    assert kept_rows["run"]["processor_seconds"] == 1


def test_findings_are_complete() -> None:
    with pytest.raises(ValueError, match="why in one line"):
        Claim(where="a", published="b", ours="c", reason=Reason.REFUTED, why="")
    with pytest.raises(ValueError, match="the columns"):
        finding(rows=[{"k": 1}, {"j": 1}])


def test_the_page_is_what_was_made() -> None:
    every = kept(ROOT / "docs" / "reproduction")
    assert (ROOT / "docs" / "reproduction.md").read_text() == page(every, "reproduction")
    for made in every:
        text = (ROOT / "docs" / "reproduction" / f"{made.name}.md").read_text()
        said = r"run at [0-9a-f]{8} on 20\d\d-|not run at this version: .*by [0-9a-f]{8}"
        assert text == section(made) and re.search(said, text)
    assert {*MAKERS} == {made.name for made in every}
