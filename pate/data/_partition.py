"""Assignment of records to teachers by a keyed hash of their ids: no record affects another."""

import hashlib
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from pate._validation import IntArray, StrArray, require, require_count


def assign_teachers(units: Iterable[str], *, num_teachers: int, key: bytes) -> IntArray:
    """Return the teacher of each record, ``[N]`` integers in ``[0, num_teachers)``.

    The teacher is a keyed 64-bit BLAKE2b hash modulo ``num_teachers``: uniform to one part in 2^64
    / num_teachers.

    Args:
        units: the units of assignment: the records' ids, or their groups if a person has several
            records.
        num_teachers: the number of teachers, at least 2.
        key: a secret of 16 to 64 bytes. Without it no one can tell which teacher saw a record.

    Raises:
        ValueError: if ``num_teachers`` or the length of the key is out of range.
    """
    require_count(2, num_teachers=num_teachers)
    require(16 <= len(key) <= 64, "a key of 16 to 64 bytes", length=len(key))
    teachers = (
        int.from_bytes(hashlib.blake2b(unit.encode(), digest_size=8, key=key).digest(), "big")
        % num_teachers
        for unit in units
    )
    return np.fromiter(teachers, dtype=np.int64)


def partition_records(
    ids: StrArray, units: StrArray, *, num_teachers: int, key: bytes
) -> list[IntArray]:
    """Return the rows of each teacher's records, sorted by id and not by the source's order.

    Args:
        ids: ids of the records, ``[N]``.
        units: units of assignment, ``[N]``; see `assign_teachers`.
        num_teachers: the number of teachers.
        key: the secret of the partition.
    """
    teachers = assign_teachers((str(unit) for unit in units), num_teachers=num_teachers, key=key)
    order = np.lexsort((ids, teachers))
    bounds = np.searchsorted(teachers[order], np.arange(num_teachers + 1))
    return [order[start:stop] for start, stop in pairwise(bounds)]
