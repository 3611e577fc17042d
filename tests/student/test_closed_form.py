"""A linear network becomes the closed-form student, through the same trainer."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from scipy.special import logit
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from models import MLP, Linear, SmallCNN
from pate import ReleasedLabels, cli
from pate._linear import constant_logits, linear_student_of, student_of
from pate._runs import Run, labels_file
from pate._runs.released import sealing_key
from pate._votes import rows_of
from pate.aggregators import Release
from pate.data import Role
from pate.student import LinearStudent, Student, StudentData, fit_linear
from pate.student._closed_form import linear_layer
from tests.conftest import make_arrays


def trainer(epochs: int = 3) -> pl.Trainer:
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def student_of_run(root: Path) -> LinearStudent:
    """The student that the frontier makes of what a run released."""
    found = ReleasedLabels.load(root)
    public = StudentData(root).source.records(Role.PUBLIC)
    features = np.asarray(public.features[rows_of(found.ids, public.ids)], dtype=np.float64)
    release = Release(
        found.labels,
        found.mask,
        noisy_counts=found.noisy_counts,
        noise_std=found.noise_std,
        linear=found.linear,
    )
    return student_of(release, features, found.num_teachers)


def predictions(root: Path) -> np.ndarray:
    with np.load(root / "public" / "student" / "predictions.npz") as archive:
        found: np.ndarray = archive["probabilities"]
    return found


def with_noisy_counts(root: Path, noise_std: float) -> None:
    """Put noisy counts of the truth into a run, in place of what was released."""
    released = ReleasedLabels.load(root)
    public = StudentData(root).source.records(Role.PUBLIC)
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


def test_a_run_leaves_the_student_of_the_frontier(finished: Path) -> None:
    expected = student_of_run(finished).predict(make_arrays()["X"][500:])
    np.testing.assert_allclose(predictions(finished), expected, atol=1e-4)


@pytest.mark.parametrize("noise_std", [4.0, 20.0])
def test_noisy_counts_too(noise_std: float, copied: Path) -> None:
    with_noisy_counts(copied, noise_std)
    data = StudentData(copied)
    assert data.noise_std == pytest.approx(noise_std / 10)
    found = Student(
        Linear,
        input_shape=data.input_shape,
        label_names=data.label_names,
        noise_std=data.noise_std,
        constants=data.constants,
    )
    trainer().fit(found, data)
    features = make_arrays()["X"][500:]
    expected = student_of_run(copied)
    with torch.no_grad():
        given = found(torch.from_numpy(features)).sigmoid().numpy()
    np.testing.assert_allclose(given, expected.predict(features), atol=1e-4)
    np.testing.assert_array_equal(found.departs.numpy(), expected.departs)
    assert data.num_held_out == 0  # all that was released is learned from


def with_linear_answers(root: Path) -> LinearStudent:
    """Put answers of a linear model into a run, some of them outside [0, 1]; return the model."""
    released = ReleasedLabels.load(root)
    public = StudentData(root).source.records(Role.PUBLIC)
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
    data = StudentData(copied)
    assert data.noise_std is None
    assert ReleasedLabels.load(copied).linear
    shapes: dict[str, Any] = {"input_shape": data.input_shape, "label_names": data.label_names}
    student = Student(Linear, noise_std=data.noise_std, constants=data.constants, **shapes)
    trainer().fit(student, data)
    features = make_arrays()["X"][500:]
    with torch.no_grad():
        logits = student(torch.from_numpy(features)).numpy()
    np.testing.assert_allclose(logits, expected.logits(features), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(student.departs.numpy(), expected.departs)
    frontier = student_of_run(copied)
    np.testing.assert_allclose(frontier.weights, expected.weights, rtol=1e-9)
    np.testing.assert_array_equal(frontier.departs, expected.departs)
    # other networks learn from what probabilities can be
    targets = np.concatenate([targets.numpy() for _, targets, _ in data.train_dataloader()])
    assert targets.min() == 0 and targets.max() == 1
    other = Student(
        MLP, fit="descent", noise_std=data.noise_std, constants=data.constants, **shapes
    )
    data.hold_out(0.2)
    trainer(1).fit(other, data)
    assert torch.isfinite(other(torch.from_numpy(features))).all()


def test_the_true_labels_take_the_same_way(finished: Path) -> None:
    data = StudentData(finished, labels="truth")
    assert data.noise_std is None
    found = Student(
        Linear, input_shape=data.input_shape, label_names=data.label_names, constants=data.constants
    )
    trainer().fit(found, data)
    public = data.source.records(Role.PUBLIC)
    rows = rows_of(ReleasedLabels.load(finished).ids, public.ids)
    truth = public.labels[rows]
    expected = fit_linear(public.features[rows], truth, np.ones(truth.shape))
    features = make_arrays()["X"][500:]
    with torch.no_grad():
        given = found(torch.from_numpy(features)).sigmoid().numpy()
    np.testing.assert_allclose(given, expected.predict(features), atol=1e-4)


def test_many_features_and_labels_that_nobody_has() -> None:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((300, 2048)).astype(np.float32)
    labels = np.stack((features[:, 0] > 0, features[:, 1] > 9, features[:, 2] > 0), axis=1).astype(
        np.float32
    )
    features[:, 0] *= 30
    mask = np.ones(labels.shape, dtype=np.float32)
    mask[:, 2] = 0
    loader = DataLoader(
        TensorDataset(*map(torch.from_numpy, (features, labels, mask))), batch_size=64
    )
    found = Student(Linear, input_shape=(2048,), label_names=("a", "b", "c"))
    trainer(50).fit(found, loader, loader)
    assert found.trainer.current_epoch == 1
    expected = fit_linear(features, labels, mask)
    with torch.no_grad():
        given = found(torch.from_numpy(features)).sigmoid().numpy()
    np.testing.assert_allclose(given, expected.predict(features), atol=1e-4)
    assert found.departs.tolist() == [True, False, False]
    assert (given[:, 2] == 0).all()


class Custom(nn.Sequential):
    """Looks like a linear network, and is none."""

    def __init__(self, input_shape: Sequence[int], num_labels: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(5, num_labels))

    def forward(self, features: Tensor) -> Tensor:
        for layer in self:
            features = layer(features)
        return features.relu()


@pytest.mark.parametrize(
    ("network", "linear"),
    [
        (Linear((1, 5), 2), True),
        (nn.Linear(5, 2), True),
        (nn.Linear(5, 2, bias=False), False),
        (nn.Sequential(nn.Flatten(2), nn.Linear(5, 2)), False),
        (nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 2)), False),
        (MLP((5,), 2), False),
        (SmallCNN((3, 8, 8), 2), False),
        (Custom((5,), 2), False),
    ],
)
def test_which_networks_are_linear(network: nn.Module, linear: bool) -> None:
    assert (linear_layer(network) is not None) == linear


@pytest.mark.parametrize(
    ("network", "settings"),
    [(MLP, {}), (Custom, {}), (Linear, {"pseudo_confidence": 0.9}), (Linear, {"fit": "descent"})],
)
def test_what_is_trained_by_descent(network: Any, settings: dict[str, Any]) -> None:
    assert not Student(network, input_shape=(5,), label_names=("a", "b"), **settings).closed_form


@pytest.mark.parametrize(("network", "more"), [(MLP, {}), (Linear, {"pseudo_confidence": 0.9})])
def test_no_closed_form_is_told(network: Any, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^Expected fit=descent, or one linear layer[^\n]*$"):
        Student(network, input_shape=(5,), label_names=("a", "b"), fit="closed_form", **more)


def test_nothing_is_held_out_to_be_validated(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["student", "validate", "--run", str(copied)]) == 2
    assert "the closed form learns from all released labels" in capsys.readouterr().err


def test_the_constant_answer_of_the_release_is_judged(finished: Path) -> None:
    figures = json.loads((finished / "public" / "student" / "metrics.json").read_text())
    released = ReleasedLabels.load(finished)
    given = released.labels[released.answered].mean(axis=0) > 0.5
    assert figures["released_constant"]["accuracy"] == pytest.approx(
        (make_arrays()["Y"][500:] == given).mean(), abs=1e-6
    )


def test_constants_are_means_that_are_shrunk() -> None:
    generator = np.random.default_rng(0)
    labels, mask = generator.random((400, 6)) < 0.3, generator.random((400, 6)) < 0.5
    mask[:, 5] = False
    found = constant_logits(labels, mask)
    assert found[5] == -np.inf
    raw = np.array([labels[mask[:, j], j].mean() for j in range(5)])
    expected = logit(raw)
    assert np.ptp(found[:5]) < np.ptp(expected)
    # noise that is known to be larger than what all means differ by leaves one mean
    assert np.ptp(constant_logits(labels, mask, noise_std=9.0)[:5]) < 1e-12


def test_a_student_without_dependence_on_features_has_the_same_constants() -> None:
    generator = np.random.default_rng(0)
    labels = (generator.random((300, 6)) < [0.1, 0.2, 0.3, 0.4, 0.6, 0.9]).astype(float)
    features, mask = generator.standard_normal((300, 4)), np.ones(labels.shape)
    found = fit_linear(features, labels, mask)
    assert not found.departs.any()
    np.testing.assert_allclose(found.constants, constant_logits(labels, mask), atol=0.01)
