"""The student as a LightningModule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from pate.student.metrics import make_metrics, report, summarise

Batch = tuple[Tensor, Tensor, Tensor]


class Student(pl.LightningModule):
    """A multi-label classifier trained on what was released.

    A batch is ``(features [B, ...], labels [B, C], mask [B, C])``; entries outside the mask have no part in the loss.

    Args:
        network: makes the network for an input shape and a number of labels.
        optimizer: makes the optimizer of the parameters.
        scheduler: makes a learning-rate scheduler stepped every epoch, or None.
        input_shape: shape of one sample's features, linked from the data.
        label_names: names of the labels, linked from the data.
        seed: seed of what is random in the network while it trains.
    """

    def __init__(
        self,
        network: Callable[[tuple[int, ...], int], nn.Module],
        optimizer: Callable[[Any], Optimizer] = torch.optim.AdamW,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        input_shape: tuple[int, ...] = (),
        label_names: tuple[str, ...] = (),
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["network", "optimizer", "scheduler"])
        self.label_names = tuple(label_names)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = network(tuple(input_shape), len(self.label_names))
        self._make_optimizer = optimizer
        self._make_scheduler = scheduler
        self._seed = seed
        self.val_metrics = make_metrics(len(self.label_names))
        self.test_metrics = make_metrics(len(self.label_names))
        self.test_report: dict[str, Any] = {}

    def forward(self, features: Tensor) -> Tensor:
        """Return logits ``[B, C]``."""
        logits: Tensor = self.network(features)
        return logits

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the masked mean loss."""
        features, labels, mask = batch
        loss = _masked_loss(self(features), labels, mask)
        self.log("train_loss", loss, prog_bar=True, on_step=False, on_epoch=True)
        return loss

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Seed what is random in the network by the step, so that a resumed training goes on like an unbroken one."""
        torch.manual_seed(self._seed * 1_000_003 + self.global_step)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Judge held-out released labels."""
        features, labels, mask = batch
        logits = self(features)
        self.log("val_loss", _masked_loss(logits, labels, mask), prog_bar=True)
        whole = mask.all(dim=1)
        if whole.any():
            self.val_metrics.update(logits[whole].sigmoid(), labels[whole].long())

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the held-out released labels."""
        if next(iter(self.val_metrics.values())).update_called:
            self.log_dict({f"val_{name}": value for name, value in summarise(self.val_metrics.compute()).items()})
        self.val_metrics.reset()

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Judge against the truth."""
        features, labels, _ = batch
        self.test_metrics.update(self(features).sigmoid(), labels.long())

    def on_test_epoch_end(self) -> None:
        """Log the summary and keep the figures per label in ``test_report``."""
        values = self.test_metrics.compute()
        self.log_dict({f"test_{name}": value for name, value in summarise(values).items()})
        self.test_report = report(values, self.label_names)
        self.test_metrics.reset()

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return probabilities ``[B, C]``."""
        return self(batch[0]).sigmoid()

    def configure_optimizers(self) -> Any:
        """Make the optimizer, and the scheduler if there is one."""
        optimizer = self._make_optimizer(self.parameters())
        if self._make_scheduler is None:
            return optimizer
        return [optimizer], [self._make_scheduler(optimizer)]


def _masked_loss(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    losses = binary_cross_entropy_with_logits(logits, labels, reduction="none") * mask
    return losses.sum() / mask.sum().clamp(min=1)
