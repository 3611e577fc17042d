"""Noisy counts, abstentions and the rest of the public pool in the student's training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate import ReleasedLabels
from pate._labeling.runs.released import sealing_key
from pate._labeling.runs.run import Run, labels_file
from pate.student import StudentData


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


def test_unlabelled_samples_are_shown_without_labels(soft_run: Path) -> None:
    data = StudentData(soft_run, val_fraction=0.0, unlabelled=2, batch_size=8)
    released = ReleasedLabels.load(soft_run)
    num = int(released.answered.sum())
    loader = data.train_dataloader()
    first, targets, mask = rows(loader)
    assert len(first) == 3 * num and mask.any(axis=1).sum() == num
    assert not targets[~mask.any(axis=1)].any()
    loader.sampler.set_epoch(1)  # type: ignore[attr-defined]
    second, _, _ = rows(loader)
    blank = ~mask.any(axis=1)
    assert not np.array_equal(np.sort(first[blank].ravel()), np.sort(second[blank].ravel()))
    with_none = rows(StudentData(soft_run, val_fraction=0.0).train_dataloader())
    assert with_none[2].all()
