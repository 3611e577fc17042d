"""Students are chosen by teachers: one record changes what one of them says, and the ledger has
paid."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pate import cli
from pate._labeling.data.records import assign_teachers
from pate._labeling.release.between_runs import open_run
from pate._labeling.runs.run import Run, read_key
from pate._labeling.stages.model_selection import Candidates, choose_student, figure_of
from pate.accounting import Ledger, NeighboringRelation, Statement, read_ledger
from pate.data import Arrays
from pate.mechanisms import GumbelPeeling
from tests.conftest import copy_run, finish, make_arrays, recipe
from tests.core.accounting.ledgers import gaussian, reserve

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose records voted in ten parts; not to be written to."""
    place = tmp_path_factory.mktemp("parted")
    np.savez(place / "data.npz", **make_arrays())  # type: ignore[arg-type]
    folder = recipe(place / "recipe", place / "data.npz")
    (folder / "teachers.yaml").write_text("fit: closed_form\nnum_teachers: 10\n")
    return finish(folder)


@pytest.fixture
def copied(parted: Path, tmp_path: Path) -> Path:
    """A copy of it, whose teachers choose."""
    return copy_run(parted, tmp_path / "run")


@pytest.fixture
def students(finished: Path, tmp_path: Path) -> tuple[Path, ...]:
    """A student of these data, one that has forgotten half of it, and one that says the opposite."""
    good = finished / "public" / "student" / "model"
    folders = [good]
    for name, change in (("half", [1, 1, 0, 0]), ("opposite", [-1, -1, -1, -1])):
        folders.append(shutil.copytree(good, tmp_path / name))
        path = folders[-1] / "model.safetensors"
        weights = load_file(path)
        of_labels = {
            key
            for key, value in weights.items()
            if value.shape[:1] == (4,) and value.dtype == np.float32
        }
        save_file(
            {
                key: (value.T * np.array(change, dtype=value.dtype)).T.copy()
                if key in of_labels
                else value
                for key, value in weights.items()
            },
            path,
        )
    return tuple(folders)


