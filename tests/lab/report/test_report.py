"""The page on a run: what it says at every stage, and what it must never say."""

import base64
import json
import math
import os
import re
import shutil
import stat
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from pate import ReleasedLabels, cli
from pate._core.accounting import ledger as _ledger
from pate._core.accounting.cost import format_epsilon
from pate._labeling.data.pictures import read_image
from pate.accounting import Statement, read_ledger
from pate.aggregators import Ballots
from tests.conftest import make_arrays, recipe as closed_form_recipe
from tests.lab.report.conftest import NAMES, Reader, label_votes, read, report
from tests.labeling.stages.test_closed_form import Place

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


def test_what_was_asked_and_learned(copied: Path) -> None:
    page = read(copied)
    with np.load(copied / "public" / "labels.npz") as released:
        asked = released["mask"].any(axis=1)
        answered = int(asked.sum())
        first = str(released["ids"][0])
    assert 0 < answered < 80
    assert f"{answered / 80:.1%}" in page.sections["answers"]
    assert "scale_gap" in page.sections["answers"]
    assert first in page.sections["samples"]
    assert ("not answered" in page.sections["samples"]) == (not asked[:20].all())
    metrics = json.loads((copied / "public" / "student" / "metrics.json").read_text())
    for name in ("student", "released_constant", "all_majority"):
        assert f"{metrics[name]['macro_f1']:.3f}" in page.sections["student"]
        for purpose, figures in metrics[name]["at_cut"].items():
            assert all(f"{value:.3f}" in page.sections["student"] for value in figures.values()), (
                purpose
            )
    assert "By cuts that serve accuracy, as was chosen" in page.sections["student"]
    assert "100 test records" in page.sections["student"]
    for label in "abcd":
        assert f"{metrics['student']['per_label'][label]['f1']:.3f}" in page.sections["labels"]
    assert "sigma_test: 0.5" in page.sections["settings"]
    marks = [each for each in page.of("b") if "left" in str(each.get("style"))]
    assert len(marks) == 4 * 5  # the constant answer, for each label and figure


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


@pytest.mark.slow
def test_figures_of_the_votes(copied: Path) -> None:
    """Agreement is computed once more from the ballots of the queried samples."""
    from pate.teachers import VoteStore

    with np.load(copied / "public" / "labels.npz") as released:
        ids, labels, mask = released["ids"], released["labels"], released["mask"]
    votes, names = VoteStore(copied / "private" / "votes").load(Ballots)
    assert votes.ballots is not None
    row = {name: number for number, name in enumerate(names)}
    shares = votes.ballots[[row[name] for name in ids]].mean(axis=1)
    page = read(copied, "--private")
    assert f"{np.maximum(shares, 1 - shares).mean():.1%}agreement" in page.sections["votes"]
    right = (labels == (shares > 0.5))[mask].mean()
    assert f"{right:.1%}correct" in page.sections["votes"]
    assert "80 queries" in page.sections["votes"]
    captions = [str(image["alt"]) for image in page.of("img")]
    assert "votes by the share of the teachers voting for a label" in captions


def test_what_is_private_never_goes_to_the_public_folder(copied: Path, capsys: Captured) -> None:
    error = refused(
        capsys, str(copied), "--private", "--output", str(copied / "public" / "all.html")
    )
    assert "another place than public/" in error
    assert not (copied / "public" / "all.html").exists()


@pytest.mark.slow
def test_names_are_escaped(of_votes: Path, capsys: Captured) -> None:
    capsys.readouterr()
    text = report(of_votes)
    assert "<b>bold" not in text
    assert "<script" not in text
    assert "<i>run" not in text
    page = Reader(text)
    require_alone(page)
    assert "<i>run&amp;" in page.text
    for name in NAMES:
        assert name in page.sections["labels"]


