"""Which teacher a record goes to: a keyed hash of its own id, so that no record moves another."""

import hashlib
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from pate.typing import IntArray, StrArray
from pate.validation import expect, expect_count


def assign_teachers(units: Iterable[str], *, num_teachers: int, key: bytes) -> IntArray:
    """Return the teacher of each record, ``[N]`` integers in ``[0, num_teachers)``.

    It is a keyed BLAKE2b of 64 bits modulo ``num_teachers``: even to one part in 2^64 / num_teachers.

    Args:
        units: what is assigned: the records' ids, or their groups where a person has several records.
        num_teachers: the number of teachers, at least 2.
        key: a secret of 16 to 64 bytes. Without it nobody can tell which teacher saw a record.

    Raises:
        ValueError: if ``num_teachers`` or the length of the key is out of range.
    """
    expect_count(2, num_teachers=num_teachers)
    expect(16 <= len(key) <= 64, "a key of 16 to 64 bytes", length=len(key))
    teachers = (
        int.from_bytes(hashlib.blake2b(unit.encode(), digest_size=8, key=key).digest(), "big") % num_teachers
        for unit in units
    )
    return np.fromiter(teachers, dtype=np.int64)


def partition_records(ids: StrArray, units: StrArray, *, num_teachers: int, key: bytes) -> list[IntArray]:
    """Return the rows of each teacher's records, sorted by id so that the order of the source does not matter.

    Args:
        ids: of the records, ``[N]``.
        units: what is assigned, ``[N]``; see `assign_teachers`.
        num_teachers: the number of teachers.
        key: the secret of the partition.
    """
    teachers = assign_teachers((str(unit) for unit in units), num_teachers=num_teachers, key=key)
    order = np.lexsort((ids, teachers))
    bounds = np.searchsorted(teachers[order], np.arange(num_teachers + 1))
    return [order[start:stop] for start, stop in pairwise(bounds)]
