"""The batches of a teacher at each step: a function of the seed, the teacher and its own partition alone."""

import numpy as np
import torch
from torch.utils.data import Dataset

from pate.teachers.partitions import PartitionedRecords
from pate.teachers.plan import TeacherPlan
from pate.typing import IntArray


def draw_batches(size: int, *, seed: int, teacher: int, steps: range, batch_size: int) -> IntArray:
    """Return positions within a partition of ``size`` records, ``[len(steps), batch_size]``.

    The partition is traversed in passes, one after the other without padding, each in an order that depends only on
    (seed, teacher, pass). So every teacher takes the same number of steps of the same size, whatever its partition.
    """
    first, last = steps.start * batch_size, steps.stop * batch_size
    passes = range(first // size, -(-last // size))
    orders = [np.random.default_rng([seed, teacher, number]).permutation(size) for number in passes]
    start = first - passes.start * size
    return np.concatenate(orders)[start : start + last - first].reshape(len(steps), batch_size)


class ChunkBatches(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Batches of a chunk of teachers for a range of steps.

    An item is ``(features [chunk, batch, ...], labels [chunk, batch, C])``, both float32. A teacher without records
    sees zeros.
    """

    def __init__(self, plan: TeacherPlan, data: PartitionedRecords, *, teachers: range, steps: range) -> None:
        self._records = data.records
        self._empty = np.array([len(data.rows[teacher]) == 0 for teacher in teachers])
        # [steps, chunk, batch] rows of the records
        self._rows = np.zeros((len(steps), len(teachers), plan.batch_size), dtype=np.int64)
        for place, teacher in enumerate(teachers):
            if len(rows := data.rows[teacher]):
                batches = draw_batches(
                    len(rows), seed=plan.seed, teacher=teacher, steps=steps, batch_size=plan.batch_size
                )
                self._rows[:, place] = rows[batches]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self._rows[step]
        if self._empty.all():
            shape, num_labels = self._records.features.shape[1:], self._records.labels.shape[1]
            return torch.zeros(*rows.shape, *shape), torch.zeros(*rows.shape, num_labels)
        features = np.ascontiguousarray(self._records.features[rows])
        labels = self._records.labels[rows].astype(np.float32)
        features[self._empty] = 0
        labels[self._empty] = 0
        return torch.from_numpy(features), torch.from_numpy(labels)
