from pathlib import Path

import numpy as np
import pytest
import torch

from pate import (
    ClosedFormPlan,
    LabelSettings,
    ReleasedLabels,
    RunPlan,
    StudentPlan,
    load_student,
)
from pate.data import Arrays, ChainedFeatures, PatchFeatures, PublicPCA, PublicScaling, Role
from pate.models import ConvNet
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


@pytest.mark.slow
def test_a_network_learns_pixels_from_votes_by_patches(tmp_path: Path) -> None:
    arrays = make_arrays() | {"X": np.random.default_rng(0).random((600, 1, 8, 8))}
    arrays["X"][:, 0, 2:5, 2:5] += 2 * arrays["Y"][:, :1, None]
    np.savez(tmp_path / "data.npz", **arrays)  # type: ignore[arg-type]
    features = ChainedFeatures([PatchFeatures(8, pool=2), PublicScaling()])
    source = Arrays(tmp_path / "data.npz", features=features)
    trainer = {"max_epochs": 20, "enable_progress_bar": False, "enable_model_summary": False}
    data = {"raw": True, "batch_size": 16}
    plan = RunPlan(
        tmp_path / "run",
        source,
        teachers=ClosedFormPlan(),
        labels=LabelSettings(delta=1e-6, target_epsilon=1e4, noise_seed=0),
        student=StudentPlan(network=ConvNet, data=data, trainer=trainer),
        ledger=tmp_path / "ledger.sqlite",
    )
    plan.execute()
    tested = plan.test_student()
    figures, linear = (tested[name]["per_label"] for name in ("student", "linear_student"))
    assert figures["a"]["f1"] > 0.9 and linear["a"]["f1"] > 0.9
    beside = load_student(tmp_path / "run" / "public" / "student" / "linear_model")
    assert beside.settings["features"] is not None
    away = load_student(tmp_path / "run", trust=True)
    assert away.settings["features"] is None and away.input.shape == (1, 8, 8)
    found, right = away.predict(arrays["X"][500:].astype(np.float32))[:, 0], arrays["Y"][500:, 0]
    assert found[right == 1].mean() == pytest.approx(figures["a"]["recall"], abs=1e-9)
    found = beside.predict(arrays["X"][500:].astype(np.float32))[:, 0]
    assert found[right == 1].mean() == pytest.approx(linear["a"]["recall"], abs=1e-9)


def test_the_test_set_is_whole(finished: Path) -> None:
    features, labels, _ = collect(StudentData(finished).test_dataloader())
    assert (labels == make_arrays()["Y"][500:]).all()
    assert (features == make_arrays()["X"][500:]).all()


def test_the_order_depends_on_seed_and_epoch(finished: Path) -> None:
    first = collect(StudentData(finished, seed=1).train_dataloader())[0]
    assert (first == collect(StudentData(finished, seed=1).train_dataloader())[0]).all()
    loader = StudentData(finished, seed=1).train_dataloader()
    loader.sampler.set_epoch(1)  # type: ignore[attr-defined]
    second = collect(loader)[0]
    assert (first != second).any()
    assert (np.sort(first, axis=0) == np.sort(second, axis=0)).all()
