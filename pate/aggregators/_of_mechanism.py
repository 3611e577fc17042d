"""The aggregator of a mechanism, which has its settings, answers, cost and law, bound to votes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, get_args, get_type_hints

import numpy as np

from pate._votes import Counts, VoteShape
from pate.accounting import Event, NeighboringRelation
from pate.aggregators._base import Aggregator, Gap, Release
from pate.aggregators._outlook import Outlook
from pate.mechanisms import FACTS, Law, Mechanism, NotStatedError

Bound = TypeVar("Bound", bound=Mechanism[Any])


@dataclass(frozen=True, kw_only=True)
class MechanismAggregator(Aggregator, Generic[Bound]):
    """The aggregator of the mechanism in brackets.

    It is declared as ``class Mine(MechanismAggregator[MyMechanism], tag="mine")``. Its fields are
    the mechanism's, but for the facts that votes tell (`pate.mechanisms.FACTS`): they are declared
    there once, with defaults and checks. ``noise`` and ``test_noise`` are called ``noise_law`` and
    ``test_law``, and names of noise and of failure probabilities end with the ``tag``, so that none
    is carried over silently when the class in a configuration changes. A subclass needs no
    decorator.

    Raises:
        ValueError: on fields that the mechanism refuses.
    """

    kind: ClassVar[Any] = Mechanism
    """The class of the mechanism, taken from the brackets."""
    names: ClassVar[Mapping[str, str]] = {}
    """Names of the fields, and how the mechanism calls them."""

    if TYPE_CHECKING:  # fields are made of the mechanism's

        def __init__(self, **settings: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls, *, tag: str = "", **options: Any) -> None:
        arguments = [
            part for base in vars(cls).get("__orig_bases__", ()) for part in get_args(base)
        ]
        kinds = [part for part in arguments if isinstance(part, type)]
        if not kinds:
            super().__init_subclass__(**options)
            return
        (cls.kind,) = kinds
        settings = [field for field in fields(cls.kind) if field.name not in FACTS]
        public = {field.name: _public_name(field.name, cls.kind, tag) for field in settings}
        types = get_type_hints(cls.kind)
        own = vars(cls).get("__annotations__", {})
        cls.__annotations__ = {public[name]: types[name] for name in public} | own
        for field in settings:
            if field.default is not MISSING:
                setattr(cls, public[field.name], field.default)
        cls.names = {name: field for field, name in public.items()}
        cls.noise_parameters = tuple(public[name] for name in cls.kind.noise_parameters)
        super().__init_subclass__(**options)
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, field in self.names.items():
            if field in self.kind.checks:
                self.kind.checks[field](**{name: getattr(self, name)})
        if not {"num_teachers", "num_labels", "num_items"} & {
            field.name for field in fields(self.kind)
        }:
            self._bound()

    @classmethod
    def defaults(cls, outlook: Outlook) -> Sequence[Mapping[str, Any]]:
        public = {field: name for name, field in cls.names.items()}
        return [
            {public[field]: value for field, value in settings.items()}
            for settings in cls.kind.defaults(outlook)
        ]

    def mechanism(self, shape: VoteShape) -> Bound:
        """Return the mechanism for a shape. Raises ``ValueError`` if it cannot serve it."""
        mechanism = self._bound(
            num_teachers=shape.num_teachers,
            num_labels=shape.num_labels,
            num_items=shape.num_labels,
        )
        mechanism.require_items(shape.num_labels)
        return mechanism

    def event(
        self, shape: VoteShape, relation: NeighboringRelation | None = None, tier: int | None = None
    ) -> Event:
        """Describe the cost of one query of a price tier, or the most that one may cost."""
        mechanism, stated = self.mechanism(shape), self.relation_of(relation)
        return mechanism.event(stated) if tier is None else mechanism.tier_event(stated, tier)

    def aggregate(self, votes: Counts, *, generator: np.random.Generator) -> Release:
        return self.mechanism(votes.shape).answer(votes.counts, generator=generator)

    def law(self, votes: Counts) -> Law:
        return self.mechanism(votes.shape).law(votes.counts.astype(np.int64))

    def gap_needed(self, shape: VoteShape, *, probability: float) -> Gap | None:
        mechanism = self.mechanism(shape)
        try:
            votes = mechanism.gap_to_answer(probability=probability, num_items=shape.num_labels)
        except NotStatedError:
            return None
        between = mechanism.gap_meaning.format(gap=votes, **vars(self))
        return Gap(votes, shape.num_teachers, between)

    def max_answer_probability(self, shape: VoteShape) -> float:
        return self.mechanism(shape).max_answer_probability(shape.num_teachers)

    def _bound(self, **facts: Any) -> Bound:
        relation = self.neighboring_relation
        facts |= {"relation": relation, "shift": relation.score_range}
        settings = {field: getattr(self, name) for name, field in self.names.items()}
        return cast(Bound, self.kind.of(facts, **settings))


# abstract, as long as no brackets name a mechanism
MechanismAggregator.__abstractmethods__ = frozenset({"kind"})


def _public_name(field: str, kind: type[Mechanism[Any]], tag: str) -> str:
    """Return the name of a mechanism's field in an aggregator."""
    if field in ("noise", "test_noise"):
        return "noise_law" if field == "noise" else "test_law"
    tagged = field in kind.noise_parameters or field.startswith("delta")
    return f"{field}_{tag}" if tag and tagged else field
