"""The training of a student by Lightning.

Its data are public samples with their released labels, and the test set. Its loss leaves out labels
that were not released. One bar counts the steps of a whole stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ProgressBar
from pytorch_lightning.core.hooks import CheckpointHooks, ModelHooks
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset, Sampler

from pate._core.validation import (
    BoolArray,
    IntArray,
    require,
    require_count,
    stage_bar,
)
from pate._labeling.data.records import Features, Role, known_truth
from pate._labeling.linear import constant_logits, labels_better_than_constant
from pate._labeling.runs.released import (
    DECISION_METRICS,
    Metric,
    ReleasedLabels,
    choose_thresholds,
    evaluate,
    noise_of,
    queried,
    targets_of,
)
from pate._labeling.runs.run import LABEL, Run, load_data
from pate._networks.settings import augmented, make_network, require_pictures
from pate._networks.student.answers import gate


class StudentData(pl.LightningDataModule):
    """The public samples of a run with released labels, in two parts, and the test set.

    One part of the samples is for training, the other for validation.

    Args:
        run: the run's folder, with ``pate label`` finished.
        batch_size: samples per batch.
        val_fraction: share of the labeled samples held out for validation.
        num_workers: worker processes of the loaders.
        seed: seed of the split and of the order of the samples.
        soft: whether to learn from noisy counts in place of labels, if the aggregator released
            them: as shares of the teachers, which may lie below 0 or above 1. Answers of a linear
            model are clipped to [0, 1].
        raw: whether the student sees the samples as they come, such as pixels, and not through the
            feature map by which teachers see records.

    Attributes:
        constants: ``C`` logits of the constant answer, from all targets.

    Raises:
        ValueError: if a number is outside its range, the labels are missing, or there is nothing to
            learn from.
    """

    def __init__(
        self,
        run: Path,
        batch_size: int = 32,
        val_fraction: float = 0.1,
        num_workers: int = 0,
        seed: int = 0,
        soft: bool = True,
        raw: bool = False,
    ) -> None:
        super().__init__()
        require_count(1, batch_size=batch_size)
        require_count(0, num_workers=num_workers, seed=seed)
        require(0 <= val_fraction < 1, "0 <= val_fraction < 1", val_fraction=val_fraction)
        self.run = run if isinstance(run, Run) else Run(Path(run))
        self.batch_size, self.num_workers = batch_size, num_workers
        self.run.require_finished(LABEL)
        source, released = load_data(self.run), ReleasedLabels.load(self.run.root)
        self.source = source.unmapped() if raw else source
        self.input_shape = self.source.input_shape
        self.label_names = self.source.label_names
        public, rows = queried(self.source, released)
        answered, noise_std = released.answered, noise_of(released, soft=soft)
        targets = targets_of(released, soft=soft)[answered]
        rows, mask = rows[answered], released.mask[answered]
        self.constants = tuple(constant_logits(targets, mask, noise_std=noise_std).tolist())
        samples = _Samples(public.features, rows, targets, mask)
        order = np.random.default_rng(seed).permutation(len(samples))
        self.num_held_out = int(val_fraction * len(samples))
        held_out, training = np.split(order, [self.num_held_out])
        self._val = samples.only(held_out)
        self._train = samples.only(training)
        self._order = _Shuffle(len(training), seed)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the labeled samples, in an order that depends only on seed and epoch."""
        return self._loader(self._train, sampler=self._order)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the labeled samples held out for validation."""
        return self._loader(self._val)

    def test_dataloader(self) -> DataLoader[Any]:
        """Return the test set with its true labels."""
        records = self.source.records(Role.TEST)
        known = known_truth(records.labels)[1]
        rows = np.arange(len(records))
        return self._loader(_Samples(records.features, rows, records.labels, known))

    def _loader(
        self, samples: Dataset[Any], sampler: Sampler[int] | None = None
    ) -> DataLoader[Any]:
        size = self.batch_size if sampler is not None else max(self.batch_size, 256)
        return DataLoader(samples, batch_size=size, sampler=sampler, num_workers=self.num_workers)


class _Samples(Dataset[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]):
    def __init__(
        self, features: Features, rows: IntArray, labels: NDArray[Any], mask: BoolArray
    ) -> None:
        self._features, self._rows, self._labels, self._mask = features, rows, labels, mask

    def __len__(self) -> int:
        return len(self._rows)

    def only(self, chosen: IntArray) -> _Samples:
        """Return the ``chosen`` samples."""
        return _Samples(
            self._features, self._rows[chosen], self._labels[chosen], self._mask[chosen]
        )

    def __getitems__(
        self, items: list[int]
    ) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        features = torch.from_numpy(np.ascontiguousarray(self._features[self._rows[items]]))
        labels = torch.from_numpy(self._labels[items].astype(np.float32))
        mask = torch.from_numpy(self._mask[items].astype(np.float32))
        return list(zip(features, labels, mask, strict=True))


class _Shuffle(Sampler[int]):
    """A new order of ``size`` samples every epoch, which Lightning sets."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed, self._epoch = size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Any:
        generator = np.random.default_rng([self._seed, self._epoch])
        return iter(generator.permutation(self._size).tolist())


