"""Which records each teacher sees: its own partition, and of a chunk's records no others. PRIVATE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pate.data.partition import partition_records
from pate.data.records import Records
from pate.teachers.plan import TeacherPlan
from pate.typing import IntArray, StrArray
from pate.validation import expect


@dataclass(frozen=True)
class PartitionedRecords:
    """Records, and the rows of them that each teacher is trained on. PRIVATE.

    Attributes:
        records: the records of all partitions, and perhaps others.
        rows: the rows of a teacher's records ``[n]``, by the teacher's number.
    """

    records: Records
    rows: Mapping[int, IntArray]

    @classmethod
    def by_key(cls, records: Records, plan: TeacherPlan, key: bytes) -> PartitionedRecords:
        """Give each record to the teacher that a keyed hash of its unit names. Raises like `units_of`."""
        units = units_of(records, plan)
        rows = partition_records(records.ids, units, num_teachers=plan.num_teachers, key=key)
        return cls(records, dict(enumerate(rows)))

    @property
    def sizes(self) -> list[int]:
        """How many records each teacher has, in the order of ``rows``."""
        return [len(rows) for rows in self.rows.values()]

    def only(self, teachers: range) -> PartitionedRecords:
        """Return the records of some teachers alone, without groups.

        Arrays are copied into one block, pictures are still read when they are asked for.
        """
        chosen = [self.rows[teacher] for teacher in teachers]
        rows = np.concatenate(chosen)
        records = self.records
        own = Records(features=records.features.select(rows), labels=records.labels[rows], ids=records.ids[rows])
        stops = np.cumsum([len(each) for each in chosen])
        return PartitionedRecords(own, dict(zip(teachers, np.split(np.arange(len(rows)), stops[:-1]), strict=True)))


def units_of(records: Records, plan: TeacherPlan) -> StrArray:
    """Return what each record is assigned by, ``[N]``: its own id, or its group where groups are protected.

    Raises ``ValueError`` where there are no groups.
    """
    if plan.unit == "record":
        return records.ids
    where = "groups of the private records (`group` in an .npz, identity_CelebA.txt in a folder)"
    expect(records.groups is not None, where, unit=plan.unit)
    assert records.groups is not None
    return records.groups
