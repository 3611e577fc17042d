from pathlib import Path

import numpy as np
import pytest
import torch

from pate import ReleasedLabels
from pate._votes import rows_of
from pate.data import Role
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


def test_truth_takes_the_place_of_all_queries(finished: Path) -> None:
    data = StudentData(finished, labels="truth", val_fraction=0.0)
    features, labels, mask = collect(data.train_dataloader())
    assert len(features) == 80
    thresholds = np.array([0.0, 0.5, 0.0, -0.5])
    assert (labels == (features[:, :4] > thresholds)).all()
    assert mask.all()


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


def test_a_run_without_labels(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`pate label` to be finished"):
        StudentData(tmp_path)


def test_rows_of() -> None:
    ids = np.array(["c", "a", "b"])
    assert rows_of(np.array(["a", "c"]), ids).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"missing=\['x'\]"):
        rows_of(np.array(["a", "x"]), ids)


@pytest.mark.parametrize("changes", [{"batch_size": 0}, {"val_fraction": 1.0}, {"seed": -1}])
def test_bad_settings(changes: dict[str, float], finished: Path) -> None:
    with pytest.raises(ValueError, match="Expected"):
        StudentData(finished, **changes)  # type: ignore[arg-type]
