"""Teachers that start from a released student: one target for both releases, and one ballot a record."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pate import ReleasedLabels, cli, load_student
from pate._core.accounting.charges import account
from pate._core.accounting.ledger import Ledger
from pate._labeling.data.records import assign_teachers
from pate._labeling.stages.teachers import ballots_of, correction
from pate.accounting import Budget, GaussianEvent, NeighboringRelation, read_ledger
from tests.conftest import make_arrays, recipe
from tests.statements import RECORDS

KEY = bytes.fromhex("5e" * 32)
TEACHERS = 40
WORDS = ("--label.noise_seed=3",)
Captured = pytest.CaptureFixture[str]


def warm_recipe(place: Path, *, teachers: int | None = TEACHERS, epsilon: float = 30.0) -> Path:
    """Write data and a recipe of two releases, with keys that are the same in every session."""
    np.savez(place / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(place / "recipe", place / "data.npz")
    plan: dict[str, object] = {"fit": "closed_form", "start_from": "first"}
    (folder / "teachers.yaml").write_text(yaml.safe_dump(plan | {"num_teachers": teachers}))
    label = {"aggregator": "StableTopK", "target_epsilon": epsilon, "num_queries": 40}
    (folder / "label.yaml").write_text(yaml.safe_dump(label | {"delta": 1e-4}))
    for run in (place / "run", place / "run" / "first"):
        write_key(run)
    return folder


def write_key(run: Path) -> None:
    (run / "private").mkdir(parents=True, mode=0o700)
    (run / "private" / "partition.json").write_text(json.dumps({"key": KEY.hex()}))


class Fit:
    """Teachers of a changed data set that start from the student of a finished run, by its ledger and its key."""

    def __init__(self, warm: Path, folder: Path, **changes: np.ndarray) -> None:
        self.arrays = make_arrays() | changes
        self.folder, self.warm = folder, warm
        folder.mkdir()
        np.savez(folder / "data.npz", **self.arrays)  # type: ignore[arg-type]
        source = {"class_path": "Arrays", "init_args": {"path": str(folder / "data.npz")}}
        (folder / "data.yaml").write_text(yaml.safe_dump({"data": source}))
        write_key(folder / "run")

    def fit(self, *words: str, ledger: Path | None = None) -> int:
        ledger = ledger or self.warm / "data.ledger.sqlite"
        return cli.main(
            [
                "teachers",
                "fit",
                f"--config={self.folder / 'data.yaml'}",
                f"--run={self.folder / 'run'}",
                f"--ledger={ledger}",
                "--fit=closed_form",
                f"--start_from={self.warm / 'run' / 'first'}",
                *words,
            ]
        )

    def ballots(self, num_teachers: int = TEACHERS) -> np.ndarray:
        assert self.fit(f"--num_teachers={num_teachers}") == 0
        assert cli.main(["teachers", "vote", f"--run={self.folder / 'run'}"]) == 0
        files = sorted((self.folder / "run" / "private" / "votes").glob("votes_*.npy"))
        return np.concatenate([np.load(file) for file in files])

    @property
    def corrections(self) -> np.ndarray:
        path = self.folder / "run" / "private" / "teachers" / "corrections.npy"
        corrections: np.ndarray = np.load(path)
        return corrections


def test_both_releases_have_one_statement(warm: Path, capsys: Captured) -> None:
    book = read_ledger(warm / "data.ledger.sqlite")
    assert [(entry.description, entry.count) for entry in book.entries] == [
        ("ScoreVotes", 100),
        ("StableTopK", 40),
    ]
    statement = json.loads((warm / "run" / "public" / "privacy.json").read_text())
    assert len(statement["releases"]) == 2
    both = statement["guarantees"]["replace_record"]
    # a target counts the order of releases, as a statement does
    total = account(book.reserved(), NeighboringRelation.REPLACE_RECORD, in_order=False)
    by_sum = total.get_epsilon(delta=both["delta"])
    assert both["in_order"] == 81 and 0.9 * by_sum < both["epsilon"] < 0.98 * by_sum
    assert 0.999 * 30 < both["epsilon"] <= 30
    first = json.loads((warm / "run" / "first" / "public" / "privacy.json").read_text())
    assert 0.5 * 30 < first["guarantees"]["replace_record"]["epsilon"] < 0.75 * 30
    assert cli.main(["verify", str(warm / "run")]) == 0
    verify = ["verify", str(warm / "run" / "public" / "privacy.json")]
    assert cli.main([*verify, f"--ledger={warm / 'data.ledger.sqlite'}"]) == 0
    assert ReleasedLabels.load(warm / "run").answered.sum() > 20


def altered(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    features, labels = arrays["X"].copy(), arrays["Y"].copy()
    features[7], labels[7] = 1e30, 1 - labels[7]
    return {"X": features, "Y": labels}


def removed(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    rows = np.arange(len(arrays["X"])) != 7
    return {name: arrays[name][rows] for name in ("X", "Y", "ids", "split")}


def flipped(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    labels = arrays["Y"].copy()
    labels[7] = 1 - labels[7]
    return {"Y": labels}


@pytest.mark.parametrize("change", [altered, removed, flipped])
def test_a_record_reaches_the_ballot_of_its_own_teacher_alone(
    change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]], warm: Path, tmp_path: Path
) -> None:
    one, other = Fit(warm, tmp_path / "one"), Fit(warm, tmp_path / "other", **change(make_arrays()))
    ballots, changed = one.ballots(), other.ballots()
    (mine,) = assign_teachers(["r0007"], num_teachers=TEACHERS, key=KEY).tolist()
    others = np.arange(TEACHERS) != mine
    np.testing.assert_array_equal(ballots[others], changed[others])
    np.testing.assert_array_equal(one.corrections[others], other.corrections[others])
    assert (one.corrections[mine] != other.corrections[mine]).any()
    if change is not removed:
        assert (ballots[mine] != changed[mine]).any()


def test_a_correction_of_a_label_is_solved_on_the_records_that_know_it() -> None:
    generator = np.random.default_rng(0)
    for num, features in ((8, 3), (4, 9)):
        samples, residuals = generator.normal(size=(num, features)), generator.normal(size=(num, 4))
        known = generator.random((num, 4)) < 0.6
        known[:, 1], known[:, 2] = False, True
        found = correction(samples, np.where(known, residuals, np.nan), known, 0.7)
        for label in range(4):
            rows = np.column_stack((samples, np.ones(num)))[known[:, label]]
            normal = rows.T @ rows + 0.7 * np.eye(features + 1)
            plain = np.linalg.solve(normal, rows.T @ residuals[known[:, label], label])
            np.testing.assert_allclose(found[:, label], plain, atol=1e-9)
        assert not correction(samples[:0], residuals[:0], known[:0], 0.7).any()


@pytest.mark.parametrize("others", [0.0, 1e30, np.inf, np.nan])
def test_no_digit_of_a_vote_depends_on_the_corrections_of_others(others: float) -> None:
    """Their products are made together. Votes that a last digit would turn are the same."""
    generator = np.random.default_rng(0)
    samples = generator.normal(size=(50, 301)).astype(np.float32)
    corrections = generator.normal(size=(7, 301, 3)).astype(np.float32)
    columns = corrections.swapaxes(0, 1).reshape(301, 21)
    product = (samples @ columns).reshape(50, 7, 3)[:, 4].astype(np.float64)
    company = np.full_like(corrections, others)
    company[4] = corrections[4]
    for edge, voted in ((0.5, False), (0.5 + 2.0**-40, True)):
        with np.errstate(all="ignore"):
            (ballots,) = ballots_of(samples, edge - product, company)
        assert (ballots[4] == voted).all()
        # the negative control: a last digit does turn them
        digit = np.nextafter(product.astype(np.float32), np.float32(np.inf if voted else -np.inf))
        (turned,) = ballots_of(samples, edge - digit.astype(np.float64), corrections)
        assert (turned[4] != voted).all()


def test_public_samples_are_answered_as_the_student_answers_them(tmp_path: Path) -> None:
    """It has the map of the data, which mapped them already."""
    np.savez(tmp_path / "data.npz", **(arrays := make_arrays()))  # type: ignore[arg-type]
    folder = recipe(tmp_path / "recipe", tmp_path / "data.npz")
    with (folder / "data.yaml").open("a") as file:
        file.write("    features: PublicScaling\n")
    first, run = tmp_path / "first", tmp_path / "run"
    assert cli.main(["run", str(folder), f"--run={first}"]) == 0
    words = [f"--config={folder / 'data.yaml'}", f"--run={run}", "--fit=closed_form"]
    words += [f"--start_from={first}", "--num_teachers=8"]
    assert cli.main(["teachers", "fit", *words]) == 0
    student = load_student(first / "public" / "student" / "model")
    answers = np.load(run / "private" / "teachers" / "start.npy")
    np.testing.assert_allclose(answers, student.predict_proba(arrays["X"][arrays["split"] == 1]))


def test_a_student_of_other_records_is_refused(
    warm: Path, tmp_path: Path, capsys: Captured
) -> None:
    fit = Fit(warm, tmp_path / "fit")
    assert fit.fit("--num_teachers=40", ledger=tmp_path / "new.sqlite") == 2
    error = capsys.readouterr().err
    assert "Expected a student whose release is in" in error
    assert len(error.strip().splitlines()) == 1
    named = Fit(warm, tmp_path / "named", label_names=np.array(list("wxyz")))
    assert named.fit("--num_teachers=40") == 2
    assert "Expected a student of the data's labels" in capsys.readouterr().err
    wide = Fit(warm, tmp_path / "wide", X=np.zeros((600, 5), dtype=np.float32))
    assert wide.fit("--num_teachers=40") == 2
    assert "Expected a student of samples of shape [5]" in capsys.readouterr().err


@pytest.fixture
def released(warm: Path, tmp_path: Path) -> Path:
    """A copy of the run of the first release."""
    return Path(shutil.copytree(warm / "run" / "first", tmp_path / "released"))


REPLACED = {
    "linear.safetensors": "public/student/linear.safetensors changed since",
    "model/model.safetensors": "Expected the student that `pate student fit` exported to",
    "model/model.json": "Expected the student that `pate student fit` exported to",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[pytest.mark.slow] if i >= 1 else [])
        for i, each in enumerate(REPLACED)
    ],
)
def test_a_replaced_student_is_refused(
    name: str, warm: Path, released: Path, tmp_path: Path, capsys: Captured
) -> None:
    file = released / "public" / "student" / name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1 if file.suffix == ".safetensors" else ord("\n") ^ ord(" ")
    file.write_bytes(content)
    fit = Fit(warm, tmp_path / "fit")
    for place in (released, released / "public" / "student" / "model"):
        assert fit.fit("--num_teachers=40", f"--start_from={place}") == 2
        error = capsys.readouterr().err
        assert REPLACED[name] in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "fit" / "run" / "private" / "teachers").exists()


def test_a_ledger_that_pays_for_one_of_two_releases_is_found_before_the_first(
    tmp_path: Path, capsys: Captured
) -> None:
    """Each of them is within the budget of the ledger, and both together are not."""
    folder, ledger = warm_recipe(tmp_path), tmp_path / "data.ledger.sqlite"
    of: dict[str, Any] = {"neighboring_relation": NeighboringRelation.REPLACE_RECORD}
    event = GaussianEvent(noise_multiplier=1e3, **of)
    other = replace(event, neighboring_relation=NeighboringRelation.ADD_REMOVE_TEACHER)
    Ledger(ledger, home=tmp_path / "data.npz").reserve(
        {each.neighboring_relation: each for each in (event, other)},
        count=1,
        run="another",
        description="a release with a budget",
        seeded=True,
        budget=Budget(max_epsilon=25.0, delta=1e-4, max_delta0=6e-5, filter="renyi", **of),
        privacy_unit=RECORDS,
    )
    assert cli.main(["run", str(folder), f"--run={tmp_path / 'run'}", *WORDS]) == 2
    # the sum of both; either by itself is within 25
    assert "with all earlier releases, got epsilon=32." in capsys.readouterr().err
    assert len(read_ledger(ledger).entries) == 1
