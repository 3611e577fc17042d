"""Findings, the files that keep them and the page made of these."""

import csv
import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import pate
from scripts.reproduction import Claim, Effort, Finding, Reason, Verdict
from scripts.reproduction.__main__ import MAKERS, main
from scripts.reproduction.findings import Kept, keep, kept, spread
from scripts.reproduction.page import claims_table, page, section
from scripts.results.__main__ import differences, findings

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
    keep(
        tmp_path,
        "a_table",
        finding(picture=Figure(), caption="Errors"),
        Effort(full=True, seed=3),
        12.34,
    )
    (again,) = kept(tmp_path)
    assert (again.claims, again.full, again.seed, again.seconds) == (
        (CLAIM,),
        True,
        3,
        {"full": 12.3},
    )
    assert (tmp_path / "a_table.csv").read_text() == "k,error\n1,0.333333\n2,2e-07\n"
    assert (tmp_path / "a_table.png").read_bytes()[:4] == b"\x89PNG"
    assert again.run is not None and again.run["processor_seconds"] == 12
    run = f"{again.ran} | not run | 12 |"
    text = page([again], "found")
    assert f"| [a_table](found/a_table.md) | Someone (2020) | {run}" in text
    assert "Verdicts on all claims: 1 refuted." in text
    text = section(again)
    assert "| Table 1 | 0.3 | 0.4 | **refuted** | three of ten are not four |" in text
    assert "full form, seed 3, run at" in text
    assert "![Errors](a_table.png)" in text


def needs_data(effort: Effort) -> Finding:
    effort.path("topk/none.npy")
    return finding()


def test_a_run_keeps_what_it_made_writes_the_page_and_goes_on_without_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PATE_DATA", raising=False)
    folder = tmp_path / "made"
    main(["--output", str(folder), "--seed=5"], {"a_table": lambda _: finding()})
    assert "| where | here |\n| --- | --- |\n| Table 1 | 0.4 |\n" in capsys.readouterr().out
    assert "| Table 1 | 0.3 | 0.4 |" in (folder / "a_table.md").read_text()
    before = (folder / "a_table.json").read_bytes()
    main(["--output", str(folder)], {"a_table": needs_data, "another": lambda _: finding()})
    error = capsys.readouterr().err
    assert "a_table: not testable here: needs topk/none.npy" in error
    assert (folder / "a_table.json").read_bytes() == before and (folder / "another.json").is_file()
    table = [*csv.DictReader((folder / "claims.csv").read_text().splitlines())]
    assert [(row["finding"], row["here"], row["verdict"]) for row in table] == [
        ("a_table", "0.4", "refuted"),
        ("another", "0.4", "refuted"),
    ]


def test_the_noise_of_another_seed_is_kept(tmp_path: Path) -> None:
    def drawn(effort: Effort) -> Finding:
        claims = (CLAIM, replace(CLAIM, where="Table 2", ours=f"{effort.seed} of 3000 places"))
        return finding(claims=claims)

    folder = tmp_path / "made"
    main(["--output", str(folder), "--noise"], {"a_table": drawn})
    main(["--output", str(folder), "--seed=1"], {"a_table": drawn})
    (made,) = kept(folder)
    assert made.noise == {"Table 2/here": 2000} and made.run and made.run["versions"]["numpy"]
    words = finding(claims=(replace(CLAIM, ours="none"),))
    assert spread(finding(), words) == {}


def test_a_finding_is_a_result_that_runs_again(tmp_path: Path) -> None:
    keep(tmp_path, "a_table", finding(), Effort(), 1.0, {"Table 1/here": 0.1})
    keep(tmp_path, "gillenwater_times", finding(), Effort(), 1.0)
    ((name, result),) = findings(tmp_path).items()
    assert name == "a_table" and result.command.startswith("python -m scripts.reproduction a_table")
    assert differences(result, [["Table 1", "0.48"]]) == []
    assert differences(result, [["Table 1", "0.52"]]) != []
    timed = finding(claims=(CLAIM, replace(CLAIM, where="7.3, run times", ours="1.0 ms")))
    keep(tmp_path, "shekelyan_netflix", timed, Effort(), 1.0)
    times = findings(tmp_path)["shekelyan_netflix"]
    assert differences(times, [["Table 1", "0.4"], ["7.3, run times", "2.0 ms, or so"]]) == []
    kept_rows = json.loads((tmp_path / "a_table.json").read_text())
    assert kept_rows["run"]["processor_seconds"] == 1


