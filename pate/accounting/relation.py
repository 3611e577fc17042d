"""The neighboring relations under which a cost is stated."""

from enum import StrEnum


class NeighboringRelation(StrEnum):
    """Which two data sets the guarantee makes hard to tell apart.

    The number of teachers is a nominal public constant under both: configured and published, never measured. A teacher
    that takes no part casts a row of zeros.

    ``REPLACE_RECORD``: one training record (or one group of records, where teachers are assigned by group) is added,
    removed or altered. One teacher may then vote differently in any way, and a vote count moves by -1, 0 or 1.

    ``ADD_REMOVE_TEACHER``: one teacher takes part or does not. Every vote count moves by 0 or 1 in the same direction;
    a threshold or sentinel that follows from the number of teachers does not move.
    """

    REPLACE_RECORD = "replace_record"
    ADD_REMOVE_TEACHER = "add_remove_teacher"

    @property
    def count_window(self) -> int:
        """Width of the interval in which the counts of one query move together, in votes.

        Sorted counts move within the same interval, so a gap between two of them moves by at most this much either
        way (a window twice as wide).
        """
        return 2 if self is NeighboringRelation.REPLACE_RECORD else 1
