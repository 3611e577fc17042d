"""The trial of a teacher: a fresh network must learn by the plan's own optimizer, or is refused."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam

from pate import LabelSettings, RunPlan, TeacherPlan
from pate._labeling.release.forecast import describe_hopeless
from pate.aggregators import NoisyVotes
from pate.data import Arrays
from pate.models import MLP, Linear


class Small(nn.Module):
    """A linear network with something behind it, which also sees how often it was called."""

    def __init__(
        self, shape: tuple[int, ...], num_labels: int, end: Callable[[Tensor, int], Tensor]
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), num_labels))
        self.end, self.calls = end, 0

    def forward(self, samples: Tensor) -> Tensor:
        self.calls += 1
        return self.end(self.layers(samples), self.calls)


class Convolved(nn.Module):
    def __init__(self, shape: tuple[int, ...], num_labels: int) -> None:
        super().__init__()
        layers = nn.Conv2d(shape[0], 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        self.layers = nn.Sequential(
            *layers, nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, num_labels)
        )

    def forward(self, samples: Tensor) -> Tensor:
        return self.layers(samples)


def ending(end: Callable[[Tensor, int], Tensor]) -> dict[str, Any]:
    return {"network": partial(Small, end=end)}


HONEST: dict[str, dict[str, Any]] = {
    "linear": {"network": Linear},
    "slow": {"network": Linear, "optimizer": partial(SGD, lr=1e-4)},
    "hidden": {"network": partial(MLP, hidden=[16]), "optimizer": partial(Adam, lr=1e-3)},
    "convolved": {"network": Convolved, "optimizer": partial(Adam, lr=1e-2), "clip_norm": 1.0},
}
BROKEN: dict[str, dict[str, Any]] = {
    "detached": ending(lambda z, _: z.detach()),
    "constant": ending(lambda z, _: z.mean(0, keepdim=True) + 0 * z),
    "random": ending(lambda z, _: torch.randn_like(z) + 0 * z),
    "of other samples": ending(lambda z, _: z[torch.randperm(len(z))]),
    "one answer for all labels": ending(lambda z, _: z[:, :1] + 0 * z),
    "no number later": ending(lambda z, calls: z / (calls < 20)),
    "lr 0": {"network": Linear, "optimizer": partial(SGD, lr=0.0)},
    "lr 1e30": {"network": Linear, "optimizer": partial(SGD, lr=1e30)},
}


@pytest.mark.parametrize(
    ("settings", "learns", "patience"),
    [
        pytest.param(
            each, name in HONEST, 5.0, id=name, marks=[pytest.mark.slow] if number % 2 else []
        )
        for number, (name, each) in enumerate((HONEST | BROKEN).items())
    ]
    # as many steps are looked at where each of them takes long
    + [pytest.param(BROKEN["no number later"], False, 0.0, id="no number later, slowly")],
)
def test_networks_that_learn_nothing_are_refused_before_anything_is_paid(
    settings: dict[str, Any],
    learns: bool,
    patience: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pate._networks.teachers.stage._PATIENCE", patience)
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3, 6, 6)) + random.normal(size=(60, 1, 1, 1))
    file, Y = tmp_path / "data.npz", random.integers(0, 2, (60, 2))
    np.savez(file, X=X.astype(np.float32), Y=Y, ids=[f"r{i}" for i in range(60)])
    plan = RunPlan(
        tmp_path / "run",
        Arrays(file, public_fraction=0.5),
        teachers=TeacherPlan(num_teachers=4, num_steps=3, batch_size=4, **settings),
        labels=LabelSettings(NoisyVotes(sigma_votes=1.0), delta=1e-3),
    )
    plan.check()
    if learns:
        plan.rehearse()
        return
    with pytest.raises(ValueError, match=r"^Expected a network \w+ that learns .*accuracy=") as it:
        plan.execute()
    assert "\n" not in str(it.value)
    assert not plan.run.root.exists() and not plan.run.ledger_path.exists()


TRAINED = TeacherPlan(network=Linear, num_teachers=60, num_steps=1, batch_size=1)


@pytest.mark.parametrize(
    ("plan", "number", "message"),
    [
        (TRAINED, 119, "119 private records (or groups) for 60 teachers: most have one or none"),
        (TRAINED, 120, None),
        (replace(TRAINED, start_from="first"), 4, None),
    ],
)
def test_too_few_records_are_told(plan: TeacherPlan, number: int, message: str | None) -> None:
    settings = LabelSettings(NoisyVotes(sigma_votes=3.0), delta=1e-5, num_queries=5)
    lines = [*describe_hopeless(plan, settings, number)]
    assert not lines if message is None else [message in line for line in lines] == [True]