@pytest.mark.slow
def test_ids_of_samples_are_escaped(of_votes: Path, tmp_path: Path) -> None:
    """The records that the votes were on, with ids that are markup."""
    ids = np.array([f"<script>alert({number})</script>" for number in range(31)])
    split = np.array([1] * 30 + [2])
    X, Y = np.ones((31, 8), dtype=np.float32), np.zeros((31, 3), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", X=X, Y=Y, ids=ids, split=split, label_names=np.array(NAMES))
    described = yaml.safe_load((of_votes / "data.yaml").read_text())
    described["data"] = {"class_path": "Arrays", "init_args": {"path": str(tmp_path / "data.npz")}}
    (of_votes / "data.yaml").write_text(yaml.safe_dump(described))
    page = read(of_votes, "--num_samples=30")
    require_alone(page)
    assert page.sections["samples"].count("<script>alert(") == 30
    assert "1 · 1 · 1 · 1 · 1 · 1 · and 2 more" in page.sections["samples"]


@pytest.mark.slow
def test_a_run_of_votes_without_records(of_votes: Path) -> None:
    page = read(of_votes)
    assert list(page.sections) == [
        "statement",
        "ledger",
        "answers",
        "samples",
        "student",
        "labels",
        "settings",
    ]
    assert "votes were imported" in page.sections["samples"]
    assert "data.yaml" in page.sections["student"]
    assert "noise of standard deviation 2.0 votes" in page.sections["answers"]
    assert "12" in page.sections["answers"]
    assert list(read(of_votes, "--private").sections)[-2:] == ["votes", "private-settings"]


@pytest.mark.slow
def test_every_stage_has_a_page(copied: Path, capsys: Captured) -> None:
    (copied / "public" / "student" / "metrics.json").unlink()
    assert "pate student test --run" in read(copied).sections["student"]
    shutil.rmtree(copied / "public" / "student")
    page = read(copied)
    assert "pate student fit --run" in page.sections["student"]
    for name in ("privacy.json", "privacy.txt"):
        (copied / "public" / name).unlink()
    page = read(copied)
    assert list(page.sections) == ["statement"]
    assert "pate label --run" in page.sections["statement"]
    assert "r0" not in page.text  # labels without a statement are not shown
    (copied / "data.yaml").unlink()
    assert "the folder of a run" in refused(capsys, str(copied))


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


@pytest.mark.slow
def test_later_releases_are_counted(of_votes: Path) -> None:
    """Another run on the same votes releases more: what is stated now is the cost of both."""
    before = json.loads((of_votes / "public" / "privacy.json").read_text())
    assert "gained" not in read(of_votes).text
    other = of_votes.parent / "other"
    label_votes(other, "--num_queries=9")
    after = json.loads((other / "public" / "privacy.json").read_text())
    page = read(of_votes)
    said = page.sections["statement"]
    assert "gained 1 release(s) since" in said
    name = "replace_record"
    now, then = (format_epsilon(each["guarantees"][name]["epsilon"]) for each in (after, before))
    assert now != then
    assert said.index(f"ε = {now}") < said.index(f"epsilon = {then}")
    assert f"ε = {then}" not in said
    condition = "What all of them cost together holds if no release decided the number, kinds or costs of later ones."
    assert " ".join(page.sections["ledger"].split()).endswith(f"all39together{now} {condition}")


def test_the_ledger_is_left_alone(copied: Path) -> None:
    path = copied / "ledger.sqlite"
    before = (
        path.read_bytes(),
        path.stat().st_mtime_ns,
        sorted(each.name for each in copied.iterdir()),
    )
    with _ledger.locked_log(path):  # while somebody else is about to write
        report(copied)
    assert (
        path.read_bytes(),
        path.stat().st_mtime_ns,
        sorted(each.name for each in copied.iterdir()),
    ) == before
    assert len(read_ledger(path).entries) == 1


@pytest.mark.slow
def test_without_its_ledger_a_run_has_its_statement(copied: Path, capsys: Captured) -> None:
    (copied / "ledger.sqlite").unlink()
    page = read(copied)
    assert "the ledger is not at" in capsys.readouterr().err
    assert "not available" in page.sections["ledger"]
    assert "StableTopK" in page.sections["ledger"]
    assert not (copied / "ledger.sqlite").exists()


@pytest.mark.slow
def test_without_its_records_a_run_has_no_samples(copied: Path, capsys: Captured) -> None:
    text = (copied / "data.yaml").read_text().replace("data.npz", "gone.npz")
    (copied / "data.yaml").write_text(text)
    page = read(copied)
    assert "gone.npz" in capsys.readouterr().err
    assert "not available" in page.sections["samples"]
    assert "the test records" in page.sections["student"]
    assert "gone.npz" not in page.text


@pytest.mark.slow
def test_new_labels_take_the_old_page_with_them(of_votes: Path) -> None:
    """It would say less than what both releases cost."""
    report(of_votes)
    label_votes(of_votes, "--num_queries=9", "--overwrite")
    assert not (of_votes / "public" / "report.html").exists()
    assert "release" in read(of_votes).sections["ledger"]


@pytest.mark.slow
def test_figures_of_older_labels_are_told(copied: Path) -> None:
    assert "older than the labels" not in read(copied).text
    metrics, labels = (
        copied / "public" / "student" / "metrics.json",
        copied / "public" / "labels.npz",
    )
    os.utime(metrics, (0, labels.stat().st_mtime - 1))
    assert "older than the labels" in read(copied).sections["student"]


@pytest.mark.slow
def test_pictures_are_in_the_page(of_faces: Path, faces: Path) -> None:
    page = read(of_faces)
    with np.load(of_faces / "public" / "labels.npz") as released:
        ids = released["ids"][:20].tolist()
    images = [image for image in page.of("img") if str(image["alt"]).startswith("the sample")]
    assert len(images) == 20
    for name, image in zip(ids, images, strict=True):
        content = base64.b64decode(str(image["src"]).partition(",")[2])
        pixels = np.asarray(Image.open(BytesIO(content))).transpose(2, 0, 1)
        assert np.array_equal(pixels, read_image(faces / "img_align_celeba" / name, 32))
        assert image["alt"] == f"the sample {name}"


@pytest.mark.slow
def test_curves_are_drawn(of_faces: Path) -> None:
    page = read(of_faces)
    captions = [str(image["alt"]) for image in page.of("img")]
    assert "loss against epoch: train_loss, val_loss" in captions
    assert "train_loss" in page.sections["curves"]


@pytest.mark.slow
def test_no_more_samples_than_asked_for(of_faces: Path, tmp_path: Path, capsys: Captured) -> None:
    output = tmp_path / "elsewhere" / "page.html"
    assert cli.main(["report", str(of_faces), "--num_samples=3", "--output", str(output)]) == 0
    assert capsys.readouterr().out.strip() == str(output)
    images = Reader(output.read_text()).of("img")
    assert sum(str(image["alt"]).startswith("the sample") for image in images) == 3
    assert "num_samples >= 0" in refused(capsys, str(of_faces), "--num_samples=-1")


def test_labels_are_read_without_their_seal(copied: Path, tmp_path: Path) -> None:
    sealed, read_alone = (
        ReleasedLabels.load(copied),
        ReleasedLabels.read(copied / "public" / "labels.npz"),
    )
    for name, value in vars(sealed).items():
        np.testing.assert_array_equal(getattr(read_alone, name), value)
    with np.load(copied / "public" / "labels.npz") as released:
        arrays = {name: released[name] for name in released.files}
    np.savez(tmp_path / "cut.npz", **(arrays | {"mask": arrays["mask"][:3]}))
    with pytest.raises(ValueError, match="mask of shape"):
        ReleasedLabels.read(tmp_path / "cut.npz")
    for ratio in (np.nan, np.inf, -1.0):
        np.savez(tmp_path / "odd.npz", **(arrays | {"variance_ratio": np.array(ratio)}))
        with pytest.raises(ValueError, match="variance_ratio > 0, got variance_ratio="):
            ReleasedLabels.read(tmp_path / "odd.npz")


@pytest.mark.parametrize("text", ["data: [", "ledger: null\n"])
def test_a_damaged_description_is_refused(copied: Path, capsys: Captured, text: str) -> None:
    (copied / "data.yaml").write_text(text)
    assert "where data and ledger lie" in refused(capsys, str(copied))


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


@pytest.mark.slow
def test_a_page_needs_no_framework(copied: Path) -> None:
    script = (
        "import sys\nfrom pate.cli import main\n"
        "assert main(['report', sys.argv[1], '--private']) == 0\n"
        "assert not {'torch', 'pytorch_lightning'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(copied)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_page_on_records_that_voted_for_themselves(tmp_path: Path) -> None:
    """On another scale than the public samples."""

    def scale(arrays: dict[str, np.ndarray]) -> None:
        arrays["X"] = np.where((arrays["split"] == 0)[:, None], 0.1 * arrays["X"] + 2, arrays["X"])

    place = Place(tmp_path)
    place.write(scale)
    place.all()
    page = report(place.root)
    assert "answers of a linear model" in page
    assert "times the variance of public samples:\nare these" in page
    assert "answers of a linear model" in report(place.root, "--private")


@pytest.mark.slow
def test_a_page_without_test_records_says_so(tmp_path: Path) -> None:
    arrays = make_arrays() | {"split": np.repeat([0, 1], 300)}
    np.savez(tmp_path / "data.npz", **arrays)  # type: ignore[arg-type]
    folder = closed_form_recipe(tmp_path / "recipe", tmp_path / "data.npz")
    assert cli.main(["run", str(folder), f"--run={tmp_path / 'run'}", "--label.noise_seed=3"]) == 0
    assert "The data have no test records" in report(tmp_path / "run")