def asked_of(candidates: Candidates, folder: Path, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Return the ballots on other data than those of the run."""
    path = folder / "others.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    candidates.__dict__["_data"] = Arrays(path)
    return candidates.ballots()


def test_most_teachers_count_for_the_better_one(
    copied: Path, students: tuple[Path, ...], tmp_path: Path
) -> None:
    ballots = Candidates(open_run(copied), students).ballots()
    assert ballots.shape == (10, 3)
    assert ballots[:, 0].sum() > 7 > ballots[:, 1].sum() >= ballots[:, 2].sum()
    words = [
        *map(str, students),
        "--run",
        str(copied),
        "--target_epsilon=4",
        "--delta=1e-3",
        "--noise_seed=1",
    ]
    before = Statement.read(copied / "public" / "privacy.json")
    assert cli.main(["choose", *words, "--output", str(tmp_path / "choice.json")]) == 0
    assert json.loads((tmp_path / "choice.json").read_text())["items"] == [str(students[0])]
    statement = Statement.read(tmp_path / "choice.privacy.json")
    ledger = read_ledger(copied / "ledger.sqlite")
    statement.verify(ledger=copied / "ledger.sqlite", released=tmp_path / "choice.json")
    mechanism = GumbelPeeling(k=1, scale=statement["mechanism"]["scale"], sensitivity=1.0)
    # the ledger of this run
    assert len(ledger.entries) == 2 and statement["ledger"]["counts"] == "run"
    for relation in NeighboringRelation:
        assert ledger.entries[1].events[relation] == mechanism.event(relation)
        guarantee = statement["guarantees"][relation.value]
        assert guarantee["epsilon"] > before["guarantees"][relation.value]["epsilon"]
    own = statement["this_release"]["replace_record"]["epsilon"]
    assert own == pytest.approx(4, abs=1e-3) and own <= 4
    assert statement["this_release"]["add_remove_teacher"]["epsilon"] < own
    assert "each student that answers these records best" in statement.text


def test_a_choice_is_made_for_the_units_that_labels_were_released_for(
    copied: Path, students: tuple[Path, ...], tmp_path: Path
) -> None:
    """The target is met for them, in a ledger that has a release for units that reach two
    teachers."""
    scales = []
    for number, teachers in enumerate((1, 2)):
        (copied / "ledger.sqlite").unlink()
        ledger = Ledger(copied / "ledger.sqlite", max_teachers_per_unit=teachers)
        reserve(ledger, gaussian(60), 1)
        words = [
            *map(str, students),
            "--run",
            str(copied),
            "--target_epsilon=4",
            "--delta=1e-3",
            "--noise_seed=1",
        ]
        assert cli.main(["choose", *words, "--output", str(tmp_path / f"choice{number}.json")]) == 0
        statement = Statement.read(tmp_path / f"choice{number}.privacy.json")
        assert statement["max_teachers_per_unit"] == teachers
        assert statement["this_release"]["replace_record"]["epsilon"] == pytest.approx(4, abs=1e-3)
        scales.append(statement["mechanism"]["scale"])
    assert scales[1] == pytest.approx(2 * scales[0], rel=1e-4)


@pytest.mark.parametrize("figure", ["accuracy", pytest.param("micro_f1", marks=pytest.mark.slow)])
def test_one_record_changes_one_teacher(
    copied: Path, students: tuple[Path, ...], tmp_path: Path, figure: str
) -> None:
    candidates = Candidates(open_run(copied), students, figure)  # type: ignore[arg-type]
    arrays = make_arrays()
    key = read_key(Run(copied))
    assert key is not None
    before = asked_of(candidates, tmp_path, arrays)
    for row in (3, 211):
        teacher = int(assign_teachers([str(arrays["ids"][row])], num_teachers=10, key=key)[0])
        others = np.arange(10) != teacher
        altered = {name: array.copy() for name, array in arrays.items()}
        altered["Y"][row] = 1 - altered["Y"][row]
        altered["X"][row] *= -100
        kept = np.arange(len(arrays["X"])) != row
        removed = {
            name: array if name == "label_names" else array[kept] for name, array in arrays.items()
        }
        for neighbor in (altered, removed):
            after = asked_of(candidates, tmp_path, neighbor)
            assert np.array_equal(before[others], after[others])
            assert np.abs(before.sum(0, dtype=int) - after.sum(0, dtype=int)).max() <= 1
    # who changes all labels of a teacher is seen
    mine = assign_teachers(map(str, arrays["ids"]), num_teachers=10, key=key) == 3
    arrays["Y"][mine] = 1 - arrays["Y"][mine]
    assert not np.array_equal(before[3], asked_of(candidates, tmp_path, arrays)[3])


def test_a_teacher_that_is_absent_or_has_no_records_does_not_count(
    copied: Path, students: tuple[Path, ...], tmp_path: Path
) -> None:
    candidates = Candidates(open_run(copied), students)
    key = read_key(Run(copied))
    assert key is not None
    arrays = make_arrays()
    kept = assign_teachers(map(str, arrays["ids"]), num_teachers=10, key=key) != 5
    kept |= arrays["split"] > 0
    without = {
        name: array if name == "label_names" else array[kept] for name, array in arrays.items()
    }
    candidates.__dict__["_absent"] = [7]
    ballots = asked_of(candidates, tmp_path, without)
    assert [teacher for teacher in range(10) if not ballots[teacher].any()] == [5, 7]


def test_what_does_not_fit_is_refused(
    copied: Path, students: tuple[Path, ...], tmp_path: Path, capsys: Captured
) -> None:
    other = shutil.copytree(students[0], tmp_path / "other")
    settings = json.loads((other / "model.json").read_text())
    (other / "model.json").write_text(json.dumps(settings | {"label_names": ["a", "b", "c", "e"]}))
    cases: list[tuple[list[object], str]] = [
        ([students[0]], "at least two students"),
        ([students[0], students[0]], "occur once"),
        ([students[0], other], "students of the run's labels"),
        ([*students, "--target_epsilon=0"], "target_epsilon"),
    ]
    for words, expected in cases:
        capsys.readouterr()
        place = [
            "--run",
            str(copied),
            "--output",
            str(tmp_path / "choice.csv"),
            "--target_epsilon=1",
            "--delta=1e-3",
        ]
        assert cli.main(["choose", *place, *map(str, words)]) == 2
        error = capsys.readouterr().err
        assert expected in error and len(error.splitlines()) == 1
    assert len(read_ledger(copied / "ledger.sqlite").entries) == 1


@pytest.mark.slow
def test_a_choice_is_made_once(copied: Path, students: tuple[Path, ...], tmp_path: Path) -> None:
    """The same call returns the statement that there is, and another one is refused."""
    candidates, output = Candidates(open_run(copied), students), tmp_path / "choice.csv"
    made = choose_student(candidates, target_epsilon=1.0, delta=1e-3, output=output)
    text, paid = output.read_text(), len(read_ledger(candidates.ledger_path).entries)
    again = choose_student(candidates, target_epsilon=1.0, delta=1e-3, output=output)
    assert again["release"] == made["release"] and output.read_text() == text
    with pytest.raises(ValueError, match="every release is paid for"):
        choose_student(candidates, target_epsilon=2.0, delta=1e-3, output=output)
    assert len(read_ledger(candidates.ledger_path).entries) == paid


def test_figures_by_hand() -> None:
    answers = np.array([[1, 0], [1, 1]], dtype=np.uint8)
    labels = np.array([[1, 1], [0, 1]], dtype=np.uint8)
    assert figure_of(answers, labels, "accuracy") == 0.5
    assert figure_of(answers, labels, "micro_f1") == 4 / 6
    assert figure_of(labels * 0, labels * 0, "micro_f1") == 1
