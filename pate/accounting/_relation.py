"""The neighboring relations under which a cost is stated."""

from __future__ import annotations

from enum import StrEnum


class NeighboringRelation(StrEnum):
    """The pairs of data sets (neighbors) that the guarantee makes hard to tell apart.

    Under both relations the number of teachers is nominal: a configured and published constant,
    never measured. A teacher that takes no part casts a row of zeros.

    ``REPLACE_RECORD``: one training record (or one group of records, if teachers are assigned by
    group) is added, removed or altered. One teacher may then vote differently in any way, and each
    vote count moves by -1, 0 or 1. An altered record keeps its id (or group), by which its teacher
    is found. To exchange a record for one of another id is to remove one and to add one: two
    teachers may vote differently, and every window is twice as wide (`Event.for_group_size`). A
    Gaussian release of epsilon 1.99 at delta 1e-5 then has epsilon 4.38.

    ``ADD_REMOVE_TEACHER``: one teacher takes part or does not. Every vote count moves by 0 or 1,
    all in the same direction; thresholds and sentinels that depend on the number of teachers do not
    move.
    """

    REPLACE_RECORD = "replace_record"
    ADD_REMOVE_TEACHER = "add_remove_teacher"

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    @property
    def score_range(self) -> int:
        """Width of the window within which the counts of one query move together, in votes.

        Sorted counts move within the same window, so a gap between two of them moves by at most
        this much in either direction (a window twice as wide).
        """
        return 2 if self is NeighboringRelation.REPLACE_RECORD else 1
