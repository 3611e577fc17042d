"""The network that all teachers start from: the network of a released student, or a copy of it.

It depends only on public things: the student, public samples and the plan.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from pate._files import atomic_write
from pate._release.starting import Start
from pate._validation import Float32Array
from pate.data import DataSource, Role
from pate.teachers._chunk import make_networks
from pate.teachers._plan import TeacherPlan, draw_batches

_COMPARED = 64  # public samples, by which two feature maps are told apart


def write_start(path: Path, start: Start, plan: TeacherPlan, data: DataSource) -> None:
    """Write the weights that all teachers start from, unless they are there.

    These are the weights of the student if its network has the same class and sees the same
    features. Otherwise a network of the teachers' class learns the student's answers to the public
    samples, in as many steps as a teacher takes.

    Args:
        path: the file, ``.safetensors``.
        start: the student.
        plan: how teachers are trained.
        data: the source of the public samples.
    """
    if path.is_file():
        return
    public = data.load(Role.PUBLIC), data.records(Role.PUBLIC)
    raw, seen = (records.features[np.arange(len(records))] for records in public)
    (network,) = make_networks(plan, tuple(seen.shape[1:]), data.num_labels, teachers=range(1))
    student: Any = start.student.module
    compared = slice(0, _COMPARED)
    same = type(student.network) is type(network) and _shapes(student.network) == _shapes(network)
    if same:
        with torch.inference_mode():
            mapped = student.features(torch.from_numpy(raw[compared]))
        same = mapped.shape == seen[compared].shape and np.allclose(
            mapped, seen[compared], atol=1e-4
        )
    if same:
        network.load_state_dict(student.network.state_dict())
    else:
        _learn(network, seen, start.answers(raw).astype(np.float32), plan)
    with atomic_write(path) as file:
        file.write(save({name: value.contiguous() for name, value in network.state_dict().items()}))


def _learn(
    network: nn.Module, samples: Float32Array, answers: Float32Array, plan: TeacherPlan
) -> None:
    """Train a network on answers ``[N, C]`` to public samples, as a teacher is trained."""
    optimizer = plan.optimizer(network.parameters())
    batches = draw_batches(
        len(samples),
        seed=plan.seed,
        teacher=0,
        steps=range(plan.num_steps),
        batch_size=plan.batch_size,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(plan.seed)
        for rows in batches:
            loss = binary_cross_entropy_with_logits(
                network(torch.from_numpy(samples[rows])), torch.from_numpy(answers[rows])
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def _shapes(network: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in network.state_dict().items()}
