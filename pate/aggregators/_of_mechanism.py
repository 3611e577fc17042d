"""Aggregators whose fields are those of one mechanism, bound to a shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args

from pate._votes import VoteShape
from pate.accounting._events import Event
from pate.accounting._relation import NeighboringRelation
from pate.aggregators._base import Aggregator
from pate.mechanisms._base import Mechanism

Bound = TypeVar("Bound", bound=Mechanism[Any])


@dataclass(frozen=True, kw_only=True)
class MechanismAggregator(Aggregator, Generic[Bound]):
    """An aggregator whose fields specify one mechanism, that in brackets: ``MechanismAggregator[NoisyTopK]``.

    Fields have the mechanism's names, but for those in `names`. Its noise is the mechanism's noise,
    and what the mechanism demands of a field is demanded here, under the name that it has here.
    What the mechanism knows of the teachers is bound by `mechanism`: ``num_teachers``,
    ``num_labels`` (or ``num_items``), and the ``relation``, or the ``shift`` that it means for
    votes.

    Raises:
        ValueError: on fields that the mechanism refuses.
    """

    kind: ClassVar[Any] = Mechanism
    """The class of the mechanism, taken from the brackets."""
    names: ClassVar[Mapping[str, str]] = {}
    """What the mechanism calls fields that have another name there."""

    def __init_subclass__(cls, **options: Any) -> None:
        for base in vars(cls).get("__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type):
                    cls.kind = argument
        fields_by_name = {name_in_mechanism: name for name, name_in_mechanism in cls.names.items()}
        cls.noise_parameters = tuple(
            fields_by_name.get(name, name) for name in cls.kind.noise_parameters
        )
        super().__init_subclass__(**options)

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in fields(self):
            check = self.kind.checks.get(self.names.get(field.name, field.name))
            if check is not None:
                check(**{field.name: getattr(self, field.name)})
        if not {"num_teachers", "num_labels", "num_items"} & {
            field.name for field in fields(self.kind)
        }:
            self._bound({})

    def mechanism(self, shape: VoteShape) -> Bound:
        """Return the mechanism for a shape. Raises ``ValueError`` if it cannot serve it."""
        facts = {
            "num_teachers": shape.num_teachers,
            "num_labels": shape.num_labels,
            "num_items": shape.num_labels,
        }
        return self._bound(facts)

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        return self.mechanism(shape).event(self.relation_of(relation))

    def _bound(self, facts: Mapping[str, Any]) -> Bound:
        relation = self.neighboring_relation
        values = {**facts, "relation": relation, "shift": relation.score_range}
        values |= {
            self.names.get(field.name, field.name): getattr(self, field.name)
            for field in fields(self)
        }
        return cast(
            Bound,
            self.kind(
                **{
                    field.name: values[field.name]
                    for field in fields(self.kind)
                    if field.name in values
                }
            ),
        )
