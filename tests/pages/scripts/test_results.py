"""Pages show what the files of results have, and results come out again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.results import __main__ as results
from scripts.results.__main__ import Result

RUN = {"commit": "12345678", "date": "2026-01-02", "processor_seconds": 1, "versions": {}}
SMALL = Result(
    command="python -c \"print('| way | epsilon | mAP |\\n|---|---|---|\\n"
    "| **a** | 0.5 | 0.31 |\\n| b | | 0.{seed}2 |')\"",
    run=RUN,
    keys=2,
    columns=["way", "epsilon", "mAP"],
    rows=[["**a**", "0.5", "0.31"], ["b", "", "0.02"]],
)
FILES = {"small": SMALL, "both": Result(columns=["", "a"], rows=[["mAP", "=small/a/0.5/mAP"]])}
PAGE = """The first is 0.3 <!-- results: small/a/0.5/mAP --> and ahead by
.29 <!-- results: small/a/0.5/mAP - small/b//mAP -->.

<!-- table: both -->
<!-- end -->
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text(results.rendered(PAGE, FILES))
    return tmp_path


def test_every_page_agrees_with_the_files() -> None:
    assert list(results.found(results.ROOT, results.read())) == []


def test_a_table_names_its_file_and_its_run(checkout: Path) -> None:
    assert list(results.found(checkout, FILES)) == []
    text = results.rendered("<!-- table: small -->\n| old |\n<!-- end -->\n", FILES)
    assert text.splitlines()[2:9] == [
        "| way | epsilon | mAP |",
        "| --- | ---: | ---: |",
        "| **a** | 0.5 | 0.31 |",
        "| b |  | 0.02 |",
        "",
        "*`scripts/results/small.json`, run at 12345678 on 2026-01-02; again: "
        "`python -m scripts.results run small`.*",
        "",
    ]
    assert results.rendered(text, FILES) == text
    part = {"small": replace(SMALL, run=RUN | {"rivals": RUN | {"commit": "0000"}})}
    assert "at 12345678 on 2026-01-02; rivals at 0000 on" in results.rendered(text, part)
    assert any("got '0000'" in fault for fault in results.found(checkout, part))
    older = {"small": replace(SMALL, run=None, reason="no GPU")}
    assert "not run at this version: no GPU.*" in results.rendered(text, older)


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("| 0.31 |", "| 0.32 |", "scripts.results render"),
        ("is 0.3 <", "is 0.4 <", r"Expected 0.31 of small/a/0.5/mAP, got \['0.4'\]"),
        (".29 <", ".28 <", "Expected 0.29 of small/a/0.5/mAP - small/b//mAP"),
        ("is 0.3 <", "is so <", r"got \[\]"),
        ("small/a/0.5/mAP -->", "small/c/0.5/mAP -->", "Expected a place .*c/0.5/mAP"),
        ("table: both", "table: none", "Expected a place .*none"),
        ("ahead by\n", "\n\n| a |\n|---|\n| 0.2 |\n\n", r"Expected a table .*\| 0.2 \|"),
    ],
)
def test_what_differs_is_found(checkout: Path, before: str, after: str, fault: str) -> None:
    page = checkout / "README.md"
    assert before in page.read_text()
    page.write_text(page.read_text().replace(before, after, 1))
    with pytest.raises(AssertionError, match=fault):
        assert list(results.found(checkout, FILES)) == []


def test_a_run_is_compared_with_the_stated_noise(capsys: pytest.CaptureFixture[str]) -> None:
    assert results.again("small", SMALL, write=False, noise=False) == []
    assert capsys.readouterr().out.startswith("small: 0 of 2 rows")
    far = replace(SMALL, rows=[["**a**", "0.5", "0.33"], ["b", "", "0.02"]])
    (line,) = results.again("small", far, write=False, noise=False)
    assert line == "small: Expected mAP 0.33 of ['**a**', '0.5'], got 0.31"
    near = replace(far, tolerance={"mAP": 0.02}, noise="by hand")
    assert results.again("small", near, write=False, noise=False) == []
    assert len(results.differences(near, [["**a**", "0.5", "0.3"], ["b", "", "0.02"]])) == 1
    assert len(results.differences(near, [["**a**", "0.5", "refused"], ["b", "", "0.02"]])) == 1
    assert len(results.differences(near, [["**a**", "0.5", "0.33"]])) == 1
    assert len(results.differences(near, [["**a**", "1", "0.33"], ["b", "", "0.02"]])) == 1


def test_the_command_renders_checks_and_runs(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "ROOT", checkout)
    monkeypatch.setattr(results, "read", lambda: dict(FILES))
    monkeypatch.setattr(results, "findings", lambda: {"made": SMALL})
    results.main(["check"])
    page = checkout / "README.md"
    page.write_text(page.read_text().replace("| 0.31 |", "| 0.32 |"))
    with pytest.raises(SystemExit, match=r"README.md: Expected tables"):
        results.main(["check"])
    results.main(["render"])
    results.main(["check"])
    results.main(["run", "small"])
    assert "small: 0 of 2 rows" in capsys.readouterr().out
    results.main(["run", "--sample", "2"])
    out = capsys.readouterr().out
    assert "small: 0 of 2 rows" in out and "made: 0 of 2 rows" in out
    for names in (["both"], ["none"], []):
        with pytest.raises(SystemExit):
            results.main(["run", *names])
        assert "Expected names of results with a command" in capsys.readouterr().err


def test_files_are_as_the_command_writes_them(tmp_path: Path) -> None:
    for name, result in results.read().items():
        results.save(result, tmp_path / "again.json")
        kept = (results.FOLDER / f"{name}.json").read_text()
        assert (tmp_path / "again.json").read_text() == kept
        assert json.loads(kept)["columns"] == result.columns
