"""Networks trained by descent are kept where held-out samples say so, and answer a constant where
they gain nothing."""

import json
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import pate
from models import MLP
from pate import cli
from pate._labeling.linear import constant_logits
from pate._networks.student.stage import StudentCLI
from pate.student import Student, choose_thresholds
from tests.conftest import make_arrays
from tests.networks.conftest import DESCENT

Loader = DataLoader[tuple[Tensor, ...]]


def loaders(features: np.ndarray, targets: np.ndarray, held: int) -> tuple[Loader, Loader]:
    parts = [
        torch.tensor(part, dtype=torch.float32)
        for part in (features, targets, np.ones(targets.shape))
    ]
    train, val = ([part[rows] for part in parts] for rows in (slice(held, None), slice(held)))
    return DataLoader(TensorDataset(*train), batch_size=64), DataLoader(
        TensorDataset(*val), batch_size=64
    )


def trained(features: np.ndarray, targets: np.ndarray, held: int = 100, epochs: int = 8) -> Student:
    names = tuple("abcdefgh"[: targets.shape[1]])
    found = Student(
        MLP,
        lambda parameters: torch.optim.Adam(parameters, lr=0.03),
        input_shape=features.shape[1:],
        label_names=names,
        constants=tuple(constant_logits(targets, np.ones(targets.shape)).tolist()),
    )
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(found, *loaders(features, targets, held))
    return found


@pytest.mark.slow
def test_labels_that_do_not_follow_the_features_answer_their_constant() -> None:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((600, 5)).astype(np.float32)
    found = trained(features, (generator.random((600, 3)) < [0.4, 0.6, 0.3]).astype(float))
    assert not found.departs.any()
    x = torch.from_numpy(features)
    with torch.no_grad():
        assert ((found(x) > 0) == (found.constant_logits > 0)).all()
        assert found.network(x).std(dim=0).min() > 0.1
    assert ((found.constant_logits > 0) == torch.tensor([False, True, False])).all()


@pytest.mark.slow
def test_labels_that_follow_the_features_are_answered_by_the_network() -> None:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((600, 5)).astype(np.float32)
    found = trained(features, (features[:, :3] > 0).astype(float))
    assert found.departs.all()
    x = torch.from_numpy(features)
    with torch.no_grad():
        assert torch.equal(found(x), found.network(x))
    # what the last epoch's held-out answers say replaces what was found before
    found._evaluated.append((torch.ones(50, 3), torch.full((50, 3), 0.25), torch.ones(50, 3)))
    found.constant_logits.fill_(-1.0)
    found.trainer.state.fn = "fit"  # type: ignore[assignment]
    found.on_validation_epoch_end()
    assert not found.departs.any()


@pytest.mark.slow
def test_noise_alone_departs_rarely() -> None:
    departed = 0
    for seed in range(5):
        generator = np.random.default_rng(seed)
        features = generator.standard_normal((200, 5)).astype(np.float32)
        targets = (generator.random((200, 4)) < 0.45) + 2 * generator.standard_normal((200, 4))
        departed += bool(trained(features, targets, held=40, epochs=3).departs.any())
    assert departed <= 1


def test_cuts_of_a_network_are_those_of_held_out_samples() -> None:
    generator = np.random.default_rng(0)
    features = generator.standard_normal((300, 5)).astype(np.float32)
    found = trained(
        features, (generator.random((300, 3)) < [0.1, 0.2, 0.6]).astype(float), epochs=2
    )
    with torch.no_grad():
        held_out, learned_from = (
            found.eval()(torch.from_numpy(part)).sigmoid() for part in np.split(features, [100])
        )
    np.testing.assert_allclose(found.state_dict()["cuts"], choose_thresholds(held_out), rtol=1e-6)
    assert np.abs(choose_thresholds(learned_from) - choose_thresholds(held_out)).max() > 1e-4


MLP_WORDS = (
    "--model.network=models.MLP",
    "--data.val_fraction=0.3",
    "--data.batch_size=32",
    "--trainer.max_epochs=60",
)


def fit_words(root: Path, *more: str) -> list[str]:
    settings = root / "descent.yaml"
    settings.write_text(DESCENT)
    return ["student", "fit", "--config", str(settings), "--run", str(root), *more]


@pytest.mark.slow
def test_the_checkpoint_of_the_lowest_loss_is_kept(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = fit_words(
        copied,
        *MLP_WORDS,
        "--model.optimizer.init_args.lr=0.3",
        "--optimize=macro_f1",
        "--overwrite",
    )
    assert cli.main(words) == 0
    folder = copied / "public" / "student"
    best, last = (
        torch.load(folder / f"{name}.ckpt", weights_only=True) for name in ("best", "last")
    )
    assert last["epoch"] == best["epoch"] + 10 < 59  # a patience of ten epochs
    assert cli.main(["student", "test", "--run", str(copied)]) == 0
    parts = StudentCLI(
        ["test", "--config", str(copied / "public" / "student_fit.yaml"), f"--run={copied}"]
    )
    parts.model.load_state_dict(best["state_dict"])
    batches = [batch[0] for batch in parts.datamodule.test_dataloader()]
    with torch.no_grad():
        expected = (
            torch.cat([parts.model.eval()(features) for features in batches]).sigmoid().numpy()
        )
    away = pate.load_student(folder / "model")
    probabilities, labels = away.answer(make_arrays()["X"][500:])
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    cuts = np.array(away.settings["cuts"], dtype=np.float32)
    np.testing.assert_array_equal(labels, probabilities > cuts)
    np.testing.assert_array_equal(
        json.loads((folder / "model" / "model.json").read_text())["cuts"],
        best["state_dict"]["cuts"][1],
    )
    assert (best["state_dict"]["cuts"] != last["state_dict"]["cuts"]).any()
