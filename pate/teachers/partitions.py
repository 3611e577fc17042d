"""The records of each teacher: its own partition and no others. PRIVATE."""

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
    """Records, and the rows on which each teacher is trained. PRIVATE.

    Attributes:
        records: the records of all partitions, and possibly others.
        rows: the rows of each teacher's records ``[n]``, by the teacher's number.
    """

    records: Records
    rows: Mapping[int, IntArray]

    @classmethod
    def by_key(cls, records: Records, plan: TeacherPlan, key: bytes) -> PartitionedRecords:
        """Assign each record to a teacher by a keyed hash of its unit. Raises like `units_of`."""
        units = units_of(records, plan)
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
        own = Records(features=records.features.select(rows), labels=records.labels[rows], ids=records.ids[rows])
        stops = np.cumsum([len(each) for each in chosen])
        return PartitionedRecords(own, dict(zip(teachers, np.split(np.arange(len(rows)), stops[:-1]), strict=True)))


def units_of(records: Records, plan: TeacherPlan) -> StrArray:
    """Return the unit ``[N]`` by which each record is assigned: its own id, or its group if groups are protected.

    Raises ``ValueError`` if groups are protected and the records have none.
    """
    if plan.unit == "record":
        return records.ids
    where = "groups of the private records (`group` in an .npz, identity_CelebA.txt in a folder)"
    expect(records.groups is not None, where, unit=plan.unit)
    assert records.groups is not None
    return records.groups
