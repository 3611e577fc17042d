"""The weights of linear teachers, as arrays. PRIVATE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pate._typing import FloatArray
from pate.teachers._chunk import TeacherChunk, make_networks
from pate.teachers._plan import TeacherPlan
from pate.teachers._training import load_chunk


def are_linear(plan: TeacherPlan, shape: tuple[int, ...], num_labels: int) -> bool:
    """Return whether a teacher for features of ``shape`` is one linear layer on them, flattened."""
    (network,) = make_networks(plan, shape, num_labels, teachers=range(1))
    inner = [module for module in network.modules() if not isinstance(module, nn.Sequential)]
    layers = [module for module in inner if not isinstance(module, nn.Flatten | nn.Identity)]
    return len(layers) == 1 and isinstance(layers[0], nn.Linear)


def linear_weights(plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, folder: Path) -> FloatArray:
    """Return the weights of all teachers, ``[T, F + 1, C]`` with the intercepts last. PRIVATE.

    A teacher that had no records, or whose weights are not finite, has zeros.

    Args:
        plan: how they were trained; `are_linear` holds.
        shape: shape of one record's features.
        num_labels: number of labels.
        folder: the folder of the chunks' files.

    Raises:
        ValueError: if a file cannot be read.
    """
    found = []
    for teachers in plan.chunks():
        chunk = load_chunk(plan, teachers, shape, num_labels, folder)
        parts = dict(_parameters(chunk))
        weight = parts["weight"].double().numpy().transpose(0, 2, 1)
        bias = parts["bias"].double().numpy() if "bias" in parts else np.zeros((len(teachers), num_labels))
        whole = np.concatenate((weight, bias[:, None]), axis=1)
        whole[~chunk.is_trained().numpy()] = 0
        found.append(whole)
    return np.concatenate(found)


@torch.no_grad()
def _parameters(chunk: TeacherChunk) -> Iterator[tuple[str, Tensor]]:
    """Yield the last part of the name of each parameter, and its values ``[chunk, ...]``."""
    for name, value in chunk.named_parameters():
        yield name.replace("/", ".").rsplit(".", 1)[-1], value.detach() if chunk.chunk > 1 else value.detach()[None]