Batch = tuple[Tensor, Tensor, Tensor]

_CHAINED = (
    *("setup", "teardown"),
    *(name for kind in (ModelHooks, CheckpointHooks) for name in vars(kind) if name[:3] == "on_"),
)
_REPLACED = (
    *("backward", "configure_gradient_clipping", "lr_scheduler_step"),
    *("optimizer_step", "optimizer_zero_grad"),
)
"""Hooks of a network that is a LightningModule: called after the student's, or in their place."""


class Student(pl.LightningModule):
    """A multi-label classifier trained on released labels.

    The network is trained by gradient descent. Its answers to held-out samples are compared with
    the constant answer from the release. The network decides the labels that it answers better, as
    many as are better together. The constant answer decides all others, and the network ranks their
    samples. Without held-out samples nothing is compared.

    A label is given if its probability is above its cut. Each metric that decisions can optimize
    has cuts of its own, chosen from the student's probabilities on the held-out samples, at no
    cost. They require such samples.

    A batch is ``(features [B, ...], targets [B, C], mask [B, C])``; entries outside the mask do not
    enter the loss. The loss ``log(1 + exp(z)) - y z`` of a logit z is linear in its target y. A
    target is a label, or a share of the teachers with Gaussian noise, which may be below 0 or above
    1. The noise has mean 0, and so does its effect on the loss and the gradient, in training and
    validation. ``val_loss`` compares models without a private label. The effect of the noise
    shrinks with the number of samples, and weight decay limits it.

    A network that is a LightningModule trains by its own ``training_step`` on such batches,
    ``configure_optimizers`` and hooks, where it has them. Its ``validation_step`` and ``test_step``
    are for metrics of its own. A ``val_loss`` that it logs selects the student.

    Args:
        network: makes the network for an input shape and a number of labels.
        optimizer: makes the optimizer of the parameters. None for AdamW.
        scheduler: makes a learning-rate scheduler, stepped every epoch. None for a constant rate.
        input_shape: shape of one sample's features, linked from the data.
        label_names: names of the labels, linked from the data.
        seed: seed of the initial weights and of randomness in training, such as dropout.
        augment: transforms of pictures during training, such as classes of
            ``torchvision.transforms.v2``, applied to each picture separately.
        constants: logits of the constant answer for each label, linked from the data. None to
            compare with none.
        optimize: the figure that decisions serve.

    Attributes:
        cuts: ``[3, C]``, in every checkpoint, for each of `DECISION_METRICS` the probability above
            which a label is given.
        departs: ``[C]``, in every checkpoint, whether the network decides a label. The others stay
            on the side of ``constant_logits``.

    Raises:
        ValueError: on a setting that the network's own methods would not read.
    """

    def __init__(
        self,
        network: Callable[[tuple[int, ...], int], nn.Module],
        optimizer: Callable[[Any], Optimizer] | None = None,
        scheduler: Callable[[Optimizer], LRScheduler] | None = None,
        input_shape: tuple[int, ...] = (),
        label_names: tuple[str, ...] = (),
        seed: int = 0,
        constants: Sequence[float] | None = None,
        augment: list[nn.Module] | None = None,
        optimize: Metric = "accuracy",
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["network", "optimizer", "scheduler", "augment"])
        self.label_names = tuple(label_names)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            # save_hyperparameters of a network would save those of the student that Lightning makes
            self.network = Context().run(
                make_network, network, tuple(input_shape), len(self.label_names)
            )
        require_pictures(augment, input_shape)
        self._augment = augment
        self._compares = constants is not None
        num_labels = len(self.label_names)
        self.constant_logits = nn.Buffer(
            torch.zeros(num_labels) if constants is None else torch.tensor(constants)
        )
        self.departs = nn.Buffer(torch.ones(num_labels, dtype=torch.bool))
        self.cuts = nn.Buffer(torch.full((len(DECISION_METRICS), num_labels), 0.5))
        self.optimize = optimize
        self._make_network = network
        self._make_optimizer = optimizer
        self._make_scheduler = scheduler
        self._seed = seed
        self._evaluated = list[Batch]()
        self.test_report: dict[str, Any] = {}
        self._logged = set[str]()
        if isinstance(self.network, LightningModule):
            require(
                self._own("configure_optimizers") is None or not (optimizer or scheduler),
                f"no optimizer or scheduler: {type(self.network).__name__}.configure_optimizers",
                optimizer=optimizer,
                scheduler=scheduler,
            )
            self._follow(self.network)

    def _follow(self, network: LightningModule) -> None:
        """Let a network log by the student, and be called at its hooks."""
        network.log = self._log_for_network  # type: ignore[method-assign]
        self.automatic_optimization = network.automatic_optimization
        for name in (*_CHAINED, *_REPLACED):
            own = self._own(name)
            if own is not None:
                chained = partial(_both, getattr(self, name), own)
                setattr(self, name, chained if name in _CHAINED else own)

    def _own(self, name: str) -> Callable[..., Any] | None:
        """Return a method that the network has as a LightningModule. None if it has none."""
        has = is_overridden(name, self.network, LightningModule)
        return getattr(self.network, name) if has else None

    def _own_step(self, name: str, *batch: Any) -> Any:
        """Take a step of the network, with as many of (batch, number) as it has arguments."""
        own = self._own(name)
        return None if own is None else own(*batch[: len(signature(own).parameters)])

    def _log_for_network(self, name: str, *args: Any, **options: Any) -> None:
        self._logged.add(name)
        self.log(name, *args, **options)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits ``[B, C]``, bent to the constant answer where a label does not depart."""
        return gate(self.network(features), self.departs, self.constant_logits)

    def training_step(self, batch: Batch, batch_idx: int) -> Any:
        """Return the masked mean loss, or what the network's own step returns."""
        features, targets, mask = batch
        if self._augment:
            features = augmented(features, self._augment, self._seed, self.global_step)
        if self._own("training_step") is not None:
            return self._own_step("training_step", (features, targets, mask), batch_idx)
        logits: Tensor = self.network(features)
        loss = masked_loss(logits, targets, mask)
        self.log("train_loss", loss, prog_bar=True, on_step=False, on_epoch=True)
        return loss

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Seed the randomness by the step, so that resumed training has the same result."""
        torch.manual_seed(self._seed * 1_000_003 + self.global_step)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Evaluate the network on held-out released labels."""
        features, targets, mask = batch
        logits: Tensor = self.network(features)
        self._own_step("validation_step", batch, batch_idx)
        if "val_loss" not in self._logged:
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
            probabilities = gate(logits, self.departs, self.constant_logits).sigmoid()
            self.cuts.copy_(
                torch.from_numpy(choose_thresholds(probabilities.cpu().float().numpy()))
            )
        # the metrics need labels, which noisy shares are not
        labeled = mask.all(dim=1) & ((targets == 0) | (targets == 1)).all(dim=1)
        if labeled.any():
            self._log_figures("val", logits[labeled].sigmoid(), targets[labeled])

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Evaluate against the true labels."""
        features, labels, mask = batch
        self._own_step("test_step", batch, batch_idx)
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
        # numpy has no bfloat16
        scores, labels = probabilities.cpu().float().numpy(), truth.cpu().float().numpy()
        figures = evaluate(scores, labels, self.label_names, cuts=cuts, optimize=self.optimize)
        self.log_dict(
            {
                f"{prefix}_{name}": value
                for name, value in figures.items()
                if isinstance(value, float)
            }
        )
        return figures

    def configure_optimizers(self) -> Any:
        """Make the optimizer, and the scheduler if there is one, or what the network makes."""
        own = self._own("configure_optimizers")
        if own is not None:
            return own()
        optimizer = (self._make_optimizer or torch.optim.AdamW)(self.network.parameters())
        schedule = self._make_scheduler
        return optimizer if schedule is None else ([optimizer], [schedule(optimizer)])


def _both(first: Callable[..., Any], second: Callable[..., Any], *args: Any, **options: Any) -> Any:
    first(*args, **options)
    return second(*args, **options)


def masked_loss(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of ``log(1 + exp(z)) - y z`` over the mask ``[B, C]``; 0 if it is empty.

    Targets are labels, or noisy shares of any size.

    >>> import torch
    >>> logits, labels = torch.tensor([[0.0, 4.0]]), torch.tensor([[1.0, 0.0]])
    >>> round(float(masked_loss(logits, labels, torch.tensor([[1.0, 0.0]]))), 3)
    0.693

    Returns:
        a scalar.
    """
    losses: Tensor = (softplus(logits) - targets * logits) * mask
    return losses.sum() / mask.sum().clamp(min=1)


class StageBar(ProgressBar):
    """A bar over all steps of a training."""

    _shown = True

    def disable(self) -> None:
        """Show nothing from now on, as Lightning asks of all processes but one."""
        self._shown = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin with the steps that a checkpoint had done."""
        total = trainer.estimated_stepping_batches
        self._bar = stage_bar(
            int(total) if math.isfinite(total) else None,
            "student fit",
            unit="step",
            initial=trainer.global_step,
            shown=self._shown,
        )

    def on_train_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        """Advance by the steps of a batch."""
        self._bar.update(trainer.global_step - self._bar.n)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Name the epoch, and the loss on held-out samples if there are any."""
        loss = trainer.callback_metrics.get("val_loss")
        ending = "" if loss is None else f", val_loss {loss:.4f}"
        self._bar.set_postfix_str(f"epoch {trainer.current_epoch + 1}{ending}", refresh=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the bar, which is full where training stopped early, too."""
        self._bar.total = self._bar.n
        self._bar.close()
