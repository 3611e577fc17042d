"""What a student sees: public samples with the labels that were released of them, and the test set."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from pate.data.module import Features, Role
from pate.data.source import load_data
from pate.runs import LABEL, Run, read_labels
from pate.validation import expect, expect_count

Labels = Literal["released", "truth"]


class StudentData(pl.LightningDataModule):
    """The public samples of a run with their released labels, split for training and validation, and the test set.

    Args:
        run: the run's folder, in which ``pate label`` is finished.
        batch_size: samples per batch.
        val_fraction: share of the labelled samples held out for validation.
        labels: ``released`` for what the aggregator released. ``truth`` puts the true labels of the same queries in
            their place, for the reference that a private student is measured against: what comes of it is PRIVATE.
        num_workers: worker processes of the loaders.
        seed: seed of the split and of the order of the samples.
    """

    def __init__(
        self,
        run: Path,
        batch_size: int = 32,
        val_fraction: float = 0.1,
        labels: Labels = "released",
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        expect_count(1, batch_size=batch_size)
        expect_count(0, num_workers=num_workers, seed=seed)
        expect(0 <= val_fraction < 1, "0 <= val_fraction < 1", val_fraction=val_fraction)
        self.run = Run(Path(run))
        self.run.require(LABEL)
        self.batch_size, self.num_workers, self.seed = batch_size, num_workers, seed
        self.source = load_data(self.run)
        self.input_shape = self.source.input_shape
        self.label_names = self.source.label_names
        released = read_labels(self.run)
        public = self.source.records(Role.PUBLIC)
        rows = rows_of(released["ids"], public.ids)
        if labels == "truth":
            targets, mask = public.labels[rows], np.ones(released["mask"].shape, dtype=np.bool_)
        else:
            targets, mask = released["labels"], released["mask"]
            answered = mask.any(axis=1)
            rows, targets, mask = rows[answered], targets[answered], mask[answered]
        expect(len(rows) > 0, "at least one query that was answered", answered=len(rows))
        order = np.random.default_rng(seed).permutation(len(rows))
        held = order[: int(val_fraction * len(rows))]
        kept = order[len(held) :]
        self._train = _Samples(public.features, rows[kept], targets[kept], mask[kept])
        self._val = _Samples(public.features, rows[held], targets[held], mask[held])

    def train_dataloader(self) -> DataLoader[Any]:
        """Labelled samples, in a new order every epoch that depends on the seed and the epoch alone."""
        return self._loader(self._train, sampler=_Shuffle(len(self._train), self.seed))

    def val_dataloader(self) -> DataLoader[Any]:
        """Labelled samples held out for validation."""
        return self._loader(self._val)

    def test_dataloader(self) -> DataLoader[Any]:
        """The test set with its truth."""
        test = self.source.records(Role.TEST)
        rows = np.arange(len(test))
        return self._loader(_Samples(test.features, rows, test.labels, np.ones(test.labels.shape, dtype=np.bool_)))

    def predict_dataloader(self) -> DataLoader[Any]:
        """The test set."""
        return self.test_dataloader()

    def _loader(self, samples: Dataset[Any], sampler: Sampler[int] | None = None) -> DataLoader[Any]:
        size = self.batch_size if sampler is not None else max(self.batch_size, 256)
        return DataLoader(samples, batch_size=size, sampler=sampler, num_workers=self.num_workers)


def rows_of(wanted: NDArray[np.str_], ids: NDArray[np.str_]) -> NDArray[np.int64]:
    """Return the rows of ``ids`` ``[N]`` that hold ``wanted`` ``[Q]``."""
    order = np.argsort(ids)
    rows = order[np.searchsorted(ids, wanted, sorter=order).clip(max=len(ids) - 1)]
    missing = wanted[ids[rows] != wanted]
    expect(missing.size == 0, "labelled samples among the public records", missing=missing[:3].tolist())
    return rows


class _Samples(Dataset[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]):
    def __init__(
        self,
        features: Features,
        rows: NDArray[np.int64],
        labels: NDArray[np.uint8],
        mask: NDArray[np.bool_],
    ) -> None:
        self._features, self._rows, self._labels, self._mask = features, rows, labels, mask

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, item: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        features, labels, mask = self.__getitems__([item])[0]
        return features, labels, mask

    def __getitems__(self, items: list[int]) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        features = torch.from_numpy(np.ascontiguousarray(self._features[self._rows[items]]))
        labels = torch.from_numpy(self._labels[items].astype(np.float32))
        mask = torch.from_numpy(self._mask[items].astype(np.float32))
        return list(zip(features, labels, mask, strict=True))


class _Shuffle(Sampler[int]):
    """A new order every epoch. Lightning says which epoch it is."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed, self._epoch = size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Any:
        return iter(np.random.default_rng([self._seed, self._epoch]).permutation(self._size).tolist())
