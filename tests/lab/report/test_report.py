"""The page on a run: what it says at every stage, and what it must never say."""

import json
import math
import re
import shutil
from html import escape
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, precision_recall_fscore_support

from pate import cli
from pate._core.accounting.cost import format_epsilon
from pate._labeling.commands.run import describe_verdict
from pate._labeling.data.records import Role
from pate._labeling.runs.run import Run, load_data
from pate._labeling.stages.student import WEIGHTS, Solved
from pate.accounting import Statement
from pate.lab.report.report import Bar, interval, label_table
from tests.lab.report.conftest import Reader, read, report

Captured = pytest.CaptureFixture[str]
SECTIONS = ["labels", "quality", "statement", "samples", "student", "answers", "ledger", "settings"]


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
    paints = {
        paint
        for _, attributes in page.tags
        for paint in re.findall(r"(?:fill|stroke|color): ([^;]+)", attributes.get("style") or "")
    }
    assert paints <= {"none", "currentColor", *(f"var(--line-{n})" for n in range(1, 7))}
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


def test_the_verdict_comes_first_and_the_statement_is_folded(copied: Path) -> None:
    text = report(copied)
    page = Reader(text)
    metrics = json.loads((copied / "public" / "student" / "metrics.json").read_text())
    assert describe_verdict("accuracy", metrics) in text[: text.index("<nav>")]
    statement = json.loads((copied / "public" / "privacy.json").read_text())
    said = page.sections["statement"]
    assert said.index("NOT PRIVATE") < said.index("ε = ")  # the noise was seeded
    words = Statement.from_json(statement).text.split()
    assert " ".join(words) in " ".join(said.split())  # whose longest lines are continued
    for guarantee in statement["guarantees"].values():
        assert f"ε = {format_epsilon(guarantee['epsilon'])}" in said
    unfolded = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert "<details open" not in text and "REPLACE_RECORD" in unfolded
    assert "not cover the folder private/" in unfolded


def test_one_sentence_bounds_guesses(of_votes: Path) -> None:
    """By epsilon and delta, in a run with noise that nobody knows, and names neighbors once."""
    unfolded = re.sub(r"<details>.*?</details>", "", report(of_votes), flags=re.DOTALL)
    statement = Statement.read(of_votes / "public" / "privacy.json")
    stated = statement["guarantees"][statement["neighboring_relation"]]
    shown = re.search(r"guesses right at most <strong>([\d.]+)%</strong> of the time", unfolded)
    assert shown is not None
    likely = (
        100 * (math.exp(stated["epsilon"]) + stated["delta"]) / (1 + math.exp(stated["epsilon"]))
    )
    assert likely <= float(shown[1]) < likely + 0.1
    assert unfolded.count(escape(stated["neighbors"])) == 1
    assert "labels" not in read(of_votes).sections  # no student was tested


def test_the_table_of_labels_is_that_of_scikit_learn(copied: Path) -> None:
    folder, source = copied / "public" / "student", load_data(Run(copied))
    test, student = source.records(Role.TEST), Solved.read(folder / WEIGHTS, "accuracy")
    scores, given = student.predictor.decided(test.features[[*range(len(test))]])
    rows = label_table(json.loads((folder / "metrics.json").read_text())).rows
    for row, name, score, answer, truth in zip(
        rows, source.label_names, scores.T, given.T, test.labels.T, strict=True
    ):
        precision, recall, f1, _ = precision_recall_fscore_support(
            truth, answer, average="binary", zero_division=0
        )
        numbers = (f"{truth.sum():,}", *(f"{each:.3f}" for each in (recall, precision, f1)))
        area, blind = average_precision_score(truth, score), truth.mean()
        assert isinstance(row[5], Bar)
        assert row[:5] == (name, *numbers) and row[5].text.startswith(f"{area:.3f} (")
        assert row[5].mark == pytest.approx(blind)
        low = float(row[5].text.split("(")[1].split()[0])
        assert (row[6] == "weak") == (low <= blind or recall == 0)


@pytest.mark.parametrize(("hits", "number"), [(0, 10), (7, 10), (250, 500), (3, 3)])
def test_intervals_are_those_of_scipy(hits: int, number: int) -> None:
    expected = binomtest(hits, number).proportion_ci(0.95, method="wilson")
    assert interval(hits / number, number) == pytest.approx((expected.low, expected.high), abs=1e-4)


@pytest.mark.parametrize(
    ("area", "recall", "note"), [(0.35, 0.5, "weak"), (0.6, 0.5, ""), (0.6, 0.0, "weak")]
)
def test_a_label_that_a_constant_answer_may_equal_is_weak(
    area: float, recall: float, note: str
) -> None:
    """Of 100 records with it, in 300."""
    label = {"support": 100.0, "average_precision": area, "recall": recall} | dict.fromkeys(
        ("precision", "f1"), 0.5
    )
    constant = {"per_label": {"a": {"average_precision": 1 / 3}}}
    metrics = {"student": {"per_label": {"a": label}}, "all_majority": constant}
    assert label_table(metrics).rows[0][-1] == note


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


def test_a_file_of_another_place_is_not_replaced_unasked(copied: Path, capsys: Captured) -> None:
    (at := copied / "mine.html").write_text("mine")
    error = refused(capsys, str(copied), "--output", str(at))
    assert "not there yet, or --overwrite" in error and at.read_text() == "mine"
    assert report(copied, "--output", str(at), "--overwrite", at=at) != "mine"


def test_a_missing_ledger_stops_it(copied: Path, capsys: Captured) -> None:
    """Releases since would not be counted."""
    (copied / "ledger.sqlite").unlink()
    assert "Expected the ledger of" in refused(capsys, str(copied))
    assert not (copied / "public" / "report.html").exists()


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
