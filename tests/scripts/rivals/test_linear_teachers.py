"""Linear teachers as arrays: their logits are those of the networks."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from models import MLP, Linear
from pate._runs import Run
from pate._stages.teachers_plan import load_plan
from pate.teachers._plan import NetworkFactory, TeacherPlan
from pate.teachers._training import load_chunk
from scripts.rivals.linear_teachers import are_linear, linear_weights


def test_weights_say_what_teachers_say(finished: Path) -> None:
    plan, folder = load_plan(Run(finished)), finished / "private" / "teachers"
    weights = linear_weights(plan, (6,), 4, folder)
    assert weights.shape == (10, 7, 4)
    features = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    found = np.einsum("nf,tfc->tnc", np.concatenate((features, np.ones((5, 1))), axis=1), weights)
    for teachers in plan.chunks():
        with torch.no_grad():
            logits = load_chunk(plan, teachers, (6,), 4, folder)(torch.from_numpy(features)[None])
        assert found[teachers.start : teachers.stop] == pytest.approx(logits.numpy(), abs=1e-4)


@pytest.mark.parametrize(("network", "linear"), [(Linear, True), (MLP, False)])
def test_linear_is_one_layer(network: NetworkFactory, linear: bool) -> None:
    plan = TeacherPlan(network=network, num_teachers=2, num_steps=1, batch_size=1)
    assert are_linear(plan, (3,), 2) is linear


def test_a_rule_around_a_layer_is_not_linear() -> None:
    def bent(shape: tuple[int, ...], num_labels: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], num_labels), nn.Tanh())

    assert not are_linear(TeacherPlan(network=bent, num_teachers=2, num_steps=1, batch_size=1), (3,), 2)
