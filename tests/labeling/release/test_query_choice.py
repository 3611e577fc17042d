"""Samples that a released student, or public features, choose."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pate import LabelSettings, ReleasedLabels, cli, load_student
from pate._core.validation import IntArray
from pate._labeling.release.labels import farthest_first, least_margin, total_entropy
from pate._labeling.runs.run import Run
from pate._labeling.runs.vote_store import finished_votes
from pate.accounting import read_ledger
from tests.conftest import make_arrays
from tests.labeling.stages.test_corrections import WORDS, warm_recipe

NUMBER = 25


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with a finished run of two releases, whose labels the tests release again."""
    place = tmp_path_factory.mktemp("chosen")
    words = ["run", str(warm_recipe(place)), f"--run={place / 'run'}", *WORDS]
    assert cli.main(words) == 0
    return place


def test_a_student_is_least_certain_near_one_half() -> None:
    probabilities = np.array([[0.5, 1.0], [0.7, 0.3], [0.9, 0.8], [0.0, 1.0]])
    nats = -np.log([0.5, 1.0]) * [1, 0]  # of the first
    assert total_entropy(probabilities)[0] == pytest.approx(nats.sum())
    assert np.argsort(-total_entropy(probabilities)).tolist() == [1, 2, 0, 3]
    np.testing.assert_allclose(least_margin(probabilities), [0, -0.2, -0.3, -0.5])


def test_each_is_the_farthest_from_those_before_it() -> None:
    features = np.random.default_rng(0).standard_normal((30, 3))
    rows = [0]
    for _ in range(9):
        rows.append(int(cdist(features, features[rows]).min(axis=1).argmax()))
    assert farthest_first(features, 10).tolist() == rows


def test_no_sample_is_farther_than_twice_the_least_possible() -> None:
    generator = np.random.default_rng(1)
    for _ in range(20):
        features = generator.standard_normal((9, 2))
        far = cdist(features, features)
        best = min(
            far[list(rows)].min(axis=0).max() for rows in itertools.combinations(range(9), 3)
        )
        assert far[farthest_first(features, 3)].min(axis=0).max() <= 2 * best


def test_copies_of_a_sample_are_taken_once_each() -> None:
    assert sorted(farthest_first(np.ones((6, 2)), 6).tolist()) == [*range(6)]


def test_one_method_orders_the_samples(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are first, and those among which others are chosen, such as the first center."""
    ids = finished_votes(Run(copied)).manifest().ids

    def backward(_: LabelSettings, available: int, number: int | None = None) -> IntArray:
        return np.arange(available)[::-1][:number]

    monkeypatch.setattr(LabelSettings, "order_of", backward)
    words = ["label", f"--run={copied}", "--aggregator=NoisyVotes", "--aggregator.sigma_votes=3"]
    words += ["--delta=1e-4", "--num_queries=5", "--overwrite"]
    assert cli.main(words) == 0
    assert ReleasedLabels.load(copied).ids.tolist() == [*ids[-5:]][::-1]
    assert cli.main([*words, "--query_choice=k_center"]) == 0
    assert ReleasedLabels.load(copied).ids[0] == ids[-1]


@pytest.mark.parametrize("choice", ["entropy", "margin", "k_center"])
def test_a_release_of_chosen_samples(
    choice: str, started: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, ledger = started / "run", started / "data.ledger.sqlite"
    before = len(read_ledger(ledger).entries)
    words = ["label", f"--run={run}", "--aggregator=NoisyVotes", "--aggregator.sigma_votes=3"]
    words += ["--delta=1e-4", f"--num_queries={NUMBER}", "--noise_seed=5", "--overwrite"]
    for _ in range(2):  # which pays once
        assert cli.main([*words, f"--query_choice={choice}"]) == 0
    asked = ReleasedLabels.load(run).ids.tolist()
    arrays = make_arrays()
    samples, ids = arrays["X"][arrays["split"] == 1], arrays["ids"][arrays["split"] == 1]
    if choice == "k_center":
        first = ids.tolist().index(asked[0])
        order = [first, *np.delete(np.arange(len(ids)), first)]
        expected = ids[order][farthest_first(samples[order].astype(np.float64), NUMBER)].tolist()
        assert set(asked) != set(ids[:NUMBER].tolist())
    else:
        student = load_student(run / "first" / "public" / "student" / "model")
        uncertain = {"entropy": total_entropy, "margin": least_margin}[choice]
        said = uncertain(student.predict_proba(samples).astype(np.float64))
        expected = ids[np.argsort(-said)[:NUMBER]].tolist()
    assert asked == expected
    statement = json.loads((run / "public" / "privacy.json").read_text())
    assert statement["query_choice"] == choice
    assert len(statement["releases"]) == before + 1
    text = (run / "public" / "privacy.txt").read_text()
    assert f"asked about are public, chosen by {choice}:" in text
    verify = ["ledger", "verify", f"--statement={run / 'public' / 'privacy.json'}"]
    assert cli.main([*verify, f"--ledger={ledger}"]) == 0
    capsys.readouterr()
    assert cli.main([*words[:-1], "--query_choice=margin"]) == (0 if choice == "margin" else 2)


def test_a_run_without_a_student_is_refused_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = warm_recipe(tmp_path)
    (folder / "teachers.yaml").write_text("fit: closed_form\n")
    words = ["run", str(folder), f"--run={tmp_path / 'new'}", *WORDS]
    assert cli.main([*words, "--label.query_choice=entropy"]) == 2
    error = capsys.readouterr().err
    assert "teachers with start_from" in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "new").exists()
