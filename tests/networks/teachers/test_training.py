"""A teacher's weights are a function of its own partition, its number, the plan and nothing
else."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchvision.ops import sigmoid_focal_loss

from models import MLP, Linear
from pate._networks.teachers.training import (
    SavedChunk,
    chunk_file,
    make_chunk,
    make_networks,
    positive_weights,
)
from pate.data import UNKNOWN, ArrayFeatures, Records
from pate.teachers import (
    EntryLoss,
    Execution,
    PartitionedRecords,
    TeacherPlan,
    TrainJob,
    cast_votes,
    load_chunk,
    run_jobs,
)
from tests.conftest import make_arrays

State = dict[str, torch.Tensor]


class Focal(EntryLoss):
    """A loss of one's own."""

    def __init__(self, gamma: float = 2.0) -> None:
        self.gamma = gamma

    def __call__(self, logits: Tensor, labels: Tensor, positive_weights: Tensor) -> Tensor:
        weights = torch.where(labels > 0.5, positive_weights, 1.0)
        losses: Tensor = sigmoid_focal_loss(logits, labels, alpha=-1, gamma=self.gamma)
        return weights * losses


def records(num: int = 120, **changes: np.ndarray) -> Records:
    arrays = make_arrays(num) | changes
    ids = np.char.mod("%04d", np.arange(num))
    return Records(features=ArrayFeatures(arrays["X"]), labels=arrays["Y"], ids=ids, groups=ids)


