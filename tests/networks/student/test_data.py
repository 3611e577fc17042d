from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from models import MLP, Linear
from pate import ReleasedLabels
from pate._labeling.linear import constant_logits
from pate._labeling.runs.released import sealing_key
from pate._labeling.runs.run import Run, labels_file
from pate.data import Arrays, PublicPCA, Role
from pate.student import Student, StudentData, choose_thresholds
from tests.conftest import make_arrays


def collect(loader: torch.utils.data.DataLoader[object]) -> list[np.ndarray]:
    return [np.concatenate([part.numpy() for part in parts]) for parts in zip(*loader, strict=True)]


def test_released_labels_and_nothing_else(finished: Path) -> None:
    data = StudentData(finished, batch_size=7, val_fraction=0.25)
    released = ReleasedLabels.load(finished)
    answered = released.answered
    train, val = collect(data.train_dataloader()), collect(data.val_dataloader())
    assert len(val[0]) == int(0.25 * answered.sum())
    assert len(train[0]) + len(val[0]) == answered.sum()
    public = data.source.records(Role.PUBLIC)
    position = {row.tobytes(): i for i, row in enumerate(np.asarray(public.features))}
    of_id = dict(zip(released.ids, released.labels, strict=True))
    for features, labels, mask in zip(
        *(np.concatenate(pair) for pair in zip(train, val, strict=True)), strict=True
    ):
        assert (of_id[public.ids[position[features.tobytes()]]] == labels).all()
        assert mask.all()


def test_a_raw_student_sees_what_no_map_has_changed(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Arrays(finished.parent / "data.npz", features=PublicPCA(2))
    monkeypatch.setattr("pate._networks.student.training.load_data", lambda _: source)
    mapped, raw = StudentData(finished), StudentData(finished, raw=True)
    assert (mapped.input_shape, raw.input_shape) == ((2,), (6,))
    features, labels, _ = collect(raw.test_dataloader())
    assert (features == make_arrays()["X"][500:]).all()
    assert (labels == collect(mapped.test_dataloader())[1]).all()
    assert source.feature_map is not None and source.input_shape == (2,)


@pytest.fixture
def soft_run(copied: Path) -> Path:
    """A copy of the finished run in which noisy counts were released, and half of the queries were
    not answered."""
    released = ReleasedLabels.load(copied)
    generator = np.random.default_rng(0)
    mask = np.repeat(generator.random(len(released.ids)) < 0.5, 4).reshape(-1, 4)
    values = np.where(mask, 5 + 20 * generator.standard_normal(mask.shape), 0)
    labels = ((values > 5) & mask).astype(np.uint8)
    with labels_file(Run(copied)).open("wb") as file:
        changed = replace(released, mask=mask, labels=labels, noisy_counts=values, noise_std=20.0)
        changed.save(file, sealing_key(Run(copied)))
    return copied


def rows(loader: Any) -> list[np.ndarray]:
    return [np.concatenate([part.numpy() for part in parts]) for parts in zip(*loader, strict=True)]


def test_shares_are_learned_unrounded(soft_run: Path) -> None:
    released = ReleasedLabels.load(soft_run)
    _, targets, mask = rows(StudentData(soft_run, val_fraction=0.0).train_dataloader())
    answered = released.answered
    assert released.noisy_counts is not None
    assert len(targets) == answered.sum() and mask.all()
    shares = released.noisy_counts[answered] / 10
    np.testing.assert_allclose(np.sort(targets.ravel()), np.sort(shares.ravel()), rtol=1e-6)
    assert targets.min() < 0 and targets.max() > 1
    _, hard, _ = rows(StudentData(soft_run, val_fraction=0.0, soft=False).train_dataloader())
    assert set(np.unique(hard)) == {0, 1}


NAMES = ("a", "b")


def batch(num: int = 32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    features = torch.randn(num, 5, generator=torch.Generator().manual_seed(0))
    labels = (features[:, :2] > 0).float()
    return features, labels, torch.ones(num, 2)


def test_entries_outside_the_mask_have_no_part_in_the_loss() -> None:
    student = Student(Linear, input_shape=(5,), label_names=NAMES)
    features, labels, mask = batch()
    mask[10:, 0] = 0
    student.log = lambda *args, **kwargs: None  # type: ignore[method-assign]
    loss = student.training_step((features, labels, mask), 0)
    spoilt = labels.clone()
    spoilt[10:, 0] = 1 - spoilt[10:, 0]
    assert student.training_step((features, spoilt, mask), 0) == loss
    assert student.training_step((features, spoilt, torch.ones(32, 2)), 0) != loss
    assert student.training_step((features, labels, torch.zeros(32, 2)), 0) == 0


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
