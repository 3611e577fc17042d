"""Findings, the files that keep them and the page made of these."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

import pate
from scripts.reproduction import Claim, Effort, Finding, Verdict
from scripts.reproduction.findings import keep, kept
from scripts.reproduction.page import page, script_of
from scripts.reproduction.script import reproduce

ROOT = Path(pate.__file__).parents[1]
CLAIM = Claim(where="Table 1", published="0.3", ours="0.4", verdict=Verdict.REFUTED, why="three of ten are not four")


def finding(**changes: object) -> Finding:
    given = {"title": "A table", "paper": "Someone (2020)", "method": "Counted.", "claims": (CLAIM,)}
    rows = [{"k": 1, "error": 1 / 3}, {"k": 2, "error": 2e-7}]
    return Finding(**(given | {"rows": rows} | changes))  # type: ignore[arg-type]


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    keep(tmp_path, "a_table", finding(picture=Figure(), caption="Errors"), Effort(full=True, seed=3), 12.34)
    (again,) = kept(tmp_path)
    assert (again.claims, again.full, again.seed, again.seconds) == ((CLAIM,), True, 3, {"full": 12.3})
    assert (tmp_path / "a_table.csv").read_text() == "k,error\n1,0.333333\n2,2e-07\n"
    assert (tmp_path / "a_table.png").read_bytes()[:4] == b"\x89PNG"
    text = page([again], "found")
    assert "| `scripts/reproduce_a_table.py` | full | not run | 12 | 3 |" in text
    assert "| Table 1 | 0.3 | 0.4 | **refuted** | three of ten are not four |" in text
    assert "![Errors](found/a_table.png)" in text and "In all: 1 refuted." in text


def test_a_script_keeps_what_it_found_and_without_data_what_was_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce("a_table", "What it does.", lambda _: finding(), ["--output", str(tmp_path), "--seed=5"])
    assert "Table 1: refuted. Published 0.3; here 0.4." in capsys.readouterr().out
    before = (tmp_path / "a_table.json").read_bytes()

    def needs(effort: Effort) -> Finding:
        effort.path("topk/none.npy")
        return finding()

    monkeypatch.delenv("PATE_DATA", raising=False)
    reproduce("a_table", "What it does.", needs, ["--output", str(tmp_path)])
    assert "Expected PATE_DATA to name a folder that holds topk/none.npy" in capsys.readouterr().err
    assert (tmp_path / "a_table.json").read_bytes() == before
    with pytest.raises(SystemExit):
        reproduce("a_table", "What it does.", needs, ["--seed=-1"])
    assert "Expected an integer seed >= 0" in capsys.readouterr().err


def test_findings_are_complete() -> None:
    with pytest.raises(ValueError, match="why in one line"):
        Claim(where="a", published="b", ours="c", verdict=Verdict.REFUTED, why="")
    with pytest.raises(ValueError, match="the columns"):
        finding(rows=[{"k": 1}, {"j": 1}])
    with pytest.raises(ValueError, match="a caption of a picture"):
        finding(picture=Figure())


def test_the_page_is_what_the_scripts_found() -> None:
    findings = kept(ROOT / "docs" / "reproduction")
    assert (ROOT / "docs" / "reproduction.md").read_text() == page(findings, "reproduction")
    scripts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "scripts").glob("reproduce_*.py")}
    assert scripts == {script_of(each.name) for each in findings}