def partitions(sizes: list[int]) -> list[np.ndarray]:
    stops = np.cumsum(sizes)
    return [np.arange(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]


def plan(**changes: Any) -> TeacherPlan:
    settings: dict[str, Any] = {
        "network": Linear,
        "optimizer": partial(torch.optim.Adam, lr=0.05),
        "num_teachers": 4,
        "num_steps": 12,
        "batch_size": 8,
        "chunk_size": 4,
        "accelerator": "cpu",
    }
    return TeacherPlan(**settings | changes)


def training(plan: TeacherPlan, data: Records, parts: list[np.ndarray], folder: Path) -> TrainJob:
    return TrainJob(plan=plan, data=PartitionedRecords(data, dict(enumerate(parts))), folder=folder)


def train(plan: TeacherPlan, data: Records, parts: list[np.ndarray], folder: Path) -> State:
    """Train all teachers; return the weights of each as ``name: [T, ...]``."""
    run_jobs(training(plan, data, parts, folder), plan.chunks(), Execution(), lambda steps: None)
    states = []
    for teachers in plan.chunks():
        state = SavedChunk.read(chunk_file(folder, teachers)).state
        if len(teachers) == 1:
            state = {name: value[None] for name, value in state.items()}
        states.append({plain(name): value for name, value in state.items()})
    return {name: torch.cat([state[name] for state in states]) for name in states[0]}


def assert_one_teacher_changes(settings: TeacherPlan, folder: Path, *, factor: float) -> None:
    """Check that a record that is altered, or removed, changes the weights of its teacher alone."""
    parts = partitions([30, 25, 0, 35])
    before = train(settings, records(), parts, folder / "a")
    features, labels = make_arrays(120)["X"], make_arrays(120)["Y"]
    features[40] *= factor
    labels[40] = 1 - labels[40]
    altered = train(settings, records(X=features, Y=labels), parts, folder / "b")
    assert teachers_that_differ(before, altered) == [1]
    without = [part[part != 40] for part in parts]
    removed = train(settings, records(), without, folder / "c")
    assert teachers_that_differ(before, removed) == [1]


def plain(name: str) -> str:
    """Return the name of a weight or buffer within a teacher's network."""
    for prefix in ("network.", "stacked.", "buffer/"):
        name = name.removeprefix(prefix)
    return name.replace("/", ".")


def teachers_that_differ(first: State, second: State) -> list[int]:
    num = len(next(iter(first.values())))
    return [
        t for t in range(num) if any((first[name][t] != second[name][t]).any() for name in first)
    ]


DROPPING = partial(MLP, hidden=(5,), dropout=0.3)


@pytest.mark.parametrize(
    ("network", "chunk_size"),
    [
        (Linear, 4),
        pytest.param(DROPPING, 1, marks=pytest.mark.slow),
        pytest.param(Linear, 1, marks=pytest.mark.slow),
        (DROPPING, 4),
    ],
)
def test_one_record_changes_one_teacher_bit_for_bit(
    network: Callable[..., nn.Module], chunk_size: int, tmp_path: Path
) -> None:
    assert_one_teacher_changes(
        plan(network=network, chunk_size=chunk_size, positive_weight_power=0.5), tmp_path, factor=-3
    )


def test_files_hold_matrices_as_networks_do() -> None:
    """A square one too, where a transposed matrix would be read without an error."""
    settings = plan(network=partial(MLP, hidden=(6, 6)))
    data = PartitionedRecords(records(), dict(enumerate(partitions([30] * 4))))
    chunk = make_chunk(settings, range(4), data)
    networks = make_networks(settings, (6,), 4, teachers=range(4))
    state = {plain(name): value for name, value in chunk.state_dict().items()}
    for name in networks[0].state_dict():
        expected = torch.stack([network.state_dict()[name] for network in networks])
        assert state[name].equal(expected)
    other = make_chunk(replace(settings, seed=1), range(4), data)
    features = torch.from_numpy(np.asarray(records().features[:5]))[None]
    assert not other(features).allclose(chunk(features))
    other.load_state_dict(chunk.state_dict())
    assert other(features).equal(chunk(features))
    alone = torch.stack([network(features[0]) for network in networks])
    assert torch.allclose(chunk(features), alone, atol=1e-6)


@pytest.mark.parametrize("sizes", [[0, 0, 0, 0], [1, 0, 2, 3], [8, 1, 100, 2]])
@pytest.mark.parametrize("chunk_size", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_small_and_empty_partitions(sizes: list[int], chunk_size: int, tmp_path: Path) -> None:
    settings = plan(chunk_size=chunk_size)
    train(settings, records(), partitions(sizes), tmp_path)
    for teachers in settings.chunks():
        chunk = load_chunk(settings, teachers, (6,), 4, tmp_path)
        packed = cast_votes(chunk, records().features)
        assert packed.shape == (len(teachers), 120, 1)
        for place, teacher in enumerate(teachers):
            if sizes[teacher] == 0:
                assert (packed[place] == 0).all()


@pytest.mark.parametrize("chunk_size", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_loss_that_is_nan_stays_in_its_teacher(chunk_size: int, tmp_path: Path) -> None:
    settings = plan(chunk_size=chunk_size)
    parts = partitions([30, 30, 30, 30])
    features = make_arrays(120)["X"]
    healthy = train(settings, records(), parts, tmp_path / "a")
    features[35] = 1e38  # overflows in the loss
    broken = train(settings, records(X=features * np.float32(1)), parts, tmp_path / "b")
    assert teachers_that_differ(healthy, broken) == [1]
    chunk = load_chunk(settings, settings.chunks()[0], (6,), 4, tmp_path / "b")
    assert cast_votes(chunk, records().features).shape[0] == chunk_size


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_vote_no(value: float, tmp_path: Path) -> None:
    settings = plan()
    train(settings, records(), partitions([30, 30, 30, 30]), tmp_path)
    chunk = load_chunk(settings, range(4), (6,), 4, tmp_path)
    healthy = cast_votes(chunk, records().features)
    with torch.no_grad():
        for parameter in chunk.parameters():
            parameter[2] = value
    spoilt = cast_votes(chunk, records().features)
    assert (spoilt[2] == 0).all()
    assert (np.delete(spoilt, 2, axis=0) == np.delete(healthy, 2, axis=0)).all()


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("chunk_size", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_a_killed_chunk_ends_bit_for_bit_like_an_unbroken_one(
    chunk_size: int, tmp_path: Path
) -> None:
    settings = plan(
        network=partial(MLP, hidden=(5,), dropout=0.3),
        chunk_size=chunk_size,
        checkpoint_steps=5,
        num_steps=17,
    )
    parts = partitions([30, 30, 30, 30])
    unbroken = train(settings, records(), parts, tmp_path / "a")

    left = 13

    def explode(steps: int) -> None:
        nonlocal left
        left -= steps
        if left < 0:
            raise _KilledError

    teachers = settings.chunks()[0]
    with pytest.raises(_KilledError):
        training(settings, records(), parts, tmp_path / "b").work(teachers, explode)
    assert not chunk_file(tmp_path / "b", teachers).is_file()
    assert list((tmp_path / "b").glob("*.ckpt"))
    resumed = train(settings, records(), parts, tmp_path / "b")
    assert teachers_that_differ(unbroken, resumed) == []
    assert not list((tmp_path / "b").glob("*.ckpt"))


def test_a_start_is_named_by_what_it_was_made_from(tmp_path: Path) -> None:
    parts = partitions([30, 30, 30, 30])
    job = replace(training(plan(start_from="runs/a"), records(), parts, tmp_path), made_from="k")
    assert job.start_file == tmp_path / "start_k.safetensors"
    assert training(plan(), records(), parts, tmp_path).start_file is None


def masked(labels: np.ndarray, lost: np.ndarray) -> np.ndarray:
    return np.where(lost, UNKNOWN, labels).astype(np.uint8)


@pytest.mark.parametrize(
    ("chunk_size", "loss"),
    [
        (4, Focal()),
        *(pytest.param(1, loss, marks=pytest.mark.slow) for loss in (None, Focal())),
    ],
)
def test_a_teacher_learns_from_known_labels(
    chunk_size: int, loss: Focal | None, tmp_path: Path
) -> None:
    """A loss is the mean over known labels; a teacher that knows none is not trained."""
    settings = plan(chunk_size=chunk_size, loss=loss, positive_weight_power=0.5, num_steps=30)
    labels, parts = make_arrays(120)["Y"], partitions([40, 40, 20, 20])
    lost = np.random.default_rng(0).random(labels.shape) < 0.4
    lost[:40, 2] = True  # the first teacher knows nothing of a label
    lost[80:100] = True  # the third knows nothing
    data = records(Y=masked(labels, lost))
    state = train(settings, data, parts, tmp_path / "a")
    assert all(torch.isfinite(values).all() for values in state.values())
    votes = [
        np.unpackbits(cast_votes(chunk, data.features), axis=-1, count=4)
        for chunk in (
            load_chunk(settings, teachers, (6,), 4, tmp_path / "a")
            for teachers in settings.chunks()
        )
    ]
    cast = np.concatenate(votes)
    assert not cast[2].any() and not cast[0, :, 2].any() and cast[[0, 1, 3]].any()
    right = (cast[:2] == labels).mean(axis=1)
    assert (right[lost[:80].reshape(2, 40, 4).mean(axis=1) < 1] > 0.7).all()
    # a label that is unknown may have any value, and a change of what one record knows stays in
    # its own teacher
    other = train(settings, records(Y=masked(1 - labels, lost)), parts, tmp_path / "b")
    assert teachers_that_differ(state, other) == [0, 1, 3]
    lost[40] = ~lost[40]
    other = train(settings, records(Y=masked(labels, lost)), parts, tmp_path / "c")
    assert teachers_that_differ(state, other) == [1]


def test_losses_are_those_of_known_labels(tmp_path: Path) -> None:
    """By hand, with a batch that knows nothing."""
    settings = plan()
    chunk = make_chunk(
        settings, range(4), PartitionedRecords(records(), dict(enumerate(partitions([30] * 4))))
    )
    features = torch.randn(4, 8, 6)
    labels = (torch.rand(4, 8, 4) < 0.5).float()
    lost = torch.rand(4, 8, 4) < 0.5
    lost[3] = True
    logits = chunk(features)
    entries = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    found = chunk.teacher_losses(features, labels.masked_fill(lost, torch.nan))
    for teacher in range(3):
        assert found[teacher].item() == pytest.approx(
            entries[teacher][~lost[teacher]].mean().item(), rel=1e-5
        )
    assert found[3].item() == 0
    gradients = torch.autograd.grad(found.sum(), list(chunk.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_positive_weights_balance_a_partition() -> None:
    labels = np.array([[1, 0], [0, 0], [0, 0], [0, 0]], dtype=np.uint8)
    assert positive_weights(labels, 0.0).tolist() == [1, 1]
    assert positive_weights(labels, 1.0) == pytest.approx([2.0, 5.0])
    assert np.isfinite(positive_weights(labels[:0], 1.0)).all()
    labels[2:, 0] = UNKNOWN
    assert positive_weights(labels, 1.0) == pytest.approx([1.0, 5.0])