def test_what_was_never_made_for_want_of_data_is_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PATE_DATA", raising=False)
    main(["--output", str(tmp_path / "made")], {"a_table": needs_data})
    text = (tmp_path / "made.md").read_text()
    assert (
        "| `a_table` | | | **not testable here**: needs `topk/none.npy` |" in text
        and "Nothing is made yet" in text
    )


def test_headlines_are_short_and_lead_to_their_pages(tmp_path: Path) -> None:
    headline = dataclasses.replace(CLAIM, where="Table 2", headline=True)
    keep(tmp_path, "a_table", finding(claims=(CLAIM, headline)), Effort(), 1.0)
    text = page(kept(tmp_path), "made")
    assert "| Someone (2020): [Table 2](made/a_table.md) | 0.3 | 0.4 | **refuted** |" in text
    assert "Table 1" not in text
    assert "| Table 1 | 0.3 | 0.4 |" in section(kept(tmp_path)[0])
    many = dataclasses.replace(kept(tmp_path)[0], paper="One, Two & Three (2021), A paper (again)")
    assert "| One et al. (2021): [Table 2](made/a_table.md) |" in page([many], "made")
    with pytest.raises(ValueError, match="ours of a headline in at most 120 letters"):
        dataclasses.replace(headline, ours="0" * 121)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--seed=-1"], "Expected an integer seed >= 0"),
        (["no_such"], "Expected names among a_table, got no_such"),
        (["--page_only"], "Expected findings of python -m scripts.reproduction"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--output", str(tmp_path)], {"a_table": lambda _: finding()})
    assert error in capsys.readouterr().err and not [*tmp_path.iterdir()]


def test_help_names_all_that_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert stopped.value.code == 0 and all(
        name in out for name in [*MAKERS, "--full", "--output", "PATE_DATA"]
    )


def test_findings_are_complete() -> None:
    with pytest.raises(ValueError, match="why in one line"):
        Claim(where="a", published="b", ours="c", reason=Reason.REFUTED, why="")
    with pytest.raises(ValueError, match="the columns"):
        finding(rows=[{"k": 1}, {"j": 1}])
    with pytest.raises(ValueError, match="a caption of a picture"):
        finding(picture=Figure())


@pytest.mark.parametrize("reason", Reason)
def test_a_verdict_follows_from_its_reason(reason: Reason) -> None:
    claim = replace(CLAIM, reason=reason)
    differs = {Reason.MISPRINT, Reason.OTHER_DATA, Reason.OWN_SETTING, Reason.OTHER_SIZE}
    others = {
        Reason.NONE: Verdict.REPRODUCED,
        Reason.REFUTED: Verdict.REFUTED,
        Reason.NOT_AT_HAND: Verdict.UNTESTABLE,
    }
    assert claim.verdict is (Verdict.DIFFERENT if reason in differs else others[reason])
    made = Kept(
        name="a",
        title="t",
        paper="P (1999)",
        method="m",
        claims=(claim,),
        caption="",
        seconds={},
        full=False,
        seed=0,
        run={"commit": "12345678", "date": "2026-01-02"},
        noise={},
    )
    shown = f"**{claim.verdict}**" + (f": {reason}" if reason in differs else "")
    assert f"| {shown} | {claim.why} |" in section(made)
    (row,) = csv.DictReader(claims_table([made]).splitlines())
    assert (row["verdict"], row["reason"]) == (claim.verdict, reason)


def test_what_was_tried_on_other_counts_is_not_reproduced_as_it_stands() -> None:
    claims = [claim for made in kept(ROOT / "docs" / "reproduction") for claim in made.claims]
    others = [claim for claim in claims if "other counts than theirs" in claim.why]
    assert len(others) == 9 and all(
        claim.reason in (Reason.OTHER_DATA, Reason.NOT_AT_HAND) for claim in others
    )


def test_the_page_is_what_was_made() -> None:
    every = kept(ROOT / "docs" / "reproduction")
    assert (ROOT / "docs" / "reproduction.md").read_text() == page(every, "reproduction")
    assert (ROOT / "docs" / "reproduction" / "claims.csv").read_text() == claims_table(every)
    for made in every:
        text = (ROOT / "docs" / "reproduction" / f"{made.name}.md").read_text()
        said = r"run at [0-9a-f]{8} on 20\d\d-|not run at this version: .*by [0-9a-f]{8}"
        assert text == section(made) and re.search(said, text)
    assert {*MAKERS} == {made.name for made in every}
