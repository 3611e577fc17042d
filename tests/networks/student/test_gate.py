"""Networks trained by descent are kept where held-out samples say so, and answer a constant where
they gain nothing."""

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from models import MLP
from pate._labeling.linear import constant_logits
from pate.student import Student, choose_thresholds

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
