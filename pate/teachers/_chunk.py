"""A chunk of teachers as one LightningModule: trained together, sharing nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pate._networks import make_network
from pate._validation import Float32Array, FloatArray, UInt8Array, require
from pate.data._checks import known_truth
from pate.teachers._losses import BinaryCrossEntropy
from pate.teachers._plan import TeacherPlan

# rows of the curves of losses that are kept
_POINTS = 100


def make_networks(
    plan: TeacherPlan, shape: tuple[int, ...], num_labels: int, *, teachers: range
) -> list[nn.Module]:
    """Return one network per teacher, with initial weights that depend only on (seed, teacher)."""
    networks = []
    for teacher in teachers:
        with torch.random.fork_rng(devices=[]):
            state = (
                np.random.SeedSequence([plan.seed, teacher]).generate_state(1, np.uint64)[0] >> 1
            )
            _seed(int(state), torch.device("cpu"))
            networks.append(make_network(plan.network, shape, num_labels))
    return networks


class TeacherChunk(pl.LightningModule):
    """Teachers trained side by side on their own batches, by one backward pass of summed losses.

    The gradient of the sum with respect to one teacher's weights involves only its own batch, and
    the optimizer works entry by entry: no teacher's weights depend on another's data. Buffers, such
    as the averages of batch norm, are stacked like weights.

    Args:
        networks: one network per teacher, all of one architecture. A single one is trained as it
            is; several are stacked.
        plan: how they are trained: optimizer, loss, schedule, clipping and number of steps.
        positive_weights: ``[chunk, C]`` float32 weights of positive labels in the loss, each from
            its own partition.
        label_shares: ``[chunk, C]`` float32, among each teacher's own records that know the label;
            NaN if none does. A teacher that knows no label is not trained.
        seed: seed of random layers, such as dropout.

    Attributes:
        losses: ``[points, chunk]`` mean losses on the last batch of each of up to 100 equal spans
            of steps. PRIVATE.
    """

    losses: Tensor
    positive_weights: Tensor
    has_records: Tensor
    label_shares: Tensor

    def __init__(
        self,
        networks: Sequence[nn.Module],
        plan: TeacherPlan,
        *,
        positive_weights: Float32Array,
        label_shares: Float32Array,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._plan = plan
        self._loss = plan.loss or BinaryCrossEntropy()
        self._seed = seed
        self.chunk = len(networks)
        losses = torch.full((min(plan.num_steps, _POINTS), self.chunk), torch.nan)
        self.register_buffer("losses", losses, persistent=False)
        self.register_buffer(
            "positive_weights", torch.from_numpy(positive_weights)[:, None], persistent=False
        )
        self.register_buffer("label_shares", torch.from_numpy(label_shares), persistent=False)
        self.register_buffer(
            "has_records", self.label_shares.isfinite().any(1).float(), persistent=False
        )
        if self.chunk == 1:
            self.network = networks[0]
            return
        parameters, buffers = stack_module_state(list(networks))
        # "." means nesting in the names of a module's parameters
        self.stacked = nn.ParameterDict(
            {name.replace(".", "/"): nn.Parameter(p) for name, p in parameters.items()}
        )
        self._buffer_names = list(buffers)
        for name, buffer in buffers.items():
            self.register_buffer(_buffer_name(name), buffer)
        # a list hides the template from the module's own parameters
        self._template = [deepcopy(networks[0]).to("meta")]

    def forward(self, features: Tensor) -> Tensor:
        """Return logits ``[chunk, B, C]`` for features ``[chunk, B, ...]`` or ``[1, B, ...]``."""
        if self.chunk == 1:
            return self.network(features[0])[None]
        parameters = {name.replace("/", "."): p for name, p in self.stacked.items()}
        buffers = {name: getattr(self, _buffer_name(name)) for name in self._buffer_names}
        template = self._template[0].train(self.training)

        def call(
            parameters: dict[str, Tensor], buffers: dict[str, Tensor], features: Tensor
        ) -> Tensor:
            return functional_call(template, (parameters, buffers), (features,))

        shared = features.shape[0] == 1
        return vmap(call, in_dims=(0, 0, None if shared else 0), randomness="different")(
            parameters, buffers, features[0] if shared else features
        )

    @torch.no_grad()
    def is_trained(self) -> Tensor:
        """Return which teachers know which labels, and have finite weights, ``[chunk, C]``."""
        if self.chunk == 1:
            values = [value[None] for value in self.network.state_dict().values()]
        else:
            values = [
                *self.stacked.values(),
                *(getattr(self, _buffer_name(name)) for name in self._buffer_names),
            ]
        finite = [torch.isfinite(value).reshape(self.chunk, -1).all(1) for value in values]
        return self.label_shares.isfinite() & torch.stack(finite).all(0)[:, None]

    def teacher_losses(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return losses ``[chunk]`` on features ``[chunk, B, ...]``, labels ``[chunk, B, C]``.

        Each is the mean over known labels, which are not NaN; 0 if none is known.
        """
        logits = self(features)
        # losses are computed in float32, even from bfloat16 logits
        logits = logits.to(torch.promote_types(logits.dtype, labels.dtype))
        known = labels.isfinite()
        losses = self._loss(logits, labels.nan_to_num(), self.positive_weights)
        total = torch.where(known, losses, 0).flatten(1).sum(1)
        return total / known.flatten(1).sum(1).clamp(min=1)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the sum over teachers of their mean losses."""
        losses = self.teacher_losses(*batch)
        self.losses[self.global_step * len(self.losses) // self._plan.num_steps] = losses.detach()
        return (losses * self.has_records).sum()

    def on_train_batch_start(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Seed the networks by the step, so that a resumed chunk continues as if uninterrupted."""
        _seed(self._seed * 1_000_003 + self.global_step, self.device)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Clip each teacher's gradient by its own norm."""
        if self._plan.clip_norm is not None:
            clip_gradients(self.parameters(), self._plan.clip_norm, stacked=self.chunk > 1)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return the optimizer, and its schedule by step."""
        optimizer = self._plan.optimizer(self.parameters())
        if self._plan.scheduler is None:
            return optimizer
        scheduler = self._plan.scheduler(optimizer)
        require(
            not isinstance(scheduler, ReduceLROnPlateau),
            "a scheduler that looks at no loss",
            scheduler=type(scheduler).__name__,
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the loss curves in the checkpoint."""
        checkpoint["losses"] = self.losses

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the loss curves from the checkpoint."""
        self.losses.copy_(checkpoint["losses"])


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], norm: float, *, stacked: bool) -> None:
    """Scale down each teacher's gradient over all its parameters if its norm exceeds ``norm``.

    ``stacked`` parameters are ``[chunk, ...]``; otherwise all belong to one teacher.
    """
    gradients = [p.grad if stacked else p.grad[None] for p in parameters if p.grad is not None]
    squares = [gradient.reshape(len(gradient), -1).square().sum(1) for gradient in gradients]
    scale = (norm / (torch.stack(squares).sum(0).sqrt() + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.ndim - 1)))


def positive_weights(labels: UInt8Array, power: float) -> Float32Array:
    """Return weights of positive labels ``[C]`` from one partition's labels ``[n, C]``.

    ``((1 - m) / m)^power`` with ``m`` the smoothed share of positives among known labels; all ones
    at ``power = 0``.
    """
    right, known = known_truth(labels)
    share = (right.sum(axis=0) + 1) / (known.sum(axis=0) + 2)
    weights: FloatArray = ((1 - share) / share) ** power
    return weights.astype(np.float32)


def label_shares(labels: UInt8Array) -> Float32Array:
    """Return the share of each label, ``[C]``, among known labels ``[n, C]``; NaN without any."""
    right, known = known_truth(labels)
    num_known = known.sum(axis=0)
    shares: FloatArray = right.sum(axis=0) / np.where(num_known, num_known, np.nan)
    return shares.astype(np.float32)


def _buffer_name(name: str) -> str:
    return "buffer/" + name.replace(".", "/")


def _seed(seed: int, device: torch.device) -> None:
    # torch.manual_seed looks for every kind of accelerator: a millisecond
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)
