from pathlib import Path

import numpy as np
import pytest
import torch

from pate import ReleasedLabels
from pate.data import Arrays, PublicPCA, Role
from pate.student import StudentData
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
