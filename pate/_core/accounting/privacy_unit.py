"""The privacy unit of a release: for whom it was priced.

Epsilons of releases add up only for one and the same change of the private data. A release that was
priced for one record says nothing about all records of a person, and one that was priced for one
teacher nothing about the teachers of another partition: a teacher that leaves takes its records out
of the other release, too. So each row of a ledger names its unit, and a total exists for a unit
whose part in each release is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from pate._core.accounting.cost import NeighboringRelation
from pate._core.validation import given, require, require_count

EACH = "each"
"""The partition of a release with a vote for every unit."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PrivacyUnit:
    """The unit that a release was priced for, and who its teachers were.

    >>> record = PrivacyUnit(unit="record")
    >>> person = PrivacyUnit(unit="group", grouping="2f", partition="7c")
    >>> person.held_by(record, NeighboringRelation.REPLACE_RECORD)
    1
    >>> record.held_by(person, NeighboringRelation.REPLACE_RECORD) is None
    True

    Args:
        unit: ``record``, ``group``, ``user``, or the word of imported votes, such as ``patient``.
        grouping: the public name of the groups of records, such as ``patient``, which the owner of
            the data declares. Releases by groups of one name add up: that each record was in one
            group in all of them is the owner's promise, and statements print it. None without
            groups.
        partition: a keyed digest of who the teachers were, or `EACH`. None if it is not known.
        max_teachers_per_group: the largest number of teachers that the records of one group reach,
            enforced before training, in a release that was priced for a record. None without a
            bound.

    Raises:
        ValueError: if a part is no text, or the bound comes without a grouping.
    """

    unit: str
    grouping: str | None = None
    partition: str | None = None
    max_teachers_per_group: int | None = None

    def __post_init__(self) -> None:
        texts = given(grouping=self.grouping, partition=self.partition)
        for name, text in {"unit": self.unit, **texts}.items():
            require(isinstance(text, str) and text, f"{name} as a text", **{name: text})
        if self.max_teachers_per_group is not None:
            require_count(1, max_teachers_per_group=self.max_teachers_per_group)
            require(self.grouping is not None, "a grouping with max_teachers_per_group")

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={part!r}" for name, part in self.to_dict().items())
        return f"PrivacyUnit({parts})"

    def to_dict(self) -> dict[str, Any]:
        """Return the parts that are known, in plain JSON types."""
        return given(**asdict(self))

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> PrivacyUnit:
        """Return the unit that `to_dict` described. Raises ``ValueError`` on other content."""
        unknown = sorted({*content} - {*PrivacyUnit.__dataclass_fields__})
        require(not unknown, "the parts of a privacy unit", unknown=unknown)
        return _made(*content.items())

    def held_by(self, other: PrivacyUnit, relation: NeighboringRelation) -> int | None:
        """Return how many units of this release one unit of another holds. None if unknown.

        Under ``REPLACE_RECORD`` a record is a part of its group, so that a release which protects
        groups protects it, too. A group holds as many records of a release as its bound says, if
        the groups are the same. Under ``ADD_REMOVE_TEACHER`` both must have the same teachers: a
        record that leaves *changes* the ballot of a teacher of many, which is a move of
        ``REPLACE_RECORD``.

        Args:
            other: the unit that is added, removed or altered.
            relation: the relation of its guarantee.
        """
        same = self.unit == other.unit and self.grouping == other.grouping
        if relation is NeighboringRelation.ADD_REMOVE_TEACHER:
            agree = self.partition is not None and self.partition == other.partition
            return 1 if agree and (same or self.partition != EACH) else None
        if other.unit == "record":
            return 1 if self.unit in ("record", "group") else None
        if other.unit != "group":
            return 1 if self.unit == other.unit else None
        if other.grouping is None or self.grouping != other.grouping:
            return None
        return 1 if self.unit == "group" else self.max_teachers_per_group

    def describe(self, relation: NeighboringRelation) -> str:
        """Return the unit in words, as it is protected under a relation."""
        if relation is NeighboringRelation.ADD_REMOVE_TEACHER and self.partition != EACH:
            return "one teacher"
        by = f" by `{self.grouping}`" if self.unit == "group" and self.grouping else ""
        return f"one {self.unit}{by}"

    def why_alone(self, other: PrivacyUnit, relation: NeighboringRelation) -> str:
        """Return the reason why this release says nothing about ``other``."""
        if relation is NeighboringRelation.ADD_REMOVE_TEACHER:
            return "of teachers not known to be the same"
        other_groups = ", by other groups" * (self.unit == other.unit)
        return f"priced for {self.describe(relation)}{other_groups}"

    def covers(self, other: PrivacyUnit, relation: NeighboringRelation) -> bool:
        """Return whether a guarantee for this unit is one for ``other``."""
        return self.held_by(other, relation) == 1


@lru_cache(maxsize=4096)  # few are distinct in a ledger
def _made(*parts: tuple[str, Any]) -> PrivacyUnit:
    return PrivacyUnit(**dict(parts))


RECORD = PrivacyUnit(unit="record")
"""A record with any teachers: enough under ``REPLACE_RECORD``."""
