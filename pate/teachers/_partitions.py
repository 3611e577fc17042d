"""The partition of records among teachers, and the batches drawn from each teacher's own records.

PRIVATE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset

from pate._validation import UNKNOWN, IntArray
from pate.data._augmentation import augmented
from pate.data._partition import partition_records
from pate.data._records import Records
from pate.teachers._plan import TeacherPlan


@dataclass(frozen=True, eq=False)
class PartitionedRecords:
    """Records, and the rows on which each teacher is trained. PRIVATE.

    Attributes:
        records: the records of all partitions, and possibly others.
        rows: the rows of each teacher's records ``[n]``, by the teacher's number.
    """

    records: Records
    rows: Mapping[int, IntArray]

    @classmethod
    def by_key(cls, records: Records, plan: TeacherPlan, key: bytes) -> PartitionedRecords:
        """Assign each record to a teacher by a keyed hash of its unit.

        Raises like `Records.units`.
        """
        units = records.units(plan.unit)
        rows = partition_records(records.ids, units, num_teachers=plan.num_teachers, key=key)
        return cls(records, dict(enumerate(rows)))

    @property
    def sizes(self) -> list[int]:
        """The number of records of each teacher, in the order of ``rows``."""
        return [len(rows) for rows in self.rows.values()]

    def only(self, teachers: range) -> PartitionedRecords:
        """Return only the records of some teachers, without groups.

        Arrays are copied into one block; pictures are still read when they are needed.
        """
        chosen = [self.rows[teacher] for teacher in teachers]
        rows = np.concatenate(chosen)
        records = self.records
        subset = Records(
            features=records.features.select(rows),
            labels=records.labels[rows],
            ids=records.ids[rows],
        )
        stops = np.cumsum([len(partition) for partition in chosen])
        return PartitionedRecords(
            subset, dict(zip(teachers, np.split(np.arange(len(rows)), stops[:-1]), strict=True))
        )


def draw_batches(size: int, *, seed: int, teacher: int, steps: range, batch_size: int) -> IntArray:
    """Return positions within a partition of ``size`` records, ``[len(steps), batch_size]``.

    Passes over the partition follow each other without padding, each in an order that depends on
    (seed, teacher, pass). So every teacher takes the same number of steps of the same size,
    whatever its partition.
    """
    first, last = steps.start * batch_size, steps.stop * batch_size
    passes = range(first // size, -(-last // size))
    orders = [np.random.default_rng([seed, teacher, number]).permutation(size) for number in passes]
    start = first - passes.start * size
    return np.concatenate(orders)[start : start + last - first].reshape(len(steps), batch_size)


class ChunkBatches(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Batches of a chunk of teachers for a range of steps.

    An item is ``(features [chunk, batch, ...], labels [chunk, batch, C])``, both float32, NaN where
    a label is unknown. A teacher without records sees zeros. Pictures are augmented as the plan says.
    """

    def __init__(
        self, plan: TeacherPlan, data: PartitionedRecords, *, teachers: range, steps: range
    ) -> None:
        self._records = data.records
        self._plan, self._teachers, self._steps = plan, teachers, steps
        self._empty = np.array([len(data.rows[teacher]) == 0 for teacher in teachers])
        # [steps, chunk, batch] rows of the records
        self._rows = np.zeros((len(steps), len(teachers), plan.batch_size), dtype=np.int64)
        for place, teacher in enumerate(teachers):
            if len(rows := data.rows[teacher]):
                batches = draw_batches(
                    len(rows),
                    seed=plan.seed,
                    teacher=teacher,
                    steps=steps,
                    batch_size=plan.batch_size,
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
        if self._plan.augment:
            for place, teacher in enumerate(self._teachers):
                seeds = (self._plan.seed, teacher, self._steps[step])
                features[place] = augmented(
                    torch.from_numpy(features[place]), self._plan.augment, *seeds
                ).numpy()
        labels = self._records.labels[rows].astype(np.float32)
        labels[labels == UNKNOWN] = np.nan
        features[self._empty] = 0
        labels[self._empty] = 0
        return torch.from_numpy(features), torch.from_numpy(labels)
