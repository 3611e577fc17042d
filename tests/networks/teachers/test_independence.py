"""What stacked teachers could share and do not: batch norm's buffers, dropout, clipping, schedules,
losses."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from models import MLP, Linear
from pate._networks.teachers.plan import check_entrywise
from pate._networks.teachers.training import clip_gradients
from tests.conftest import make_arrays
from tests.networks.teachers.test_training import (
    Focal,
    assert_one_teacher_changes,
    partitions,
    plan,
    records,
    teachers_that_differ,
    train,
)


class NormedMLP(nn.Sequential):
    """An MLP with batch norm and dropout."""

    def __init__(self, shape: Sequence[int], num_labels: int, dropout: float = 0.0) -> None:
        size = int(np.prod(shape))
        super().__init__(
            nn.Flatten(),
            # a bias here has a gradient of rounding errors alone, which Adam blows up
            nn.Linear(size, 7, bias=False),
            nn.BatchNorm1d(7),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(7, num_labels),
        )


class NormedCNN(nn.Sequential):
    """A CNN with batch norm on features folded into pictures of 2 x 3."""

    def __init__(self, shape: Sequence[int], num_labels: int) -> None:
        super().__init__(
            nn.Unflatten(1, (1, 2, 3)),
            nn.Conv2d(1, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, num_labels),
        )


def cosine(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return CosineAnnealingLR(optimizer, T_max=12)


SETTINGS: dict[str, dict[str, Any]] = {
    "batch norm and dropout": {"network": partial(NormedMLP, dropout=0.3)},
    "convolutions with batch norm": {"network": NormedCNN},
    "clipping": {"network": partial(MLP, hidden=(5,)), "clip_norm": 0.1},
    "schedule": {"scheduler": cosine},
    "focal loss": {"loss": Focal(), "positive_weight_power": 0.5},
    "positive weights": {"positive_weight_power": 1.0},
    "bfloat16": {"network": partial(MLP, hidden=(5,)), "precision": "bf16-mixed"},
    "all": {
        "network": partial(NormedMLP, dropout=0.3),
        "clip_norm": 0.1,
        "scheduler": cosine,
        "loss": Focal(),
        "positive_weight_power": 0.5,
        "checkpoint_steps": 5,
    },
}


# what is among "all" of them
TOGETHER = ("batch norm and dropout", "clipping", "schedule", "positive weights", "focal loss")


# alone, each teacher has a Trainer of its own, and nothing by which settings could let it see
# others
@pytest.mark.parametrize(
    ("name", "chunk_size"),
    [
        pytest.param("all", 1, marks=pytest.mark.slow),
        *(
            pytest.param(name, 4, marks=[pytest.mark.slow] if name in TOGETHER else [])
            for name in SETTINGS
        ),
    ],
)
def test_one_record_changes_one_teacher_bit_for_bit(
    name: str, chunk_size: int, tmp_path: Path
) -> None:
    assert_one_teacher_changes(plan(chunk_size=chunk_size, **SETTINGS[name]), tmp_path, factor=-30)


class InFloat64(nn.Module):
    """A network in float64 on features in float32."""

    def __init__(
        self, factory: Callable[..., nn.Module], shape: Sequence[int], num_labels: int
    ) -> None:
        super().__init__()
        self.network = factory(shape, num_labels).double()

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.network(features.double())
        return logits


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "focal loss" else [pytest.mark.slow])
        for name in SETTINGS
        if name not in ("all", "bfloat16")
    ],
)
def test_chunk_sizes_agree_in_float64(name: str, tmp_path: Path) -> None:
    changes = dict(SETTINGS[name])
    network = changes.get("network", Linear)
    if isinstance(network, partial) and network.func is NormedMLP:
        network = NormedMLP  # dropout draws once for all teachers of a chunk
    changes["network"] = partial(InFloat64, network)
    data = records()
    parts = partitions([30, 25, 5, 35])
    alone, stacked = (
        train(plan(chunk_size=size, **changes), data, parts, tmp_path / str(size))
        for size in (1, 4)
    )
    for key, value in alone.items():
        assert value.dtype in (torch.float64, torch.int64)
        assert torch.allclose(value, stacked[key], rtol=0, atol=1e-12)


def test_bfloat16_is_used_and_weights_stay_float32(tmp_path: Path) -> None:
    parts = partitions([30, 25, 5, 35])
    half = train(plan(**SETTINGS["bfloat16"]), records(), parts, tmp_path / "a")
    full = train(
        plan(**SETTINGS["bfloat16"] | {"precision": "32-true"}), records(), parts, tmp_path / "b"
    )
    for name, value in half.items():
        assert value.dtype == torch.float32
        assert 0 < (value - full[name]).abs().max() < 0.1


def test_batch_norm_of_a_teacher_sees_its_own_batches(tmp_path: Path) -> None:
    features = make_arrays(120)["X"]
    features[30:60] += 100
    state = train(
        plan(network=NormedMLP, num_steps=40),
        records(X=features),
        partitions([30, 30, 30, 30]),
        tmp_path,
    )
    assert (state["2.num_batches_tracked"] == 40).all()
    far = state["2.running_mean"].abs().sum(1)
    assert far.argmax() == 1 and far[1] > 5 * far[[0, 2, 3]].max()


def gradients(factor: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [factor * torch.randn(3, *shape, generator=generator) for shape in ((4, 5), (4,), ())]


@pytest.mark.parametrize("factor", [0.01, 10.0])
def test_clipping_is_torch_s_per_teacher(factor: float) -> None:
    stacked = [torch.zeros_like(g, requires_grad=True) for g in gradients(factor)]
    for parameter, gradient in zip(stacked, gradients(factor), strict=True):
        parameter.grad = gradient
    clip_gradients(stacked, 1.0, stacked=True)
    for teacher in range(3):
        alone = [torch.zeros_like(g[teacher], requires_grad=True) for g in gradients(factor)]
        again = [torch.zeros_like(g[teacher], requires_grad=True) for g in gradients(factor)]
        for one, other, gradient in zip(alone, again, gradients(factor), strict=True):
            one.grad, other.grad = gradient[teacher].clone(), gradient[teacher].clone()
        torch.nn.utils.clip_grad_norm_(alone, 1.0)
        clip_gradients(again, 1.0, stacked=False)
        for expected, plain, parameter in zip(alone, again, stacked, strict=True):
            assert (
                expected.grad is not None and plain.grad is not None and parameter.grad is not None
            )
            assert torch.allclose(expected.grad, parameter.grad[teacher], atol=1e-6)
            assert torch.allclose(expected.grad, plain.grad, atol=1e-6)


def test_a_gradient_that_is_nan_is_clipped_alone() -> None:
    parameter = torch.zeros(3, 4, requires_grad=True)
    parameter.grad = torch.ones(3, 4)
    parameter.grad[1, 2] = torch.nan
    clip_gradients([parameter], 1.0, stacked=True)
    assert torch.isfinite(parameter.grad[[0, 2]]).all()


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "RMSprop", "Adagrad"])
def test_optimizers_that_work_entry_by_entry(name: str) -> None:
    check_entrywise(partial(getattr(torch.optim, name), lr=0.01))


@pytest.mark.parametrize("optimizer", [torch.optim.LBFGS, torch.optim.Adafactor])
def test_optimizers_that_look_across_teachers(optimizer: Any) -> None:
    with pytest.raises(
        ValueError, match=f"works entry by entry, got optimizer='{optimizer.__name__}'"
    ):
        plan(optimizer=optimizer)
    plan(optimizer=optimizer, chunk_size=1)


def test_a_schedule_is_followed(tmp_path: Path) -> None:
    """A rate of zero from step 3 on leaves the weights of step 3."""
    stop = partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda step: float(step < 3))
    parts = partitions([30, 30, 30, 30])
    optimizer = partial(torch.optim.SGD, lr=0.1)
    long = train(plan(optimizer=optimizer, scheduler=stop), records(), parts, tmp_path / "a")
    short = train(plan(optimizer=optimizer, num_steps=3), records(), parts, tmp_path / "b")
    assert teachers_that_differ(long, short) == []
