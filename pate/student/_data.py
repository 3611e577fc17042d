"""The data of a student: public samples with their released labels, and the test set."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from pate._data_file import load_data
from pate._linear import constant_logits
from pate._runs import LABEL, Run
from pate._runs.released import ReleasedLabels
from pate._validation import BoolArray, IntArray, StrArray, require, require_count
from pate.data import DataSource, Features, Role
from pate.data._checks import known_truth
from pate.student._targets import Labels, noise_of, queried, targets_of


class StudentData(pl.LightningDataModule):
    """The public samples of a run with released labels, in two parts, and the test set.

    One part of the samples is for training, the other for validation.

    Args:
        run: the run's folder, in which ``pate label`` is finished.
        batch_size: samples per batch.
        val_fraction: share of the labeled samples held out for validation.
        labels: ``released`` for the released labels; ``truth`` for the true labels of the same
            queries, from which the reference student learns: everything computed from these is
            PRIVATE.
        num_workers: worker processes of the loaders.
        seed: seed of the split and of the order of the samples.
        soft: whether to learn from noisy counts in place of labels, if the aggregator released
            them: as shares of the teachers, which may lie below 0 or above 1. Answers of a linear
            model are clipped to [0, 1].
        unlabelled: number of unlabeled samples shown with each labeled one, drawn anew every
            epoch from the rest of the public pool and from the queries that were not answered. A
            student with ``pseudo_confidence`` learns from them.
        predict_on: ``test`` or ``public``, the samples for which ``pate student predict`` writes
            predictions.

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
        labels: Labels = "released",
        num_workers: int = 0,
        seed: int = 0,
        soft: bool = True,
        unlabelled: int = 0,
        predict_on: Literal["test", "public"] = "test",
    ) -> None:
        super().__init__()
        require_count(1, batch_size=batch_size)
        require_count(0, num_workers=num_workers, seed=seed, unlabelled=unlabelled)
        require(0 <= val_fraction < 1, "0 <= val_fraction < 1", val_fraction=val_fraction)
        self.run = Run(Path(run))
        self.batch_size, self.num_workers = batch_size, num_workers
        self.source, released = self._read()
        self.input_shape = self.source.input_shape
        self.label_names = self.source.label_names
        public, rows = queried(self.source, released)
        if labels == "truth":
            right, mask = known_truth(public.labels[rows])
            targets, noise_std = right.astype(np.float32), None
        else:
            answered, noise_std = released.answered, noise_of(released, soft=soft)
            targets = targets_of(released, soft=soft)[answered]
            rows, mask = rows[answered], released.mask[answered]
        self.constants = tuple(constant_logits(targets, mask, noise_std=noise_std).tolist())
        others = (
            np.setdiff1d(np.arange(len(public)), rows)
            if unlabelled
            else np.zeros(0, dtype=np.int64)
        )
        require(
            not unlabelled or others.size > 0,
            "public samples without labels for `data.unlabelled`",
            samples=others.size,
        )
        samples = _Samples(public.features, rows, targets, mask)
        order = np.random.default_rng(seed).permutation(len(samples))
        self.num_held_out = int(val_fraction * len(samples))
        held_out, training = np.split(order, [self.num_held_out])
        self._val = samples.only(held_out)
        self._train = samples.only(training).with_blank(others)
        self._order = _Shuffle(
            len(training), seed, others=others.size, extra=unlabelled * len(training)
        )
        self._role = Role(predict_on)

    def _read(self) -> tuple[DataSource, ReleasedLabels]:
        """Return the records of the run, and its labels."""
        self.run.require_finished(LABEL)
        return load_data(self.run), ReleasedLabels.load(self.run.root)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the labeled samples, in an order that depends only on seed and epoch."""
        return self._loader(self._train, sampler=self._order)

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the labeled samples held out for validation."""
        return self._loader(self._val)

    def test_dataloader(self) -> DataLoader[Any]:
        """Return the test set with its true labels."""
        return self._truth(Role.TEST)

    def predict_dataloader(self) -> DataLoader[Any]:
        """Return the samples of ``predict_on``."""
        return self._truth(self._role)

    @property
    def predict_ids(self) -> StrArray:
        """The ids of the samples of `predict_dataloader`, in its order."""
        return self.source.records(self._role).ids

    def _truth(self, role: Role) -> DataLoader[Any]:
        records = self.source.records(role)
        _, mask = known_truth(records.labels)
        return self._loader(
            _Samples(records.features, np.arange(len(records)), records.labels, mask)
        )

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

    def with_blank(self, rows: IntArray) -> _Samples:
        """Return these samples followed by unlabeled ones of further ``rows``."""
        blank = np.zeros((len(rows), self._labels.shape[1]))
        return _Samples(
            self._features,
            np.concatenate((self._rows, rows)),
            np.concatenate((self._labels, blank)),
            np.concatenate((self._mask, blank > 0)),
        )

    def __getitem__(self, item: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        features, labels, mask = self.__getitems__([item])[0]
        return features, labels, mask

    def __getitems__(
        self, items: list[int]
    ) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        features = torch.from_numpy(np.ascontiguousarray(self._features[self._rows[items]]))
        labels = torch.from_numpy(self._labels[items].astype(np.float32))
        mask = torch.from_numpy(self._mask[items].astype(np.float32))
        return list(zip(features, labels, mask, strict=True))


class _Shuffle(Sampler[int]):
    """A new order of ``size`` samples every epoch, with ``extra`` of the ``others`` after them.

    Lightning sets the epoch.
    """

    def __init__(self, size: int, seed: int, *, others: int = 0, extra: int = 0) -> None:
        self._size, self._seed, self._epoch = size, seed, 0
        self._others, self._extra = others, extra

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return self._size + self._extra

    def __iter__(self) -> Any:
        generator = np.random.default_rng([self._seed, self._epoch])
        order = generator.permutation(self._size)
        if self._extra:
            drawn = self._size + generator.integers(self._others, size=self._extra)
            order = generator.permutation(np.concatenate((order, drawn)))
        return iter(order.tolist())
