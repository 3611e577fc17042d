"""Which records a teacher sees at which step: a function of the seed, the teacher and its own partition alone."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from pate.data.records import Records

IntArray = NDArray[np.int64]


def draw_batches(size: int, *, seed: int, teacher: int, steps: range, batch_size: int) -> IntArray:
    """Return positions within a partition of ``size`` records, ``[len(steps), batch_size]``.

    The partition is gone through in passes, each in an order that depends only on (seed, teacher, pass), one after the
    other without padding. So every teacher takes the same number of steps of the same size, whatever its partition.
    """
    first, last = steps.start * batch_size, steps.stop * batch_size
    passes = range(first // size, -(-last // size))
    orders = [np.random.default_rng([seed, teacher, number]).permutation(size) for number in passes]
    start = first - passes.start * size
    return np.concatenate(orders)[start : start + last - first].reshape(len(steps), batch_size)


def own_records(records: Records, partitions: list[IntArray]) -> tuple[Records, list[IntArray]]:
    """Return the records of some partitions alone, without groups, and the partitions as rows of those.

    Arrays are copied into one block, pictures are still read when they are asked for.
    """
    rows = np.concatenate(partitions)
    own = Records(features=records.features.select(rows), labels=records.labels[rows], ids=records.ids[rows])
    stops = np.cumsum([len(partition) for partition in partitions])
    return own, np.split(np.arange(len(rows)), stops[:-1])


class ChunkBatches(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Batches of a chunk of teachers for a range of steps.

    An item is ``(features [chunk, batch, ...], labels [chunk, batch, C])``. A teacher without records sees zeros.
    """

    def __init__(
        self,
        records: Records,
        partitions: list[IntArray],
        *,
        teachers: range,
        steps: range,
        batch_size: int,
        seed: int,
    ) -> None:
        self._records = records
        self._empty = np.array([len(partition) == 0 for partition in partitions])
        # [steps, chunk, batch] rows of the records
        self._rows = np.zeros((len(steps), len(teachers), batch_size), dtype=np.int64)
        for place, (teacher, partition) in enumerate(zip(teachers, partitions, strict=True)):
            if len(partition):
                batches = draw_batches(len(partition), seed=seed, teacher=teacher, steps=steps, batch_size=batch_size)
                self._rows[:, place] = partition[batches]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self._rows[step]
        features = np.ascontiguousarray(self._records.features[rows])
        labels = self._records.labels[rows].astype(np.float32)
        features[self._empty] = 0
        labels[self._empty] = 0
        return torch.from_numpy(features), torch.from_numpy(labels)
