"""The page on a run: what it says at every stage, and what it must never say."""

import json
import math
import re
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from pate import cli
from pate._core.accounting.cost import format_epsilon
from pate.accounting import Statement
from tests.lab.report.conftest import Reader, read, report

Captured = pytest.CaptureFixture[str]
SECTIONS = ["statement", "ledger", "answers", "samples", "student", "labels", "settings"]
PRIVATE = ["votes", "losses", "private-settings"]


def refused(capsys: Captured, *words: str) -> str:
    """Run `pate report` where it has to fail, and return its one line."""
    capsys.readouterr()
    assert cli.main(["report", *words]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1, error
    return error


def require_alone(page: Reader) -> None:
    """The page asks for nothing, runs nothing, and leads nowhere but within itself."""
    assert not {"script", "link", "iframe", "object", "form"} & {tag for tag, _ in page.tags}
    assert all(str(image["src"]).startswith("data:image/png;base64,") for image in page.of("img"))
    anchors = {str(section["id"]) for section in page.of("section")}
    assert {str(link["href"]) for link in page.of("a")} == {f"#{anchor}" for anchor in anchors}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    policy = next(
        each for each in page.of("meta") if each.get("http-equiv") == "Content-Security-Policy"
    )
    assert str(policy["content"]).startswith("default-src 'none'")


def test_a_page_stands_alone(copied: Path) -> None:
    text = report(copied)
    page = Reader(text)
    assert list(page.sections) == SECTIONS
    require_alone(page)
    assert "http" not in text.replace("http-equiv", "")
    assert "url(" not in text
    assert re.search(r"<tr>(<th [^>]*>|<td>)", text) and not re.search(r"<th[^>]*></th>", text)


def test_the_statement_comes_first_in_its_own_words(copied: Path) -> None:
    page = read(copied)
    statement = json.loads((copied / "public" / "privacy.json").read_text())
    said = page.sections["statement"]
    assert said.index("NOT PRIVATE") < said.index("ε = ")  # the noise was seeded
    words = Statement.from_json(statement).text.split()
    assert " ".join(words) in " ".join(said.split())  # whose longest lines are continued
    for guarantee in statement["guarantees"].values():
        assert f"ε = {format_epsilon(guarantee['epsilon'])}" in said
        assert guarantee["neighbors"] in said
    assert "not cover the folder private/" in said


def test_the_first_sentence_bounds_guesses(of_votes: Path) -> None:
    """By the smaller of two bounds, in a run with noise that nobody knows."""
    said = read(of_votes).sections["statement"]
    statement = Statement.read(of_votes / "public" / "privacy.json")
    relation = statement["guarantees"][statement["neighboring_relation"]]
    shown = re.search(
        r"An observer of everything published guesses right at most ([\d.]+)% of the time", said
    )
    assert shown is not None and said.index(shown[0]) < said.index("ε = ")
    of_epsilon = (math.exp(relation["epsilon"]) + relation["delta"]) / (
        1 + math.exp(relation["epsilon"])
    )
    of_variation = (1 + statement.total_variation) / 2
    smaller = 100 * min(of_epsilon, of_variation)
    assert smaller <= float(shown[1]) < smaller + 0.1


@pytest.mark.slow
def test_nothing_private_is_read(copied: Path, of_votes: Path) -> None:
    for root in (copied, of_votes):
        whole = report(root)
        shutil.move(root / "private", root.parent / "away")
        assert report(root) == whole
        shutil.rmtree(root.parent / "away")


def test_nothing_private_is_told(copied: Path) -> None:
    text = report(copied)
    assert json.loads((copied / "private" / "partition.json").read_text())["key"] not in text
    assert str(copied) not in text  # where the data lie is nobody's business
    assert "teachers_fit" not in text


def test_private_parts_are_asked_for_and_marked(copied: Path, capsys: Captured) -> None:
    public = report(copied)
    page = read(copied, "--private")
    assert "PRIVATE: not to be published" in capsys.readouterr().out
    assert list(page.sections) == SECTIONS + PRIVATE
    marked = [
        str(section["id"]) for section in page.of("section") if section.get("class") == "private"
    ]
    assert marked == PRIVATE
    assert all("PRIVATE: not for release" in page.sections[name] for name in PRIVATE)
    assert not [name for name in SECTIONS if "PRIVATE: not for release" in page.sections[name]]
    assert page.text.count("PRIVATE: not for release") == len(PRIVATE) + 1  # at the top, too
    assert "num_teachers: 10" in page.sections["private-settings"]
    require_alone(page)
    assert stat.S_IMODE((copied / "private" / "report.html").stat().st_mode) == 0o600
    assert (copied / "public" / "report.html").read_text() == public


def test_what_is_private_never_goes_to_the_public_folder(copied: Path, capsys: Captured) -> None:
    error = refused(
        capsys, str(copied), "--private", "--output", str(copied / "public" / "all.html")
    )
    assert "another place than public/" in error
    assert not (copied / "public" / "all.html").exists()


def test_a_statement_that_does_not_follow_is_refused(copied: Path, capsys: Captured) -> None:
    path = copied / "public" / "privacy.json"
    right: dict[str, Any] = json.loads(path.read_text())
    wrong = json.loads(path.read_text())
    wrong["guarantees"]["replace_record"]["epsilon"] /= 2
    path.write_text(json.dumps(wrong))
    assert "Expected guarantees.replace_record.epsilon=" in refused(capsys, str(copied))
    path.write_text(json.dumps(right | {"num_answered": 1}))
    assert "got num_answered=1" in refused(capsys, str(copied))
    path.write_text(
        json.dumps({name: value for name, value in right.items() if name != "releases"})
    )
    assert "a whole labels statement" in refused(capsys, str(copied))
    path.write_text(json.dumps(right))
    (copied / "public" / "labels.npz").write_bytes(
        (copied / "public" / "labels.npz").read_bytes() + b" "
    )
    assert "Expected the file of release 1, of sha256" in refused(capsys, str(copied))


def test_a_misspelled_ledger_is_no_new_one(copied: Path, capsys: Captured) -> None:
    """Without a word, the run would have had a budget of its own."""
    text = (copied / "data.yaml").read_text()
    assert "ledger: null" in text
    (copied / "data.yaml").write_text(
        text.replace("ledger: null", f"ledgr: {copied / 'other.sqlite'}")
    )
    label = [
        "label",
        "--config",
        str(copied / "public" / "label.yaml"),
        "--run",
        str(copied),
        "--overwrite",
    ]
    for words in (["report", str(copied)], label, ["student", "test", "--run", str(copied)]):
        assert cli.main(words) == 2
        error = capsys.readouterr().err
        assert (
            "data.yaml among data, ledger, got ledgr; did you mean ledger?" in error
            and len(error.splitlines()) == 1
        )
