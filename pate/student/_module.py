"""The student as a LightningModule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from pate._linear import labels_better_than_constant
from pate._networks import make_network
from pate._validation import require, require_in_open_unit_interval, require_positive
from pate.data._augmentation import augmented, require_pictures
from pate.student._answers import gate
from pate.student._metrics import DECISION_METRICS, Metric, choose_thresholds, evaluate

Batch = tuple[Tensor, Tensor, Tensor]


class Student(pl.LightningModule):
    """A multi-label classifier trained on released labels.

    The network is trained by gradient descent. Its answers to held-out samples are compared with
    the constant answer from the release. The network decides the labels that it answers better, as
    many as are better together; the constant answer decides all others, and the network ranks their
    samples. Without held-out samples nothing is compared.

    A label is given if its probability is above its cut. Each metric that decisions can optimize
    has cuts of its own, chosen from the student's probabilities on the held-out samples, at no
    cost; they require such samples.

    A batch is ``(features [B, ...], targets [B, C], mask [B, C])``; entries outside the mask do not
    enter the loss. The loss ``log(1 + exp(z)) - y z`` of a logit z is linear in its target y. A
    target is a label, or a share of the teachers with Gaussian noise, which may be below 0 or above
    1. The noise has mean 0, and so does its effect on the loss and the gradient, in training and
    validation. ``val_loss`` compares models without a private label. The effect of the noise
    shrinks with the number of samples, and weight decay limits it.

    A student can also learn from entries that were not released: with ``pseudo_confidence``, a
    running average of the network labels the entries it is certain about.

    Args:
        network: makes the network for an input shape and a number of labels.
        optimizer: makes the optimizer of the parameters.
        scheduler: makes a learning-rate scheduler, stepped every epoch; None for a constant rate.
        input_shape: shape of one sample's features, linked from the data.
        label_names: names of the labels, linked from the data.
        seed: seed of the initial weights and of randomness in training, such as dropout.
        augment: transforms of pictures during training, such as classes of
            ``torchvision.transforms.v2``, applied to each picture separately.
        pseudo_confidence: lowest probability, of a label or of its absence, at which the running
            average labels an entry that was not released; None for no such labels.
            ``data.unlabelled`` adds samples without any label.
        average_decay: share of the running average kept at each step.
        pseudo_weight: weight of these labels in the loss.
        constants: logits of the constant answer for each label, linked from the data; None to
            compare with none.
        optimize: the figure that decisions serve.

    Attributes:
        cuts: ``[3, C]``, in every checkpoint, for each of `DECISION_METRICS` the probability above
            which a label is given.
        departs: ``[C]``, in every checkpoint, whether the network decides a label; the others stay
            on the side of ``constant_logits``.

    Raises:
        ValueError: on a confidence outside [1/2, 1), a decay outside (0, 1) or a weight that is not
            positive.
    """

    constant_logits: Tensor
    departs: Tensor
    cuts: Tensor

    def __init__(
        self,
        network: Callable[[tuple[int, ...], int], nn.Module],
        optimizer: Callable[[Any], Optimizer] = torch.optim.AdamW,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        input_shape: tuple[int, ...] = (),
        label_names: tuple[str, ...] = (),
        seed: int = 0,
        pseudo_confidence: float | None = None,
        average_decay: float = 0.99,
        pseudo_weight: float = 1.0,
        constants: Sequence[float] | None = None,
        augment: list[nn.Module] | None = None,
        optimize: Metric = "accuracy",
    ) -> None:
        super().__init__()
        require_in_open_unit_interval(average_decay=average_decay)
        require_positive(pseudo_weight=pseudo_weight)
        if pseudo_confidence is not None:
            require(
                0.5 <= pseudo_confidence < 1,
                "0.5 <= pseudo_confidence < 1",
                pseudo_confidence=pseudo_confidence,
            )
        self.save_hyperparameters(ignore=["network", "optimizer", "scheduler", "augment"])
        self.label_names = tuple(label_names)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = make_network(network, tuple(input_shape), len(self.label_names))
        self.average: AveragedModel | None = None
        if pseudo_confidence is not None:
            self.average = AveragedModel(
                self.network,
                multi_avg_fn=get_ema_multi_avg_fn(average_decay),  # type: ignore[no-untyped-call]
            )
        self._confidence, self._pseudo_weight = pseudo_confidence, pseudo_weight
        require_pictures(augment, input_shape)
        self._augment = augment
        self._compares = constants is not None
        constant_logits = (
            torch.zeros(len(self.label_names)) if constants is None else torch.tensor(constants)
        )
        self.register_buffer("constant_logits", constant_logits)
        self.register_buffer("departs", torch.ones(len(self.label_names), dtype=torch.bool))
        self.register_buffer(
            "cuts", torch.full((len(DECISION_METRICS), len(self.label_names)), 0.5)
        )
        self.optimize = optimize
        self._make_optimizer = optimizer
        self._make_scheduler = scheduler
        self._seed = seed
        self._evaluated = list[Batch]()
        self.test_report: dict[str, Any] = {}

    def forward(self, features: Tensor) -> Tensor:
        """Return logits ``[B, C]``, bent to the constant answer where a label does not depart."""
        return gate(self.network(features), self.departs, self.constant_logits)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the masked mean loss."""
        features, targets, mask = batch
        if self._augment:
            features = augmented(features, self._augment, self._seed, self.global_step)
        logits: Tensor = self.network(features)
        loss = masked_loss(logits, targets, mask)
        self.log("train_loss", loss, prog_bar=True, on_step=False, on_epoch=True)
        return (
            loss
            if self.average is None
            else loss + self._pseudo_weight * self._pseudo_loss(batch, logits)
        )

    def _cut(self, logits: Tensor) -> None:
        """Choose the cuts by the network's logits ``[N, C]`` of public samples."""
        probabilities = gate(logits.detach(), self.departs, self.constant_logits).sigmoid()
        self.cuts.copy_(torch.from_numpy(choose_thresholds(probabilities.cpu().numpy())))

    def _pseudo_loss(self, batch: Batch, logits: Tensor) -> Tensor:
        """Return the loss on unreleased entries against labels of the running average."""
        features, _, mask = batch
        assert self.average is not None and self._confidence is not None
        with torch.no_grad():
            guess = self.average(features).sigmoid()
        sure = (torch.maximum(guess, 1 - guess) >= self._confidence).to(logits.dtype)
        return masked_loss(logits, (guess > 0.5).to(logits.dtype), sure * (1 - mask))

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        """Update the running average."""
        if self.average is not None:
            self.average.update_parameters(self.network)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Seed the randomness by the step, so that resumed training has the same result."""
        torch.manual_seed(self._seed * 1_000_003 + self.global_step)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Evaluate the network on held-out released labels."""
        features, targets, mask = batch
        logits: Tensor = self.network(features)
        # weighted, so that an epoch's loss is the mean over all released entries
        self.log(
            "val_loss",
            masked_loss(logits, targets, mask),
            prog_bar=True,
            batch_size=int(mask.sum().clamp(min=1)),
        )
        self._evaluated.append((logits, targets, mask))

    def on_validation_epoch_end(self) -> None:
        """Log metrics on held-out released labels, and choose the labels that depart, and cuts."""
        if not self._evaluated:
            return
        logits, targets, mask = self._gathered()
        if self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            if self._compares:
                differs = (logits > 0).to(targets.dtype) - (self.constant_logits > 0).to(
                    targets.dtype
                )
                terms = (differs * (2 * targets - 1) * mask).double()
                gains, squares = terms.sum(dim=0), terms.square().sum(dim=0)
                self.departs.copy_(
                    torch.from_numpy(
                        labels_better_than_constant(gains.cpu().numpy(), squares.cpu().numpy())
                    )
                )
            self._cut(logits)
        # the metrics need labels, which noisy shares are not
        labeled = mask.all(dim=1) & ((targets == 0) | (targets == 1)).all(dim=1)
        if labeled.any():
            self._log_figures("val", logits[labeled].sigmoid(), targets[labeled])

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Evaluate against the true labels."""
        features, labels, mask = batch
        self._evaluated.append((self(features).sigmoid(), labels, mask))

    def on_test_epoch_end(self) -> None:
        """Log the summary, and keep the metrics of each label in ``test_report``."""
        probabilities, labels, _ = self._gathered()
        self.test_report = self._log_figures("test", probabilities, labels)

    def _gathered(self) -> Batch:
        """Return the batches that an evaluation collected in all processes, and forget them."""
        collected = [torch.cat(parts).detach() for parts in zip(*self._evaluated, strict=True)]
        self._evaluated.clear()
        gathered: Any = self.all_gather(collected)
        answers, targets, mask = (part.reshape(-1, len(self.label_names)) for part in gathered)
        return answers, targets, mask

    def _log_figures(self, prefix: str, probabilities: Tensor, truth: Tensor) -> dict[str, Any]:
        cuts = self.cuts.cpu().double().numpy()
        scores, labels = probabilities.cpu().numpy(), truth.cpu().numpy()
        figures = evaluate(scores, labels, self.label_names, cuts=cuts, optimize=self.optimize)
        self.log_dict(
            {
                f"{prefix}_{name}": value
                for name, value in figures.items()
                if isinstance(value, float)
            }
        )
        return figures

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return probabilities ``[B, C]``."""
        return self(batch[0]).sigmoid()

    def configure_optimizers(self) -> Any:
        """Make the optimizer, and the scheduler if there is one."""
        optimizer = self._make_optimizer(self.network.parameters())
        if self._make_scheduler is None:
            return optimizer
        return [optimizer], [self._make_scheduler(optimizer)]


def masked_loss(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of ``log(1 + exp(z)) - y z`` over the mask ``[B, C]``; 0 if it is empty.

    Targets are labels, or noisy shares of any size.
    """
    losses: Tensor = (softplus(logits) - targets * logits) * mask
    return losses.sum() / mask.sum().clamp(min=1)
