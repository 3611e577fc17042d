"""The student of a linear network is solved in closed form."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pate import ReleasedLabels, RunPlan, cli, load_student
from pate._labeling.commands.stages import read_student
from pate._labeling.linear import linear_student_of, student_of
from pate._labeling.runs.carried import arrays_of, student_from
from pate._labeling.runs.released import sealing_key
from pate._labeling.runs.run import STUDENT, Run, labels_file, load_data
from pate._labeling.stages.student import WEIGHTS, Solved
from pate._labeling.votes.kinds import rows_of
from pate.data import Role
from pate.student import LinearStudent, fit_linear
from tests.conftest import make_arrays


def fitted(root: Path, *more: str) -> LinearStudent:
    """Fit the student of a run by its command, and return it as its file has it."""
    words = ["--model.network=pate.models.Linear", f"--run={root}", "--overwrite", *more]
    assert cli.main(["student", "fit", *words]) == 0
    return Solved.read(root / "public" / "student" / WEIGHTS, "accuracy").predictor.student


def student_of_run(root: Path) -> LinearStudent:
    """The closed-form student of what a run released."""
    found, public = ReleasedLabels.load(root), load_data(Run(root)).records(Role.PUBLIC)
    features = public.features[rows_of(found.ids, public.ids)]
    return student_of(found, features, found.num_teachers)


def predictions(root: Path) -> np.ndarray:
    return load_student(root / "public" / "student" / "model").predict_proba(
        make_arrays()["X"][500:]
    )


def with_noisy_counts(root: Path, noise_std: float) -> None:
    """Put noisy counts of the truth into a run, in place of what was released."""
    released = ReleasedLabels.load(root)
    public = load_data(Run(root)).records(Role.PUBLIC)
    truth = public.labels[rows_of(released.ids, public.ids)]
    counts = 10 * truth + noise_std * np.random.default_rng(0).standard_normal(truth.shape)
    made = replace(
        released,
        labels=(counts > 5).astype(np.uint8),
        mask=np.ones(truth.shape, dtype=np.bool_),
        noisy_counts=counts,
        noise_std=noise_std,
    )
    with labels_file(Run(root)).open("wb") as file:
        made.save(file, sealing_key(Run(root)))


def test_a_run_leaves_the_closed_form_student(finished: Path) -> None:
    expected = student_of_run(finished).predict(make_arrays()["X"][500:])
    np.testing.assert_allclose(predictions(finished), expected, atol=1e-4)


@pytest.mark.parametrize("noise_std", [4.0, 20.0])
def test_noisy_counts_too(noise_std: float, copied: Path) -> None:
    with_noisy_counts(copied, noise_std)
    found, expected, features = fitted(copied), student_of_run(copied), make_arrays()["X"][500:]
    np.testing.assert_allclose(found.predict(features), expected.predict(features), atol=1e-6)
    np.testing.assert_array_equal(found.departs, expected.departs)
    # the labels say something else
    others = fitted(copied, "--data.soft=false").predict(features)
    assert np.abs(others - expected.predict(features)).max() > 1e-3


def with_linear_answers(root: Path) -> LinearStudent:
    """Put answers of a linear model into a run, some of them outside [0, 1]; return the model."""
    released = ReleasedLabels.load(root)
    public = load_data(Run(root)).records(Role.PUBLIC)
    features = np.asarray(public.features[rows_of(released.ids, public.ids)], dtype=np.float64)
    slopes = np.random.default_rng(0).standard_normal((features.shape[1], 4))
    answers = features @ (slopes * [0.3, 0.3, 1e-3, 0.3]) + [0.5, 0.1, 0.4, 0.9]
    decisions = (answers > 0.5).astype(np.uint8)
    decisions[:, 3] = 1
    made = replace(
        released,
        labels=decisions,
        mask=np.ones(decisions.shape, dtype=np.bool_),
        noisy_counts=10 * answers,
        noise_std=None,
        linear=True,
    )
    with labels_file(Run(root)).open("wb") as file:
        made.save(file, sealing_key(Run(root)))
    return linear_student_of(features, answers, decisions)


def test_linear_answers_hold_the_student_itself(copied: Path) -> None:
    expected = with_linear_answers(copied)
    assert expected.departs.tolist() == [True, True, False, False]
    assert ReleasedLabels.load(copied).linear
    student, features = fitted(copied), make_arrays()["X"][500:]
    np.testing.assert_allclose(student.logits(features), expected.logits(features), rtol=1e-5)
    np.testing.assert_array_equal(student.departs, expected.departs)
    found = student_of_run(copied)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-9)
    np.testing.assert_array_equal(found.departs, expected.departs)


def test_a_label_of_which_nothing_was_released_is_denied(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((300, 6))
    labels, mask = features[:, :3] > 0, np.ones((300, 3), dtype=np.bool_)
    mask[:, 2] = False
    expected = fit_linear(features, labels, mask)
    found = student_from(arrays_of(expected))
    np.testing.assert_allclose(found.predict(features), expected.predict(features), atol=1e-6)
    assert (found.predict(features)[:, 2] == 0).all() and found.departs.tolist() == [
        True,
        True,
        False,
    ]


MLP = "pate.models.MLP"
NESTED = "--model.network.init_args.hidden=[128]"


def settings_of(folder: Path, *options: str, network: str) -> object:
    (file := folder / "student.yaml").write_text(f"model:\n  network: {network}\n")
    words = ["--config", str(file), f"--run={folder / 'run'}", *options]
    return read_student("fit", words)[1]["model"]["network"]


@pytest.mark.parametrize(
    "options",
    [
        ("--model.network.class_path", MLP, "--model.network.init_args.hidden", "[128]"),
        (f"--model.network={MLP}", "--model.network.hidden=[128]"),
    ],
)
def test_an_option_of_a_part_overrides_the_linear_network_of_a_file(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    made = settings_of(tmp_path, *options, network="pate.models.Linear")
    assert made == settings_of(tmp_path, NESTED, network=MLP)
    assert "128" in str(made)


@pytest.mark.parametrize("option", [NESTED, "--model.network.hidden=[128]"])
def test_a_setting_that_linear_lacks_is_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        settings_of(tmp_path, option, network="pate.models.Linear")
    assert "Expected a setting of Linear" in capsys.readouterr().err


def test_linear_by_its_class_path_stays_in_closed_form(tmp_path: Path) -> None:
    option = "--model.network.class_path=pate.models.Linear"
    made = settings_of(tmp_path, option, network="pate.models.Linear")
    assert made == settings_of(tmp_path, network="pate.models.Linear")


def test_a_student_is_tested_as_what_it_is(finished: Path) -> None:
    plan = RunPlan(finished, student={"model": {"network": MLP}})
    with pytest.raises(ValueError, match=r"^Expected the network of the run's student, got model="):
        plan.test_student()


def test_the_old_student_stays_until_the_new_one_works(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contents() -> dict[str, bytes]:
        paths = (path for path in (copied / "public").rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in paths}

    def fails(*_: object) -> Solved:
        raise ValueError("Expected another student")

    words = ["student", "fit", f"--run={copied}", "--overwrite"]
    before = contents()
    monkeypatch.setattr(Solved, "by", fails)
    assert cli.main([*words, "--optimize=macro_f1"]) == 2 and contents() == before
    assert Run(copied).is_finished(STUDENT)
    monkeypatch.undo()
    assert cli.main([*words, "--optimize=macro_f1"]) == 0 and contents() != before
    assert not (copied / "private" / "student_before").exists()
