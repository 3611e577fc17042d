"""A chunk of teachers as one LightningModule: trained at once, sharing nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import Optimizer

NetworkFactory = Callable[[tuple[int, ...], int], nn.Module]
"""Makes a network for an input shape (without the batch) and a number of labels."""


def make_networks(
    factory: NetworkFactory, shape: tuple[int, ...], num_labels: int, *, seed: int, teachers: range
) -> list[nn.Module]:
    """Make one network per teacher, initial weights depending only on (seed, teacher)."""
    networks = []
    for teacher in teachers:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(np.random.SeedSequence([seed, teacher]).generate_state(1, np.uint64)[0] >> 1))
            networks.append(factory(shape, num_labels))
    return networks


class TeacherChunk(pl.LightningModule):
    """Teachers trained side by side, each on its own batches, by the backward pass of the sum of their mean losses.

    The gradient of that sum with respect to one teacher's weights involves its own batch alone, and the optimizer works
    entry by entry: no teacher's weights depend on another's data.

    Args:
        networks: one network per teacher, all of one architecture. One is trained as it is, several are stacked.
        optimizer: makes an optimizer of the parameters. It must work entry by entry (SGD, Adam, AdamW ...).
        positive_weights: ``[chunk, C]`` weights of positive labels in the loss, each from its own partition.
        has_records: ``[chunk]`` booleans; a teacher without records is not trained.
        seed: seed of what is random in the networks while they train, such as dropout.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module],
        *,
        optimizer: Callable[[Any], Optimizer],
        positive_weights: NDArray[np.float32],
        has_records: NDArray[np.bool_],
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._make_optimizer = optimizer
        self._seed = seed
        self.chunk = len(networks)
        self.final_losses: Tensor = torch.full((self.chunk,), torch.nan)
        self.register_buffer("positive_weights", torch.from_numpy(positive_weights)[:, None], persistent=False)
        self.register_buffer("has_records", torch.from_numpy(has_records.astype(np.float32)), persistent=False)
        if self.chunk == 1:
            self.network = networks[0]
            return
        parameters, buffers = stack_module_state(list(networks))
        # "." means nesting in the names of a module's parameters
        self.stacked = nn.ParameterDict({name.replace(".", "/"): nn.Parameter(p) for name, p in parameters.items()})
        self._buffer_names = list(buffers)
        for name, buffer in buffers.items():
            self.register_buffer(_buffer_name(name), buffer)
        # a list hides the template from the module's own parameters
        self._template = [deepcopy(networks[0]).to("meta")]

    def forward(self, features: Tensor) -> Tensor:
        """Return logits ``[chunk, B, C]`` for ``[chunk, B, ...]`` features, or ``[1, B, ...]`` that all share."""
        if self.chunk == 1:
            logits: Tensor = self.network(features[0])[None]
            return logits
        parameters = {name.replace("/", "."): p for name, p in self.stacked.items()}
        buffers = {name: getattr(self, _buffer_name(name)) for name in self._buffer_names}
        template = self._template[0].train(self.training)

        def call(parameters: dict[str, Tensor], buffers: dict[str, Tensor], features: Tensor) -> Tensor:
            result: Tensor = functional_call(template, (parameters, buffers), (features,))
            return result

        shared = features.shape[0] == 1
        stacked: Tensor = vmap(call, in_dims=(0, 0, None if shared else 0), randomness="different")(
            parameters, buffers, features[0] if shared else features
        )
        return stacked

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the sum over teachers of their mean losses."""
        features, labels = batch
        losses = (
            binary_cross_entropy_with_logits(self(features), labels, reduction="none", pos_weight=self.positive_weights)
            .flatten(1)
            .mean(1)
        )
        self.final_losses = losses.detach()
        return (losses * self.has_records).sum()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed what is random in the networks by the step, so that a resumed chunk goes on like an unbroken one."""
        torch.manual_seed(self._seed * 1_000_003 + self.global_step)

    def configure_optimizers(self) -> Optimizer:
        """Make the optimizer."""
        return self._make_optimizer(self.parameters())


def positive_weights(labels: NDArray[np.uint8], power: float) -> NDArray[np.float32]:
    """Return weights of positive labels ``[C]`` from one partition's labels ``[n, C]``.

    ``((1 - m) / m)^power`` with ``m`` the smoothed share of positives; all ones at ``power = 0``.
    """
    share = (labels.sum(axis=0, dtype=np.float64) + 1) / (len(labels) + 2)
    return (((1 - share) / share) ** power).astype(np.float32)


def _buffer_name(name: str) -> str:
    return "buffer/" + name.replace(".", "/")
